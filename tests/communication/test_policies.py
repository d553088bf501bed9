"""From settings to policies: what is refused, with which reason, and schedules that spend a byte
budget."""

import pytest

from hpcgcn.config import make_config
from hpcgcn.errors import ConfigError
from hpcgcn.exchange.budget import parse_bytes, run_bytes
from hpcgcn.exchange.hop_settings import HopSettings
from hpcgcn.exchange.per_hop import HopFacts
from hpcgcn.exchange.policies import make_policies
from hpcgcn.exchange.presets import PRESETS

REFUSED = {
    "smoothing .* needs stale features": {"smoothing": 0.9},
    "smoothing .*features=0.9.* needs stale features": {"smooth_features": 0.9},
    "smoothing .* needs stale gradients": {"staleness": "features=1", "smoothing": 0.9},
    "smoothing .*gradients=0.9.* needs": {"staleness": "1,gradients=0",
                                          "smoothing": "gradients=0.9"},
    "refresh_every .* needs staleness": {"refresh_every": 5},
    "exclude each other": {"codec": "4bit", "error_feedback": True, "residual": True},
    "nothing is lost": {"error_feedback": True},
    "residual .*nothing is lost": {"residual": True, "method": "pipegcn"},
    "grow without bound": {"method": "bns", "error_feedback": True},
    "pile up without bound": {"codec": "8bit,last=none", "error_feedback": True},
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
    "'often' is not a schedule": {"codec": "bits", "rate": "8,last=often"},
    "ratio is at least 1 .*everything": {"codec": "subset", "rate": "4,last=0.5"},
    "bits' sends at most 32": {"codec": "bits", "rate": "8,features=64"},
    "residual with 1 bit": {"codec": "8bit,last=1bit", "residual": True},
    "cannot leave out one of its rows": {"method": "bns", "halo": "cover"},
    "cuda-aware": {"mpi": "cuda-aware"},
    "'inf' would send nothing.*no-communication": {"codec": "nodes", "rate": "inf"},
    "change_threshold needs residual": {"codec": "8bit", "change_threshold": 0.1},
    "must know the length": {"codec": "8bit", "residual": True, "change_threshold": 0.1,
                             "transport": "nccl", "backend": "cuda"},
    "how many rows move": {"codec": "bits", "residual": True, "change_threshold": 0.1,
                           "rounding": "nearest", "byte_budget": "1MB"},
    "a mean of 1 to 8 bits": {"codec": "adaptive", "rate": "16"},
    "divides a mean": {"codec": "adaptive", "rate": "linear:0.5:4"},
    "has a budget of its own": {"codec": "adaptive", "byte_budget": "1MB"},
    "with 1 bit and stochastic rounding grows": {"codec": "adaptive", "rate": "4",
                                                 "error_feedback": True},
}


@pytest.mark.parametrize("reason", REFUSED)
def test_contradictions_are_refused_with_the_reason(reason):
    with pytest.raises(ConfigError, match=reason):
        make_config(REFUSED[reason])


@pytest.mark.parametrize("settings", [
    {"method": "sylvie-a", "refresh_every": 10, "smoothing": "gradients=0.95"},
    {"method": "pipegcn", "codec": "subset", "rate": "linear:128:1:5"},
    {"method": "sylvie-s", "error_feedback": True, "rounding": "nearest"},
    {"method": "varco", "codec": "4bit"}, {"method": "bns", "codec": "fp32"},
    {"method": "varco", "codec": "bf16"}, {"method": "varco", "byte_budget": "20MB"},
    {"codec": "bits", "rate": "step:1@0,2@10,4@20,8@30,16@40,32@50"},
    {"codec": "subset", "residual": True, "method": "pipegcn-gf"},
    {"codec": "1bit,last=subset", "rate": "last=linear:128:1:5"},
    {"codec": "fp32,wide=bits", "rate": "step:1@0,8@50,features.wide=16", "epochs": 60},
    {"residual": True, "change_threshold": 0.01},
    {"codec": "8bit", "residual": True, "change_threshold": 0.01, "staleness": "1,narrow=0"},
    {"codec": "adaptive", "rate": "3", "residual": True, "rounding": "nearest"},
    {"method": "sylvie-a", "codec": "adaptive,last=fp32", "rate": "linear:1:8"},
    {"staleness": "features=1", "smoothing": "features=0.5", "refresh_every": "7,last=0"},
    *({"method": name} for name in PRESETS)], ids=str)
