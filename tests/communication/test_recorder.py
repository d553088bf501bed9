"""Recording activities: in order, in a window of epochs, in bounded memory; or nothing at all."""

import pytest

from hpcgcn.config import make_config
from hpcgcn.errors import ConfigError
from hpcgcn.trace.recorder import NullTrace, Trace, nothing
from hpcgcn.trace.window import make_trace, read_window


class Clock:
    """Every reading is a second later."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        self.now += 1.0
        return self.now


class Messages:
    """What a trace reads of a channel."""

    keys, n_started = [("", 1, 7)], 5

    def sent_bytes(self):
        return [100]


def recorded(trace) -> list[str]:
    """Kinds in the order in which they were recorded."""
    return [trace.activities[number].kind for _, number in trace.record()["switches"]]


def test_an_interrupted_activity_goes_on():
    trace = Trace(1, 9, 9, Clock())
    halo, wait = trace.activity("halo", 2, "forward"), trace.activity("wait", 2, "forward")
    with trace.phase("epoch", 1):
        trace.switch(halo)
        before = trace.switch(wait)
        trace.switch(before)
    assert recorded(trace) == ["other", "halo", "wait", "halo", "other"]


def test_making_a_block_and_using_it_are_told_apart():
    trace, used = Trace(1, 9, 9, Clock()), []
    made, handed = trace.activity("interior", 1), trace.activity("block", 1)
    with trace.phase("epoch", 1):
        for block in trace.each(iter("ab"), made, handed):
            used.append((block, trace.activities[trace.current].kind))
    assert used == [("a", "block"), ("b", "block")]
    assert recorded(trace)[1:-1] == ["interior", "block", "interior", "block", "interior"]


def test_only_epochs_of_the_window_are_recorded_with_what_follows_them():
    trace = Trace(3, 4, 2, Clock())
    for epoch in range(1, 7):
        for phase in ("epoch", "evaluation"):
            with trace.phase(phase, epoch):
                trace.sent(trace.exchange(1, "forward"), Messages(), trace.clock())
                trace.arrival(Messages(), 0)()
    record = trace.record()
    assert [phase[:2] for phase in record["phases"]] == [
        ["epoch", 3], ["evaluation", 3], ["epoch", 4], ["evaluation", 4]]
    assert len(record["sends"]) == len(record["arrivals"]) == 4


def test_the_newest_epochs_are_kept():
    trace = Trace(1, 1 << 62, 2, Clock())
    for epoch in range(1, 50):
        with trace.phase("epoch", epoch):
            trace.switch(trace.activity("loss"))
        with trace.phase("checkpoint", epoch):
            pass
    assert {epoch for _, epoch, _, _ in trace.record()["phases"]} == {48, 49}


def test_epochs_that_the_ring_buffer_has_forgotten_are_left_out_whole():
    trace = Trace(1, 100, 100, Clock(), most=40)
    for epoch in range(1, 11):
        with trace.phase("epoch", epoch):
            for _ in range(10):
                trace.switch(trace.activity("loss"))
    record = trace.record()
    kept = [epoch for _, epoch, _, _ in record["phases"]]
    assert kept == [8, 9, 10] and len(record["switches"]) == 3 * 12


def test_without_a_trace_nothing_is_wrapped():
    trace, blocks = NullTrace(), [1, 2]
    assert trace.each(blocks, 3, 4) is blocks and trace.switch(5) == 0
    assert trace.arrival(Messages(), 0) is nothing
    assert not vars(trace)


@pytest.mark.parametrize("text, window", [
    ("none", None), ("7", (7, 7, 1)), ("5-8", (5, 8, 4)), ("last:3", (1, 1 << 62, 3))])
def test_a_window_is_an_epoch_some_epochs_or_the_newest(text, window):
    assert read_window(text) == window
    assert isinstance(make_trace(text), Trace) == (window is not None)


@pytest.mark.parametrize("text", ["0", "8-5", "last:0", "all", "5-", "1-5000", "-3", ""])
def test_other_windows_are_refused(text):
    with pytest.raises(ConfigError, match="trace = "):
        make_config({"trace": text})
