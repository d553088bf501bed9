"""An epoch as a CUDA graph: the same losses bit for bit, one launch; and what the stand-in refuses
while a stream records, as a device does."""

import gc

import numpy as np
import pytest
from small_graphs import make_trainer, small_graph
from test_models import CASES

from hpcgcn.backend.cuda import CudaBackend
from hpcgcn.backend.cuda_graphs import Recording
from hpcgcn.config.groups import MachineSettings
from hpcgcn.errors import BackendError, ConfigError

EPOCHS = 5
BATCH_NORM = "batch norm"                    # its sums go through the host


def run(graph, settings, graphs: bool, evaluate_after=(2, 4)):
    """Losses and scores, and how many kernels the host launched in each epoch."""
    trainer = make_trainer(graph, backend="cuda", cuda_graphs=graphs, **{
        "hidden": 12, "layers": 2, "epochs": EPOCHS, "seed": 1, "dropout": 0.4, **settings})
    numbers, counts, launches, launch = [], [], [], trainer.backend.launch
    trainer.backend.launch = lambda *rest, **more: (launches.append(rest[0]),
                                                    launch(*rest, **more))
    for epoch in range(EPOCHS):
        launches.clear()
        numbers.append(trainer.run_epoch()[0])
        counts.append(len(launches))
        if epoch in evaluate_after:
            numbers.append(trainer.evaluate()["val"])
    trainer.close()
    return numbers, counts


@pytest.mark.parametrize("case", [case for case in CASES if case != BATCH_NORM])
def test_a_replayed_epoch_is_the_epoch(stand_in, case):
    """Evaluation comes in between, in the same memory: after it a recording may begin anew."""
    settings, kind = CASES[case]
    graph = small_graph(**kind)
    plain, as_ever = run(graph, settings, False)
    replayed, launches = run(graph, settings, True)
    assert replayed == plain                                     # every bit
    optimiser = 3 if settings.get("clip") else 1
    assert min(as_ever) >= 10 and launches[-1] == optimiser, launches


def test_a_number_that_was_not_in_memory_shows(stand_in, monkeypatch):
    """Keys as arguments, as they are without graphs, would be those of one epoch for ever."""
    graph = small_graph()
    plain, _ = run(graph, {"model": "sage"}, False)
    monkeypatch.setattr(Recording, "varies", lambda self, key: False)
    assert run(graph, {"model": "sage"}, True)[0] != plain


@pytest.mark.parametrize("schedule", ["stream0", "stream1"])
def test_replayed_epochs_in_other_schedules(stand_in, monkeypatch, schedule):
    graph = small_graph()
    plain, _ = run(graph, {"model": "gat", "heads": 3}, False)
    monkeypatch.setenv("HPCGCN_CUDA_STAND_IN_SCHEDULE", schedule)
    assert run(graph, {"model": "gat", "heads": 3}, True)[0] == plain


def test_a_replayed_epoch_on_ptx(ptx_machine):
    graph = small_graph()
    ptx_machine(80)
    plain, _ = run(graph, {"model": "sage"}, False)
    assert run(graph, {"model": "sage"}, True)[0] == plain


class Litter:
    """What waits for a device when it is collected, as messages and uploads do."""

    def __init__(self, event):
        self.event, self.itself = event, self

    def __del__(self):
        self.event.synchronize()


def test_garbage_of_earlier_runs_is_not_collected_while_an_epoch_is_recorded(stand_in,
                                                                             monkeypatch):
    launch = CudaBackend.launch

    def littering(self, *rest, **more):
        Litter(self.cupy.cuda.Event())
        launch(self, *rest, **more)
    monkeypatch.setattr(CudaBackend, "launch", littering)
    before = gc.get_threshold()
    gc.set_threshold(5)                                          # collect all the time
    try:
        run(small_graph(), {"model": "sage"}, True)
    finally:
        gc.set_threshold(*before)


