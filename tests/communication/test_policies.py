"""From settings to policies: what is refused, with which reason, and schedules that spend a byte
budget."""

import pytest

from hpcgcn.config import make_config
from hpcgcn.errors import ConfigError
from hpcgcn.exchange.policies import codec_rate, make_policies, parse_bytes, run_bytes
from hpcgcn.exchange.presets import PRESETS

REFUSED = {
    "smooth_features .* needs staleness_features": {"smooth_features": 0.9},
    "smooth_gradients .* needs staleness_gradients": {"staleness_features": 1,
                                                      "smooth_gradients": 0.9},
    "refresh_every .* needs staleness": {"refresh_every": 5},
    "exclude each other": {"codec": "4bit", "error_feedback": True, "residual": True},
    "nothing is lost": {"error_feedback": True},
    "residual .*nothing is lost": {"residual": True, "method": "pipegcn"},
    "grow without bound": {"method": "bns", "error_feedback": True},
    "rescaled samples": {"codec": "subset", "rescale": True, "residual": True},
    "rounding = 'nearest'": {"method": "sylvie-s", "error_feedback": True},
    "1 bit and stochastic": {"codec": "bits", "rate": "step:8@0,1@3,8@5", "residual": True},
    "1 bit and stochastic rounding": {"codec": "bits", "byte_budget": "1MB",
                                      "error_feedback": True},
    "rescale is for codec = 'subset'": {"codec": "nodes", "rescale": True},
    "at least 1": {"codec": "subset", "rate": "0.5"},
    "ratio is at least 1": {"codec": "subset", "rate": "step:4@0,0.5@3,4@5"},
    "a compression ratio": {"codec": "nodes", "rate": "plateau:4:0.5"},
    "at most 32 bits": {"codec": "bits", "rate": "linear:1:64"},
    "codec 'bits' sends at most": {"codec": "bits", "rate": "step:1@0,33@5"},
    "fixes the rate at 4": {"codec": "4bit", "rate": "8"},
    "has no rate": {"codec": "bf16", "rate": "8"},
    "byte_budget needs a codec with a rate": {"byte_budget": "1MB"},
    "write a number of bytes": {"codec": "bits", "byte_budget": "a lot"},
    "not a schedule": {"codec": "bits", "rate": "sometimes"},
    "cuda-aware": {"mpi": "cuda-aware"},
}


@pytest.mark.parametrize("reason", REFUSED)
def test_contradictions_are_refused_with_the_reason(reason):
    with pytest.raises(ConfigError, match=reason):
        make_config(REFUSED[reason])


@pytest.mark.parametrize("settings", [
    {"method": "sylvie-a", "refresh_every": 10, "smooth_gradients": 0.95},
    {"method": "pipegcn", "codec": "subset", "rate": "linear:128:1:5"},
    {"method": "sylvie-s", "error_feedback": True, "rounding": "nearest"},
    {"method": "varco", "codec": "4bit"}, {"method": "bns", "codec": "fp32"},
    {"method": "varco", "codec": "bf16"}, {"method": "varco", "byte_budget": "20MB"},
    {"codec": "bits", "rate": "step:1@0,2@10,4@20,8@30,16@40,32@50"},
    {"codec": "subset", "residual": True, "method": "pipegcn-gf"},
    *({"method": name} for name in PRESETS)], ids=str)
def test_what_can_be_combined_is_not_refused(settings):
    make_config(settings)


def test_a_preset_rate_is_for_the_presets_codec():
    assert codec_rate(make_config({"method": "varco"})) == ("subset", "linear:128:1:5")
    assert codec_rate(make_config({"method": "varco", "codec": "nodes"})) == ("nodes", "10")
    assert codec_rate(make_config({"method": "varco", "codec": "4bit"})) == ("bits", "4")
    assert codec_rate(make_config({"method": "varco", "codec": "subset",
                                   "rate": "3"})) == ("subset", "3")


