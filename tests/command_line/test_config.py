"""Settings: their order, their checks, TOML and flags."""

import argparse
import copy
import dataclasses
import pickle
import subprocess
import sys
import tomllib

import numpy as np
import pytest

from hpcgcn.config import FIELDS, GROUPS, RENAMED, Config, add_flags, flag_of, make_config, to_toml
from hpcgcn.errors import ConfigError
from hpcgcn.exchange.presets import PRESETS


def test_later_wins_defaults_preset_file_flags(tmp_path):
    path = tmp_path / "run.toml"
    path.write_text('method = "sylvie-a"\nrefresh_every = 5\nhidden = 32\n')
    config = make_config({"hidden": 64}, str(path))
    assert (config.codec, config.refresh_every, config.hidden,
            config.layers) == ("1bit", "5", 64, Config().layers)
    assert make_config({"method": "pipegcn"},
                       str(path)).codec == "fp32", "another preset than the file's"


@pytest.mark.parametrize("name", PRESETS)
def test_presets_are_settings(name):
    config = make_config({"method": name})
    for key, value in PRESETS[name].settings.items():
        assert getattr(config, key) == value
    others = {key: value for key, value in config.as_dict().items()
              if key not in PRESETS[name].settings and key != "method"}
    assert others == {key: FIELDS[key].default for key in others}
    assert PRESETS[name].summary


def test_toml_and_back():
    config = make_config({"method": "pipegcn-gf", "lambda": 0.25, "inductive": True,
                          "name": 'a "quoted" name\\'})
    for comments in (False, True):
        assert make_config(tomllib.loads(to_toml(config, comments))) == config


def test_every_setting_is_documented_and_in_a_group():
    text = to_toml(Config(), comments=True)
    for key, spec in FIELDS.items():
        assert spec.metadata["help"]
        assert f"\n{key} = " in text
    assert all(f"# {group}\n" in text for group in GROUPS)


def parse(*arguments):
    parser = argparse.ArgumentParser()
    add_flags(parser)
    return vars(parser.parse_args(arguments))


def test_flags_have_the_names_of_keys():
    given = parse("--weight-decay", "0.5", "--lambda", "2", "--no-blocking", "--inductive",
                  "--rate", "8", "--resume")
    assert given == {"weight_decay": 0.5, "lambda": 2.0, "blocking": False, "inductive": True,
                     "rate": "8", "resume": "must"}
    assert parse() == {}, "absent flags leave no trace"
    assert parse("--resume", "auto")["resume"] == "auto"


def test_every_field_has_a_flag():
    for key, spec in FIELDS.items():
        given = parse(flag_of(key)) if type(spec.default) is bool else parse(flag_of(key),
                                                                             str(spec.default))
        assert given == {key: True if type(spec.default) is bool else spec.default}


def test_numbers_of_numpy_are_numbers():
    config = make_config({"layers": np.int64(2), "lr": np.float32(0.5), "inductive": np.True_,
                          "dropout": np.array(0.25)})
    held = config.layers, config.lr, config.inductive, config.dropout
    assert held == (2, 0.5, True, 0.25)
    assert [type(value) for value in held] == [int, float, bool, float]
    with pytest.raises(ConfigError, match="a whole number"):
        make_config({"layers": np.array([1, 2])})


MISTAKES = [
    ("hiden", 3, "did you mean 'hidden'"), ("weight-decai", 0.1, "did you mean 'weight_decay'"),
    ("zzz", 1, "hpcgcn config lists"), ("layers", 0, "at least 1"),
    ("layers", 2.5, "a whole number"), ("layers", "3", "a whole number"),
    ("layers", True, "a whole number"), ("dropout", 1.0, "less than 1"),
    ("dropout", -0.1, "at least 0"), ("dropout", float("nan"), "finite"),
    ("lr", float("inf"), "finite"), ("alpha", 1.5, "at most 1"),
    ("model", "gcni", "did you mean 'gcnii'"), ("model", 5, "choose one of"),
    ("method", "pipe", "choose one of"), ("inductive", 1, "true or false"),
    ("inductive", "yes", "true or false"), ("staleness_features", 2, "choose one of 0, 1"),
    ("seed", -1, "at least 0"), ("smooth_features", 1.0, "less than 1"), ("name", None, "a text"),
    ("epochs", [3], "a whole number"), ("name", "a\nb", "without line feeds"),
    ("name", "\x1b[31m", "printable"), ("threads", 10 ** 20, "at most 4096"),
    ("epochs", 10 ** 5000, "at most"), ("lr", 10 ** 5000, "finite"), ("seed", 2 ** 63, "at most"),
    ("stall_timeout", float("inf"), "finite"),
    ("split_index", -1, "at least 0"), ("feature_blocks", 100_000, "at most 1024"),
]


