"""Settings that differ from hop to hop: what their texts mean, and which texts are refused."""

import math

import pytest

from hpcgcn.config import make_config
from hpcgcn.errors import ConfigError
from hpcgcn.exchange.hop_settings import read
from hpcgcn.exchange.per_hop import HopFacts, Selector, number, parse, parse_selector, whole_number

HOPS = [HopFacts(1, 64), HopFacts(2, 64, narrow=True), HopFacts(3, 10, narrow=True, last=True)]

# text: values of hops 1, 2, 3 forward, and 1, 2, 3 backward
MEANINGS = {
    "7": "777 777",
    "1,narrow=0": "100 100",
    "1,wide=0": "011 011",
    "1,last=0": "110 110",
    "1,features=0": "000 111",
    "gradients=1": "000 111",
    "1,2=0": "101 101",
    "1,features.last=0": "110 111",
    "1,gradients.2=0": "111 101",
    "1,gradients.wide=5,3=2": "112 512",
    "1,2=0,features=3": "333 101",
    "1,features=3,2=0": "303 101",
    " 1 , narrow = 0 , LAST=4": "104 104",
    "last=1,last=2": "002 002",
    "1,9=0": "111 111",
}


@pytest.mark.parametrize("text", MEANINGS)
def test_later_entries_win_where_they_match(text):
    setting = parse(text, whole_number(), 0)
    found = " ".join("".join(str(setting.at(hop, direction)) for hop in HOPS)
                     for direction in ("forward", "backward"))
    assert found == MEANINGS[text]


def test_commas_within_values_do_not_separate_entries():
    setting = read("rate", "step:1@0,4@50,last=step:2@0,8@9,features.1=linear:8:1")
    first, _, last = HOPS
    assert setting.at(first, "backward") == setting.base == "step:1@0,4@50"
    assert setting.at(last, "forward") == "step:2@0,8@9"
    assert setting.at(first, "forward") == "linear:8:1"


def test_what_a_direction_could_have_is_known_without_a_model():
    setting = parse("1,features=0,features.last=2", whole_number(), 0)
    assert setting.values("forward") == [0, 2] and setting.values("backward") == [1]
    assert setting.values() == [1, 0, 2] and setting.numbers() == []
    assert parse("1,4=0,gradients.7=0", whole_number(), 0).numbers() == [4, 7]


@pytest.mark.parametrize("text, selector", [
    ("features", Selector("forward")), ("gradients", Selector("backward")),
    ("12", Selector("", "12")), ("Last", Selector("", "last")),
    ("gradients.narrow", Selector("backward", "narrow")), ("features.2", Selector("forward", "2"))])
def test_selectors(text, selector):
    assert parse_selector(text) == selector


MALFORMED = {
    "": "is not a whole number",
    ",": "is not a whole number",
    "1,": "is not a whole number",
    "one": "'one' is not a whole number",
    "1.5": "is not a whole number",
    "1 2": "is not a whole number",
    "-1": "must be at least 0",
    "99999999999": "must be at most",
    "9" * 100: "is not a whole number",
    "1,0": "'1,0' is not a whole number",
    "narrow=0,1": "'0,1' is not a whole number",
    "1;last=0": "'1;last' is no selector",
    "1,last": "is not a whole number",
    "1,last=": "'last=' gives no value",
    "=": "a selector and a value are missing",
    "=1": "'' is no selector",
    "1,=1": "'' is no selector",
    "1,=": "gives no value",
    "1,last==0": "more than one =",
    "1,last=narrow=0": "more than one =",
    "1,lst=0": "'lst' is no selector .did you mean 'last'",
    "1,feature=0": "did you mean 'features'",
    "1,features.lat=0": "did you mean 'last'",
    "1,last.features=0": "'last.features' is no selector",
    "1,features.gradients=0": "is no selector",
    "1,features.last.2=0": "is no selector",
    "1,features.=0": "is no selector",
    "1,.last=0": "is no selector",
    "1,0=0": "'0' is no selector",
    "1,-1=0": "'-1' is no selector",
    "1,1.5=0": "'1.5' is no selector",
    "1,1000000000=0": "is no selector",
    "1,٣=0": "is no selector",
    "1,all=0": "'all' is no selector",
    "1,last=x": "'x' is not a whole number",
}


@pytest.mark.parametrize("text", MALFORMED)
def test_malformed_texts_are_refused_with_the_reason(text):
    with pytest.raises(ValueError, match=MALFORMED[text]) as caught:
        parse(text, whole_number(), 0)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("text, words", [("x", "not a number"), ("nan", "not a finite"),
                                         ("inf", "not a finite"), ("-0.1", "at least 0"),
                                         ("1", "less than 1"), ("", "not a number")])
def test_numbers_out_of_bounds_are_refused(text, words):
    with pytest.raises(ValueError, match=words):
        number(below=1.0)(text)


def test_numbers():
    assert number(below=1.0)("0.95") == 0.95 and number(infinite=True)("inf") == math.inf


@pytest.mark.parametrize("key, text, words", [
    ("staleness", "2", "choose one of 0, 1"), ("staleness", "1,last=2", "choose one of 0, 1"),
    ("codec", "1bt", "did you mean '1bit'"), ("codec", "fp32,last=zip", "choose one of fp32"),
    ("rate", "8,last=sometimes", "'sometimes' is not a schedule"),
    ("refresh_every", "1,last=never", "not a whole number"),
    ("smoothing", "features=1", "less than 1"), ("smoothing", "0.5,narow=0", "mean 'narrow'")])
def test_settings_name_themselves_and_where_they_are_from(key, text, words):
    with pytest.raises(ConfigError, match=words) as caught:
        make_config({key: text}, where="run.toml")
    assert str(caught.value).startswith(f"{key} = '{text}' in run.toml: ")
