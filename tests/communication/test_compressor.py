"""A compressor alone: what one end codes, the other decodes, without MPI between them."""

import numpy as np
import pytest

from hpcgcn.backend.reference import ReferenceBackend
from hpcgcn.exchange.codecs import Rows, make_codec
from hpcgcn.exchange.compressor import Compressor
from hpcgcn.exchange.schedules import Plateau, Schedule, Steps
from hpcgcn.exchange.types import Policy, Route

WIDTH, N_ROWS = 11, 9
BACKEND = ReferenceBackend(np.float32)
CODECS = {
    "fp32": (make_codec("fp32"), Schedule(1)), "fp16": (make_codec("fp16"), Schedule(1)),
    "bf16": (make_codec("bf16"), Schedule(1)),
    "1bit": (make_codec("1bit", nearest=True), Schedule(1)),
    "4bit": (make_codec("4bit", wide_parameters=True), Schedule(4)),
    "bits-rising": (make_codec("bits"), Steps([(0, 2), (2, 8), (4, 32)])),
    "adaptive": (make_codec("adaptive", nearest=True), Schedule(6)),
    "subset": (make_codec("subset"), Schedule(3)), "nodes": (make_codec("nodes"), Schedule(2)),
}
LOSSY = [name for name in CODECS if name not in ("fp32", "nodes")]


def nothing() -> Rows:
    return Rows(None, np.zeros(0, np.int64), np.zeros(0, np.int64))


def ends(codec: str, index=None, columns: slice | None = None, width: int = WIDTH, **settings):
    """(sender, receiver) of one route: rows 2:11 of an array, or those of an index."""
    ids = 40 + (np.arange(N_ROWS) if index is None else index).astype(np.int64)
    rows, policy = Rows(index, ids, ids), Policy(*CODECS[codec], **settings)
    out_width = None if columns is None else columns.stop - columns.start
    source = slice(2, 2 + N_ROWS) if index is None else None
    there = Route(1, rows, source, nothing(), None, columns, out_width, None, out_stream=3)
    here = Route(0, nothing(), slice(0, 0), Rows(None, ids, ids), slice(0, len(ids)),
                 in_width=out_width, in_stream=3)
    return (Compressor(BACKEND, policy, [there], width, seed=5, layer=2),
            Compressor(BACKEND, policy, [here], width, seed=5, layer=2))


def send(sender, receiver, x, epoch: int, target):
    """One message; returns its bytes."""
    for end in (sender, receiver):
        end.begin(epoch)
    (out_bytes, _), (_, in_bytes) = sender.sizes(0), receiver.sizes(0)
    assert out_bytes == in_bytes
    data = np.full(out_bytes + 8, 77, np.uint8)
    sender.encode(0, x, data[:out_bytes])
    assert (data[out_bytes:] == 77).all(), "written past the end"
    receiver.decode(0, data[:out_bytes], target)
    return out_bytes


def rows_of(epoch: int, n: int = 2 + N_ROWS, width: int = WIDTH) -> np.ndarray:
    return np.random.default_rng(epoch).standard_normal((n, width)).astype(np.float32)


@pytest.mark.parametrize("codec", CODECS)
def test_the_receiver_decodes_what_the_codec_alone_says(codec):
    sender, receiver = ends(codec)
    for epoch in range(6):
        x, target = rows_of(epoch), np.full((N_ROWS, WIDTH), 9.0, np.float32)
        send(sender, receiver, x, epoch, target)
        codec_, draw, rows = sender.codec, sender._draw(3), receiver.routes[0].incoming
        data = np.zeros(codec_.nbytes(BACKEND, rows, WIDTH, sender.rate, draw), np.uint8)
        expected = np.zeros_like(target)
        codec_.encode(BACKEND, np.ascontiguousarray(x[2:]), rows, sender.rate, draw, data)
        codec_.decode(BACKEND, data, rows, sender.rate, draw, expected)
        np.testing.assert_array_equal(target, expected)
        if codec == "fp32":
            np.testing.assert_array_equal(target, x[2:])


def test_an_index_chooses_rows():
    index = np.array([7, 0, 3], np.int32)
    sender, receiver = ends("fp32", index=index)
    target = np.zeros((3, WIDTH), np.float32)
    send(sender, receiver, rows_of(1), 0, target)
    np.testing.assert_array_equal(target, rows_of(1)[index])