def test_an_epoch_that_asks_the_device_cannot_be_recorded(stand_in, monkeypatch):
    """BatchNorm's sums go through the host. The settings refuse it, too: not here."""
    settings, kind = CASES[BATCH_NORM]
    graph = small_graph(**kind)
    with pytest.raises(ConfigError, match="leave cuda_graphs out"):
        run(graph, settings, True)
    monkeypatch.setattr(MachineSettings, "check", lambda *_: None)
    with pytest.raises(BackendError, match="cannot be recorded.*leave --cuda-graphs out"):
        run(graph, settings, True)


# -- the stand-in's manners --------------------------------------------------------------------

@pytest.fixture
def recorded(stand_in):
    """(stand-in, a stream that records, another stream, a function to queue work)"""
    first, second = (stand_in.cuda.Stream(non_blocking=True) for _ in range(2))
    first.use()
    done = []

    def work(name, stream):
        stand_in.streams.enqueue(lambda: done.append(name), stream)
    before = stand_in.cuda.Event()
    before.record(second)
    array = stand_in.zeros((4,), np.float32)
    first.begin_capture(stand_in.cuda.runtime.streamCaptureModeThreadLocal)
    yield stand_in, first, second, work, done, before, array
    if first.is_capturing():
        with pytest.raises(stand_in.capture.CaptureError):
            first.end_capture()


def test_work_is_recorded_and_not_run(recorded):
    stand_in, first, second, work, done, *_ = recorded
    work("a", first)
    work("of another stream", second)
    event, back = stand_in.cuda.Event(), stand_in.cuda.Event()
    event.record(first)
    second.wait_event(event)                 # it takes part from here
    work("b", second)
    back.record(second)
    first.wait_event(back)
    work("c", first)
    graph = first.end_capture()
    first.synchronize()
    assert done == [] and not second.is_capturing()
    second.synchronize()
    assert done == ["of another stream"]
    graph.launch(first)
    graph.launch(first)
    assert len(done) == 1
    first.synchronize()
    assert done[1:] == ["a", "b", "c"] * 2


REFUSED = {
    "synchronize": lambda c, s, other, event, array: s.synchronize(),
    "another stream's": lambda c, s, other, event, array: other.synchronize(),
    "an event": lambda c, s, other, event, array: event.synchronize(),
    "a question": lambda c, s, other, event, array: event.done,
    "an event of before": lambda c, s, other, event, array: s.wait_event(event),
    "memory": lambda c, s, other, event, array: c.empty((4,), np.float32),
    "a result": lambda c, s, other, event, array: array.get(),
    "pageable memory": lambda c, s, other, event, array: array.set(np.zeros(4, np.float32)),
    "a second recording": lambda c, s, other, event, array: other.begin_capture(1),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_a_recording_does_not_allow(recorded, what):
    stand_in, first, second, _, _, event, array = recorded
    with pytest.raises(stand_in.capture.CaptureError):
        REFUSED[what](stand_in, first, second, event, array)
    with pytest.raises(stand_in.capture.CaptureError, match="broken"):
        first.end_capture()


def test_a_stream_that_joined_must_be_waited_for(recorded):
    stand_in, first, second, work, *_ = recorded
    event = stand_in.cuda.Event()
    event.record(first)
    second.wait_event(event)
    work("never waited for", second)
    with pytest.raises(stand_in.capture.CaptureError, match="not waited for"):
        first.end_capture()


def test_an_event_of_a_graph_is_none_of_a_stream(recorded):
    stand_in, first, second, *_ = recorded
    event = stand_in.cuda.Event()
    event.record(first)
    first.end_capture()
    for ask in (lambda: second.wait_event(event), event.synchronize, lambda: event.done):
        with pytest.raises(stand_in.capture.CaptureError):
            ask()


def test_a_graph_keeps_no_memory(backend):
    """What a launch refers to must be there when it is replayed."""
    x, out = backend.from_host(np.ones(8, np.float32)), backend.zeros((8,))
    backend.axpby(2.0, x, 0.0, None, out)                        # compiled before
    backend.compute.begin_capture(1)
    backend.axpby(2.0, x, 0.0, None, out)
    graph = backend.compute.end_capture()
    graph.launch(backend.compute)
    assert (backend.to_host(out) == 2).all()
    del x
    graph.launch(backend.compute)
    with pytest.raises(Exception, match="has been freed"):
        backend.synchronize()