def test_policies_of_the_directions_differ_where_settings_do():
    config = make_config({"staleness_features": 1, "smooth_features": 0.9, "refresh_every": 4,
                          "codec": "4bit", "compress_last": False})
    policies = make_policies(config, 100, [(1, 8), (2, 8), (2, 8)])
    there, back, last = policies(1, "forward"), policies(1, "backward"), policies(2, "forward")
    assert (there.staleness, there.refresh_every, there.smoothing) == (1, 4, 0.9)
    assert (back.staleness, back.refresh_every, back.smoothing) == (0, 0, 0.0)
    assert there.codec.name == "bits" and last.codec.name == "fp32"
    assert [there.synchronous(epoch) for epoch in range(5)] == [False, False, False, True, False]
    assert all(back.synchronous(epoch) for epoch in range(5))


@pytest.mark.parametrize("text, wanted", [("0", 0), ("1500000", 1_500_000), ("20MB", 20_000_000),
                                          ("1.5GB", 1_500_000_000),
                                          ("3kb", 3000), (" 2 TB ", 2 * 10 ** 12), ("7B", 7)])
def test_bytes_are_read(text, wanted):
    assert parse_bytes(text) == wanted


@pytest.mark.parametrize("text", ["", "MB", "1.2.3", "-5", "5 apples", "1e6", "5K"])
def test_other_numbers_of_bytes_are_refused(text):
    with pytest.raises(ConfigError, match="write a number of bytes"):
        parse_bytes(text)


WIDTHS = [(1, 64), (2, 64), (2, 64), (3, 10), (3, 10)]


@pytest.mark.parametrize("settings",
                         [{"codec": "bits"}, {"codec": "subset"}, {"method": "varco"},
                          {"codec": "nodes"}, {"codec": "subset", "rate": "linear:16:2"}], ids=str)
@pytest.mark.parametrize("share", [0.3, 0.6, 0.95])
def test_a_budget_is_kept_and_nearly_spent(settings, share):
    rows, full = 3000, 3000 * 4 * sum(width for _, width in WIDTHS) * 200
    config = make_config(settings | {"epochs": 200, "byte_budget": str(int(share * full))})
    policies = make_policies(config, rows, WIDTHS)
    spent = run_bytes(policies, policies.rate, rows, WIDTHS, 4)
    assert spent <= share * full
    allowed = 0.5 if settings.get("rate") else share       # linear:16:2 cannot send more than half
    assert spent > 0.9 * min(share, allowed) * full
    seen = [policies.rate.rate(epoch) for epoch in range(200)]
    assert seen == sorted(seen, reverse=seen[0] > seen[-1]), "the rate moves one way"


def test_a_budget_that_cannot_be_kept_is_refused():
    with pytest.raises(ConfigError, match="raise the budget, or run fewer epochs"):
        make_policies(make_config({"codec": "subset", "byte_budget": "1KB"}), 3000, WIDTHS)


def test_a_budget_larger_than_needed_sends_everything_at_once():
    policies = make_policies(make_config({"codec": "subset", "byte_budget": "1TB", "epochs": 50}),
                             3000, WIDTHS)
    assert [policies.rate.rate(epoch) for epoch in range(1, 50)] == [1.0] * 49


def test_a_budget_without_messages_is_no_mistake():
    make_policies(make_config({"codec": "bits", "byte_budget": "1KB"}), 0, [])


@pytest.mark.parametrize("settings, words",
                         [({"codec": "4bit"}, "codec = 'bits'"),
                          ({"codec": "bits", "rate": "cosine:1:8"}, "linear schedule"),
                          ({"codec": "subset", "rate": "step:4@0,1@5"}, "linear schedule")])
def test_a_budget_does_not_replace_a_rate_in_silence(settings, words):
    with pytest.raises(ConfigError, match=words):
        make_config({"byte_budget": "1MB", **settings})
