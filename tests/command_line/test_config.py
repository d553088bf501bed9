"""Settings: their order, their checks, TOML and flags."""

import argparse
import dataclasses
import tomllib

import pytest

from hpcgcn.config import FIELDS, GROUPS, Config, add_flags, key_of, make_config, to_toml
from hpcgcn.errors import ConfigError
from hpcgcn.exchange.presets import PRESETS


def test_later_wins_defaults_preset_file_flags(tmp_path):
    path = tmp_path / "run.toml"
    path.write_text('method = "sylvie-a"\nrefresh_every = 5\nhidden = 32\n')
    config = make_config({"hidden": 64}, str(path))
    assert (config.codec, config.refresh_every, config.hidden, config.layers) == ("1bit", 5, 64, Config().layers)
    assert make_config({"method": "vanilla"}, str(path)).codec == "fp32", "another preset than the file's"


@pytest.mark.parametrize("name", PRESETS)
def test_presets_are_settings(name):
    config = make_config({"method": name})
    for key, value in PRESETS[name].settings.items():
        assert getattr(config, key) == value
    others = {key: getattr(config, key) for key in FIELDS if key not in PRESETS[name].settings and key != "method"}
    assert others == {key: FIELDS[key].default for key in others}
    assert PRESETS[name].summary


def test_toml_and_back():
    config = make_config({"method": "pipegcn-gf", "lambda": 0.25, "inductive": True, "name": 'a "quoted" name\\'})
    for comments in (False, True):
        assert make_config(tomllib.loads(to_toml(config, comments))) == config


def test_every_setting_is_documented_and_in_a_group():
    text = to_toml(Config(), comments=True)
    for name, spec in FIELDS.items():
        assert spec.metadata["group"] in GROUPS and spec.metadata["help"]
        assert f"\n{key_of(name)} = " in text


def parse(*arguments):
    parser = argparse.ArgumentParser()
    add_flags(parser)
    return vars(parser.parse_args(arguments))


def test_flags_have_the_names_of_keys():
    given = parse("--weight-decay", "0.5", "--lambda", "2", "--no-blocking", "--inductive", "--rate", "8", "--resume")
    assert given == {"weight_decay": 0.5, "lambda_": 2.0, "blocking": False, "inductive": True, "rate": "8", "resume": "must"}
    assert parse() == {}, "absent flags leave no trace"
    assert parse("--resume", "auto")["resume"] == "auto"


def test_every_field_has_a_flag():
    for name, spec in FIELDS.items():
        flag = "--" + key_of(name).replace("_", "-")
        given = parse(flag) if type(spec.default) is bool else parse(flag, str(spec.default))
        assert given == {name: True if type(spec.default) is bool else spec.default}


MISTAKES = [
    ("hiden", 3, "did you mean 'hidden'"), ("weight-decai", 0.1, "did you mean 'weight_decay'"),
    ("zzz", 1, "hpcgcn config lists"), ("layers", 0, "at least 1"), ("layers", 2.5, "a whole number"),
    ("layers", "3", "a whole number"), ("layers", True, "a whole number"), ("dropout", 1.0, "less than 1"),
    ("dropout", -0.1, "at least 0"), ("dropout", float("nan"), "finite"), ("lr", float("inf"), "finite"),
    ("alpha", 1.5, "at most 1"), ("model", "gcni", "did you mean 'gcnii'"), ("model", 5, "choose one of"),
    ("method", "pipe", "choose one of"), ("inductive", 1, "true or false"), ("inductive", "yes", "true or false"),
    ("staleness_features", 2, "choose one of 0, 1"), ("seed", -1, "at least 0"), ("smooth_features", 1.0, "less than 1"),
    ("name", None, "a text"), ("epochs", [3], "a whole number"),
]


@pytest.mark.parametrize("key, value, words", MISTAKES)
def test_mistakes_are_named(key, value, words):
    with pytest.raises(ConfigError, match=words) as caught:
        make_config({key: value}, where="here")
    assert "here" in str(caught.value)


def test_whole_numbers_do_for_numbers_and_numbers_for_texts():
    assert make_config({"lr": 1}).lr == 1.0
    assert make_config({"codec": "bits", "rate": 8}).rate == "8"
    assert make_config({"byte_budget": 1500}).byte_budget == "1500"


@pytest.mark.parametrize("content, words", [
    ("layers = ", "not valid TOML"), ("[model]\nlayers = 3\n", "not grouped in tables"), ("layerz = 3\n", "did you mean 'layers'"),
    ("layers = 'three'\n", "a whole number"), (b"\xff\xfe", "not valid TOML"),
])
def test_mistakes_in_a_file_are_named(tmp_path, content, words):
    path = tmp_path / "run.toml"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ConfigError, match=words) as caught:
        make_config(toml_path=str(path))
    assert str(path) in str(caught.value)


def test_no_such_file(tmp_path):
    with pytest.raises(ConfigError, match="no configuration file"):
        make_config(toml_path=str(tmp_path / "none.toml"))
    with pytest.raises(ConfigError, match="cannot read"):
        make_config(toml_path=str(tmp_path))


def test_settings_are_one_flat_dataclass():
    assert all(type(f.default) in (bool, int, float, str) for f in dataclasses.fields(Config))


def test_dropout_short_of_one_keeps_something():
    from hpcgcn.philox import dropout_scale, dropout_threshold
    assert dropout_threshold(0.9999999) == 65535 and dropout_scale(65535) == 65536.0
    assert dropout_threshold(0.5) == 32768 and dropout_threshold(0.0) == 0