def test_what_can_be_combined_is_not_refused(settings):
    make_config(settings)


def hops(*widths, narrow=(), without_gradients=(), rows=100) -> list[HopFacts]:
    """Hops 1, 2, ... of these widths."""
    return [HopFacts(k, width, rows, k in narrow, k not in without_gradients, k == len(widths))
            for k, width in enumerate(widths, 1)]


def test_a_preset_rate_is_for_the_presets_codec():
    wide, last = hops(8, 8)

    def codecs(**settings):
        found = HopSettings.of(make_config({"method": "varco", **settings}))
        return [found.codec_at(hop, "forward") for hop in (wide, last)]
    assert codecs() == [("subset", "linear:128:1:5"), ("fp32", "1")]
    assert codecs(codec="nodes") == [("nodes", "10")] * 2
    assert codecs(codec="4bit") == [("bits", "4")] * 2
    assert codecs(codec="subset", rate="3") == [("subset", "3")] * 2


def test_policies_differ_where_settings_do():
    config = make_config({"staleness": "features=1", "smoothing": "features=0.9",
                          "refresh_every": 4, "codec": "4bit,last=fp32"})
    policies = make_policies(config, hops(8, 8, without_gradients=(1,)))
    there, back, last = policies(1, "forward"), policies(1, "backward"), policies(2, "forward")
    assert (there.staleness, there.refresh_every, there.smoothing) == (1, 4, 0.9)
    assert (back.staleness, back.refresh_every, back.smoothing) == (0, 0, 0.0)
    assert there.codec.name == "bits" and last.codec.name == "fp32"
    assert [there.synchronous(epoch) for epoch in range(5)] == [False, False, False, True, False]
    assert all(back.synchronous(epoch) for epoch in range(5))


def test_narrow_hops_can_be_told_apart():
    policies = make_policies(make_config({"staleness": "1,narrow=0", "codec": "fp32,wide=8bit"}),
                             hops(64, 64, 10, narrow=(1, 3)))
    for direction in ("forward", "backward"):
        assert [policies(k, direction).staleness for k in (1, 2, 3)] == [0, 1, 0]
        assert [policies(k, direction).codec.name for k in (1, 2, 3)] == ["fp32", "bits", "fp32"]
    assert policies(4, "forward").staleness == 0, "what follows the last hop is like the last"


def test_hops_of_equal_rate_share_a_schedule_and_all_are_told_the_loss():
    config = make_config({"codec": "bits", "rate": "plateau:8:1:1,2=plateau:4:1:1,last=4"})
    policies = make_policies(config, hops(8, 8, 8, 8))
    schedules = [policies(k, "backward").rate for k in (1, 2, 3, 4)]
    assert schedules[0] is schedules[2] is policies.rates.common
    assert policies(2, "forward").rate is schedules[1]
    for _ in range(3):
        policies.rates.observe(1.0)
    assert [schedule.rate(9) for schedule in schedules] == [2.0, 1.0, 2.0, 4.0]
    again = make_policies(config, hops(8, 8, 8, 8))
    rates = [again(k, "forward").rate for k in (1, 2, 3, 4)]
    again.rates.restore(policies.rates.state())
    assert [schedule.rate(9) for schedule in rates] == [2.0, 1.0, 2.0, 4.0]
    assert again.rates.state() == policies.rates.state() and len(again.rates.state()) == 6