@pytest.mark.parametrize("settings", [{}, {"error_feedback": True}, {"residual": True}])
@pytest.mark.parametrize("codec", ["fp32", "fp16", "4bit", "subset"])
def test_some_columns_of_longer_rows_are_a_message(codec, settings):
    """As if the columns had been an array of their own."""
    columns = slice(4, 9)
    sender, receiver = ends(codec, columns=columns, **settings)
    alone = ends(codec, width=5, **settings)
    target, expected = (np.zeros((N_ROWS, 5), np.float32) for _ in range(2))
    for epoch in range(3):
        x = rows_of(epoch)
        send(sender, receiver, x, epoch, target)
        send(*alone, np.ascontiguousarray(x[:, columns]), epoch, expected)
        np.testing.assert_array_equal(target, expected)


@pytest.mark.parametrize("codec", LOSSY)
def test_error_feedback_sends_later_what_was_lost(codec):
    """All that was decoded is all that was given, but for what the sender still owes."""
    sender, receiver = ends(codec, error_feedback=True)
    given, got = np.zeros((2, N_ROWS, WIDTH))
    for epoch in range(10):
        x, target = rows_of(epoch), np.zeros((N_ROWS, WIDTH), np.float32)
        send(sender, receiver, x, epoch, target)
        given, got = given + x[2:], got + target
        np.testing.assert_allclose(given - got, sender.coding.memory[0], atol=1e-4)
    assert sender.remembers and list(sender.state_arrays()) == ["memory_1"]
    assert not receiver.coding.memory[0].size


@pytest.mark.parametrize("codec", LOSSY)
def test_residual_coding_keeps_both_ends_alike_and_comes_near(codec):
    sender, receiver = ends(codec, residual=True)
    x, target = rows_of(0), np.zeros((N_ROWS, WIDTH), np.float32)
    errors = []
    for epoch in range(30):
        send(sender, receiver, x, epoch, target)
        np.testing.assert_array_equal(sender.coding.memory[0], target)
        errors.append(np.abs(target - x[2:]).max())
    assert errors[-1] < 0.3 * np.abs(x).max() and errors[-1] <= errors[0]


def test_without_a_memory_there_is_no_state():
    sender, _ = ends("4bit")
    assert not sender.remembers and sender.state_arrays() == {}


def test_a_late_message_is_decoded_at_the_rate_that_it_was_sent_at():
    """A plateau moves the rate between the epoch of a message and the epoch that takes it in."""
    sender, receiver = ends("bits-rising")
    for end in (sender, receiver):
        end.policy.rate = Plateau(2, 32, 1)
        end.begin(0)
    data, target = np.zeros(sender.sizes(0)[0], np.uint8), np.zeros((N_ROWS, WIDTH), np.float32)
    sender.encode(0, rows_of(0), data)
    before = target.copy()
    receiver.decode(0, data, before)
    for loss in (1.0, 1.0, 1.0, 1.0):
        receiver.policy.rate.observe(loss)
    assert receiver.policy.rate.rate(1) > 2
    receiver.decode(0, data, target)
    np.testing.assert_array_equal(target, before)


def test_streams_draw_their_own_rounding():
    """Two ranks that send gradients for one node must not make the same error."""
    messages = []
    for stream in (1, 2, 1):
        ids = np.arange(N_ROWS, dtype=np.int64)
        route = Route(1, Rows(None, ids, ids), slice(0, N_ROWS), nothing(), None, out_stream=stream)
        policy = Policy(make_codec("2bit"), Schedule(2))
        compressor = Compressor(BACKEND, policy, [route], WIDTH, seed=1, layer=1)
        compressor.begin(3)
        messages.append(np.zeros(compressor.sizes(0)[0], np.uint8))
        compressor.encode(0, rows_of(0, N_ROWS), messages[-1])
    assert (messages[0] == messages[2]).all() and (messages[0] != messages[1]).any()


@pytest.mark.parametrize("codec, parameters", [("fp32", 0), ("1bit", 4 * N_ROWS),
                                               ("4bit", 8 * N_ROWS), ("subset", 0)])
def test_overheads_are_counted(codec, parameters):
    sender, _ = ends(codec)
    sender.begin(0)
    assert sender.overheads(0) == (parameters, 4 * N_ROWS * WIDTH)