@pytest.mark.parametrize("key, value, words", MISTAKES, ids=range(len(MISTAKES)))
def test_mistakes_are_named(key, value, words):
    with pytest.raises(ConfigError, match=words) as caught:
        make_config({key: value}, where="here")
    assert "here" in str(caught.value)


def test_whole_numbers_do_for_numbers_and_numbers_for_texts():
    assert make_config({"lr": 1}).lr == 1.0
    assert make_config({"codec": "bits", "rate": 8}).rate == "8"
    assert make_config({"codec": "bits", "byte_budget": 1500}).byte_budget == "1500"


@pytest.mark.parametrize("content, words", [
    ("layers = ", "not valid TOML"), ("[model]\nlayers = 3\n", "not grouped in tables"),
    ("layerz = 3\n", "did you mean 'layers'"),
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


def test_all_values_are_simple_and_no_key_is_in_two_groups():
    specs = [spec for group in GROUPS.values() for spec in dataclasses.fields(group)]
    assert len(specs) == len(FIELDS) and not set(GROUPS) & set(FIELDS)
    assert all(type(spec.default) in (bool, int, float, str) for spec in specs)


WAYS_TO_MAKE = {
    "constructor": lambda **settings: Config(**settings),
    "make_config": lambda **settings: make_config(settings),
    "replace": lambda **settings: Config().replace(**settings),
    "dataclasses.replace": lambda **settings: dataclasses.replace(Config(), **settings),
    "group": lambda **settings: Config(architecture=GROUPS["architecture"](**settings)),
}


@pytest.mark.parametrize("way", WAYS_TO_MAKE)
def test_settings_are_checked_however_they_are_made(way):
    with pytest.raises(ConfigError, match="layers = -3 .* at least 1"):
        WAYS_TO_MAKE[way](layers=-3)
    assert WAYS_TO_MAKE[way](layers=4).architecture.layers == 4


@pytest.mark.parametrize("way", [way for way in WAYS_TO_MAKE if way != "group"])
def test_a_method_means_its_preset_however_settings_are_made(way):
    config = WAYS_TO_MAKE[way](method="pipegcn")
    assert config.communication.staleness == PRESETS["pipegcn"].settings["staleness"]
    assert config == make_config({"method": "pipegcn"})
    with pytest.raises(ConfigError, match="there is nothing to smooth"):
        WAYS_TO_MAKE[way](method="vanilla", smoothing=0.5)


def test_settings_cannot_be_changed_in_place():
    config = Config()
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.lr = -1.0
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.training.lr = -1.0
    with pytest.raises(AttributeError, match="no setting 'lrr'"):
        assert config.lrr


def test_another_method_keeps_what_was_chosen_and_drops_the_old_preset():
    config = Config(method="sylvie-a", refresh_every=5, hidden=64)
    other = config.replace(method="pipegcn")
    assert (other.codec, other.refresh_every, other.hidden,
            other.staleness) == ("fp32", "5", 64, PRESETS["pipegcn"].settings["staleness"])
    assert (config.replace(lr=0.5).replace(lr=0.01) == config
            and hash(config) == hash(config.replace()))


def test_settings_can_be_sent_between_ranks():
    config = Config(method="varco", codec="nodes")
    assert pickle.loads(pickle.dumps(config)) == config == copy.deepcopy(config)


def test_a_group_that_is_none_is_refused():
    with pytest.raises(ConfigError, match="expected TrainingSettings"):
        Config(training={"lr": 0.1})


def test_groups_and_flat_names_read_the_same():
    config = Config(lambda_=0.25, name="x", ways=2, parallel="layers")
    assert config.architecture.lambda_ == config.lambda_ == config.as_dict()["lambda"] == 0.25
    assert config.run.name == config.name == "x"
    assert config.pipeline.partitions_per_stage == config.partitions_per_stage == config.ways == 2


@pytest.mark.parametrize("old", RENAMED)
def test_old_names_are_understood_with_a_note(old, caplog):
    spec = FIELDS[RENAMED[old]]
    assert parse(flag_of(old), str(spec.default)) == {old: spec.default}
    with caplog.at_level("INFO", "hpcgcn"):
        assert make_config({old: spec.default}, where="here") == Config()
    assert f"'{old}' in here is now called '{RENAMED[old]}'" in caplog.text


@pytest.mark.parametrize("old", RENAMED)
def test_quiet_runs_are_not_told_of_old_names(old, caplog, tmp_path):
    value = FIELDS[RENAMED[old]].default
    (tmp_path / "quiet.toml").write_text(f"{old} = {value}\nquiet = true\n")
    with caplog.at_level("INFO", "hpcgcn"):
        make_config({old: value, "quiet": True})
        make_config(toml_path=str(tmp_path / "quiet.toml"))
        Config(**{old: value, "quiet": True})
    assert caplog.text == ""


@pytest.mark.parametrize("old, means", [
    ({"staleness_features": 1, "staleness_gradients": 1},
     {"staleness": "0,features=1,gradients=1"}),
    ({"method": "pipegcn", "staleness_features": 0}, {"staleness": "{staleness},features=0"}),
    ({"method": "pipegcn", "smooth_gradients": 0.5}, {"smoothing": "0,gradients=0.5"}),
    ({"method": "pipegcn", "staleness": "1", "staleness_features": 0},
     {"staleness": "1,features=0"}),
    ({"codec": "4bit", "compress_last": False}, {"codec": "4bit,last=fp32"}),
    ({"codec": "4bit", "compress_last": True}, {"codec": "4bit"}),
    ({"method": "varco", "compress_last": True}, {"codec": "subset,last=fp32,last=subset"}),
], ids=str)
def test_settings_that_were_replaced_mean_what_they_meant_with_a_note(old, means, caplog):
    with caplog.at_level("INFO", "hpcgcn"):
        config = make_config(old, where="here")
    preset = PRESETS[old.get("method", "overlap")].settings
    for key, text in means.items():
        assert getattr(config, key) == text.format(**preset)
        assert f"in here: now written as {key}" in caplog.text
    assert Config(**old) == config
    flags = [flag_of(key) if value is True else flag_of(key).replace("--", "--no-")
             if value is False else f"{flag_of(key)}={value}" for key, value in old.items()]
    assert parse(*flags) == old


def test_an_old_file_is_stale_in_every_epoch_as_it_was():
    old = {"method": "pipegcn", "staleness_features": 1, "staleness_gradients": 1}
    assert make_config(old).stale_error == "inf"
    assert make_config(old | {"stale_error": 0.1}).stale_error == "0.1"
    assert make_config({"method": "pipegcn"}).stale_error == PRESETS["pipegcn"].settings[
        "stale_error"]


def test_settings_load_neither_mpi_nor_numpy():
    code = ("import sys, hpcgcn.config; print([m for m in ('mpi4py', 'numpy', 'scipy', 'h5py') "
            "if m in sys.modules])")
    assert subprocess.run([sys.executable, "-c", code], capture_output=True,
                          text=True).stdout == "[]\n"


def test_dropout_short_of_one_keeps_something():
    from hpcgcn.philox import dropout_scale, dropout_threshold
    assert dropout_threshold(0.9999999) == 65535 and dropout_scale(65535) == 65536.0
    assert dropout_threshold(0.5) == 32768 and dropout_threshold(0.0) == 0