@pytest.mark.parametrize("settings, words", [
    ({"staleness": "1,4=0"}, "staleness = '1,4=0': there is no hop 4; .* hops 1 to 3"),
    ({"codec": "4bit,last=fp32", "rate": "auto,2=8"}, "codec = '4bit' fixes the rate at 4"),
    ({"codec": "subset,2=fp32", "rate": "4,2=8"}, "codec = 'fp32' has no rate"),
    ({"codec": "subset,1=fp32,wide=fp32,narrow=fp32"}, "compresses nothing: .* 3 hops only"),
])
def test_what_does_not_fit_the_model_is_refused(settings, words):
    with pytest.raises(ConfigError, match=words):
        policies = make_policies(make_config(settings), hops(64, 64, 10, narrow=(3,)))
        for hop, direction in policies.exchanges():
            policies(hop.number, direction)


def test_varco_that_would_compress_nothing_is_refused():
    config = make_config({"method": "varco"})
    with pytest.raises(ConfigError, match="compresses nothing.* 1 hop only.*codec = 'subset'"):
        make_policies(config, hops(10), n_ranks=2)
    make_policies(config, hops(10), n_ranks=1)
    make_policies(config, [], n_ranks=2)


@pytest.mark.parametrize("text, wanted", [("0", 0), ("1500000", 1_500_000), ("20MB", 20_000_000),
                                          ("1.5GB", 1_500_000_000),
                                          ("3kb", 3000), (" 2 TB ", 2 * 10 ** 12), ("7B", 7)])
def test_bytes_are_read(text, wanted):
    assert parse_bytes(text) == wanted


@pytest.mark.parametrize("text", ["", "MB", "1.2.3", "-5", "5 apples", "1e6", "5K"])
def test_other_numbers_of_bytes_are_refused(text):
    with pytest.raises(ConfigError, match="write a number of bytes"):
        parse_bytes(text)


HOPS = hops(64, 64, 10, rows=3000, without_gradients=(1,))


@pytest.mark.parametrize("settings",
                         [{"codec": "bits"}, {"codec": "subset"}, {"method": "varco"},
                          {"codec": "nodes"}, {"codec": "subset", "rate": "linear:16:2"},
                          {"codec": "bits,last=8bit,2=nodes", "rate": "auto,2=step:50@0,9@30"}],
                         ids=str)
@pytest.mark.parametrize("share", [0.3, 0.6, 0.95])
def test_a_budget_is_kept_and_nearly_spent(settings, share):
    if "2=nodes" in settings.get("codec", ""):
        share *= 0.4                     # hop 2, three fifths of all, sends a ninth at most
    full = 3000 * 4 * (64 + 2 * 64 + 2 * 10) * 200
    config = make_config(settings | {"epochs": 200, "byte_budget": str(int(share * full))})
    policies = make_policies(config, HOPS)
    spent = run_bytes(policies, policies.rates.common, 4)
    assert spent <= share * full
    allowed = 0.5 if settings.get("rate") == "linear:16:2" else share
    assert spent > 0.9 * min(share, allowed) * full
    seen = [policies.rates.common.rate(epoch) for epoch in range(200)]
    assert seen == sorted(seen, reverse=seen[0] > seen[-1]), "the rate moves one way"


def test_a_budget_that_cannot_be_kept_is_refused():
    with pytest.raises(ConfigError, match="raise the budget, or run fewer epochs"):
        make_policies(make_config({"codec": "subset", "byte_budget": "1KB"}), HOPS)


def test_a_budget_larger_than_needed_sends_everything_at_once():
    policies = make_policies(make_config({"codec": "subset", "byte_budget": "1TB", "epochs": 50}),
                             HOPS)
    assert [policies.rates.common.rate(epoch) for epoch in range(1, 50)] == [1.0] * 49


def test_a_budget_without_messages_is_no_mistake():
    make_policies(make_config({"codec": "bits", "byte_budget": "1KB"}), [])


@pytest.mark.parametrize("settings, words",
                         [({"codec": "4bit"}, "codec = 'bits'"),
                          ({"codec": "bits", "rate": "cosine:1:8"}, "linear schedule"),
                          ({"codec": "subset", "rate": "step:4@0,1@5"}, "linear schedule")])
def test_a_budget_does_not_replace_a_rate_in_silence(settings, words):
    with pytest.raises(ConfigError, match=words):
        make_config({"byte_budget": "1MB", **settings})
