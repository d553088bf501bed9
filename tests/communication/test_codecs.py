"""Codecs as the exchange uses them: sizes by formula, round trips, draws that both sides make
alike."""

import numpy as np
import pytest

from hpcgcn.backend.reference import ReferenceBackend
from hpcgcn.errors import ConfigError
from hpcgcn.exchange.codecs import (
    CODEC_NAMES,
    BitsCodec,
    Draw,
    NodesCodec,
    Rows,
    fixed_rate,
    make_codec,
)

WIDTHS = (1, 3, 41, 128, 602)
DRAW = Draw(seed=1, epoch=3, layer=2)


@pytest.fixture(params=["float32", "float64"])
def reference(request):
    return ReferenceBackend(np.dtype(request.param))


def rows_of(n, first_id=100) -> Rows:
    ids = np.arange(first_id, first_id + n, dtype=np.int64)
    return Rows(None, ids, ids)


def round_trip(backend, codec, x, rate=1.0, draw=DRAW, rows=None):
    rows = rows or rows_of(len(x))
    data = np.full(codec.nbytes(backend, rows, x.shape[1], rate, draw), 0xEE, np.uint8)
    codec.encode(backend, x, rows, rate, draw, data)
    out = np.full((len(rows), x.shape[1]), 3.0, backend.dtype)
    codec.decode(backend, data, rows, rate, draw, out)
    return out


@pytest.mark.parametrize("width", WIDTHS)
def test_sizes_by_formula(reference, width):
    item, n = reference.dtype.itemsize, 13
    rows = rows_of(n)
    for name, wanted in {"fp32": n * width * item, "fp16": n * width * 2,
                         "bf16": n * width * 2}.items():
        assert make_codec(name).nbytes(reference, rows, width, 1, DRAW) == wanted
    for bits in (1, 2, 4, 8):
        packed = n * ((width * bits + 7) // 8)
        assert make_codec("bits").nbytes(reference, rows, width, bits, DRAW) == n * 4 + packed
        assert make_codec("bits", wide_parameters=True).nbytes(reference, rows, width, bits,
                                                               DRAW) == n * 8 + packed
    assert make_codec("bits").nbytes(reference, rows, width, 16, DRAW) == n * width * 2
    assert make_codec("bits").nbytes(reference, rows, width, 32, DRAW) == n * width * item
    for ratio in (1, 2, 3.7, 128, 10_000):
        assert make_codec("subset").nbytes(reference, rows, width, ratio,
                                           DRAW) == n * max(1, int(width / ratio)) * item


def test_one_bit_at_128_columns_takes_20_bytes_a_row():
    assert make_codec("1bit").nbytes(ReferenceBackend(), rows_of(1), 128, 1, DRAW) == 20


@pytest.mark.parametrize("width", WIDTHS)
def test_exact_codecs(reference, width):
    x = np.random.default_rng(0).standard_normal((7, width)).astype(reference.dtype)
    for codec, rate in ((make_codec("fp32"), 1), (make_codec("bits"), 32),
                        (make_codec("subset"), 1), (make_codec("nodes"), 1),
                        (make_codec("subset", rescale=True), 1)):
        np.testing.assert_array_equal(round_trip(reference, codec, x, rate), x)


@pytest.mark.parametrize("name, rate, relative",
                         [("fp16", 1, 2 ** -11), ("bf16", 1, 2 ** -8), ("bits", 16, 2 ** -8)])
def test_16_bits_round_to_nearest(reference, name, rate, relative):
    x = np.random.default_rng(0).standard_normal((9, 41)).astype(reference.dtype)
    assert (np.abs(round_trip(reference, make_codec(name), x, rate) - x)
            <= relative * np.abs(x) * 1.0001).all()


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("nearest", [False, True])
@pytest.mark.parametrize("bits", [1, 2, 4, 8])
@pytest.mark.parametrize("width", [1, 3, 41, 602])
def test_quantised_rows_stay_within_a_step(reference, width, bits, nearest, wide):
    x = np.random.default_rng(bits).standard_normal((20, width)).astype(reference.dtype) * 3
    out = round_trip(reference, make_codec("bits", nearest=nearest, wide_parameters=wide), x, bits)
    span = x.max(1) - x.min(1)
    # bf16 keeps 8 bits of offset and scale: each may be off by 1/128 of itself, on top of one
    # step (or half a cell).
    slack = 1e-5 if wide else 1 / 64
    allowed = (span / 2 ** bits / 2 if nearest
               else span / (2 ** bits - 1)) + slack * (np.abs(x).max(1) + span) + 1e-6
    assert (np.abs(out - x) <= allowed[:, None]).all()


@pytest.mark.parametrize("value", [0.0, 1.0, -2.5, 1e-8, 1e-12, 3e30])
@pytest.mark.parametrize("nearest", [False, True])
def test_constant_and_tiny_rows_survive(value, nearest):
    backend = ReferenceBackend()
    x = np.full((4, 5), value, np.float32)
    for bits in (1, 2, 4, 8):
        out = round_trip(backend, make_codec("bits", nearest=nearest), x, bits)
        np.testing.assert_allclose(out, x, rtol=2 ** -7, atol=0)


def test_tiny_gradients_survive_with_their_signs():
    backend, x = (ReferenceBackend(),
                  (np.random.default_rng(0).standard_normal((400, 64)) * 1e-8).astype(np.float32))
    out = np.mean([round_trip(backend, make_codec("1bit"), x, 1, Draw(0, epoch, 1))
                   for epoch in range(300)], axis=0)
    assert np.corrcoef(out.ravel(), x.ravel())[0, 1] > 0.98
    assert 0.5e-8 < np.abs(out).mean() < 1.5e-8


UNBIASED = {"1bit": (make_codec("1bit"), 1), "2bit": (make_codec("2bit"), 2),
            "adaptive": (make_codec("adaptive", wide_parameters=True), 8),
            "4bit": (make_codec("4bit", wide_parameters=True), 4),
            "subset": (make_codec("subset", rescale=True), 4),
            "nodes": (make_codec("nodes"), 3), "nodes-100": (make_codec("nodes"), 100)}


@pytest.mark.parametrize("codec, rate", UNBIASED.values(), ids=UNBIASED)
def test_unbiased(codec, rate):
    """The mean over epochs is the row, within six standard errors of what was seen."""
    backend, n_epochs = ReferenceBackend(np.float64), 1200
    x = np.random.default_rng(5).standard_normal((6, 8))
    seen = np.array([round_trip(backend, codec, x, rate, Draw(7, epoch, 2))
                     for epoch in range(n_epochs)])
    error, deviation = seen.mean(0) - x, seen.std(0) / np.sqrt(n_epochs)
    # an element near a level may have moved in no epoch at all
    rare = 12 * (x.max() - x.min()) / n_epochs
    assert (np.abs(error) <= 6 * deviation + rare).all()


def test_subset_without_rescaling_shrinks_by_the_ratio():
    backend, x = ReferenceBackend(np.float64), np.ones((1, 64))
    mean = np.mean([round_trip(backend, make_codec("subset"), x, 4, Draw(0, epoch, 1))
                    for epoch in range(200)])
    assert mean == 0.25


def test_subset_sends_the_same_columns_for_all_rows_and_other_ones_next_epoch():
    backend, x = ReferenceBackend(), np.ones((5, 40), np.float32)
    sent = [np.flatnonzero(round_trip(backend, make_codec("subset"), x, 4, Draw(0, epoch, 1))[0])
            for epoch in range(3)]
    out = round_trip(backend, make_codec("subset"), x, 4, Draw(0, 0, 1))
    assert (out == out[0]).all() and len(sent[0]) == 10
    assert not np.array_equal(sent[0], sent[1]) and not np.array_equal(sent[1], sent[2])
    other_layer = np.flatnonzero(round_trip(backend, make_codec("subset"), x, 4, Draw(0, 0, 2))[0])
    assert not np.array_equal(sent[0], other_layer)


def test_subset_columns_are_the_same_in_both_directions():
    """A column that carries no values carries no gradients: the stream of a sender does not
    enter."""
    backend, x, codec = ReferenceBackend(), np.ones((2, 40), np.float32), make_codec("subset")
    there, back = (round_trip(backend, codec, x, 4, Draw(0, 1, 1, stream)) for stream in (0, 3))
    np.testing.assert_array_equal(there, back)


def test_a_fixed_number_of_nodes_is_drawn_alike_for_all_layers_and_both_directions():
    codec, rows = NodesCodec(), rows_of(1000)
    chosen = codec.chosen(rows, 4, Draw(0, 2, 1))
    assert len(chosen) == 250 and (np.diff(chosen) > 0).all()
    np.testing.assert_array_equal(codec.chosen(rows, 4, Draw(0, 2, 3, 5)), chosen)
    assert not np.array_equal(codec.chosen(rows, 4, Draw(0, 3, 1)), chosen)
    assert [codec.n_chosen(n, 4) for n in (0, 1, 7, 8, 1000)] == [0, 1, 1, 2, 250]


def test_receivers_have_draws_of_their_own():
    """Of a node that two receivers read, one copy says nothing of the other."""
    codec, n_both, ids = NodesCodec(), 0, np.arange(400, dtype=np.int64)
    for epoch in range(50):
        here, there = (codec.chosen(Rows(None, ids, ids, reader=reader), 4, Draw(0, epoch, 1))
                       for reader in (1, 2))
        n_both += len(np.intersect1d(here, there))
    # A sixteenth of the nodes if draws are independent (a quarter if they are one): 25 of 400, with
    # a variance of 25 (3/4)^2 or so in an epoch.
    assert abs(n_both / 50 - 25) < 6 * 0.75 * 5 / np.sqrt(50)


def test_every_node_is_drawn_equally_often():
    codec, ids, counts = NodesCodec(), np.arange(40, dtype=np.int64), np.zeros(40)
    for epoch in range(2000):
        counts[codec.chosen(Rows(None, ids, ids), 4, Draw(3, epoch, 1))] += 1
    assert np.abs(counts - 500).max() < 6 * np.sqrt(2000 * 0.25 * 0.75)


def test_nodes_that_are_not_sent_arrive_as_zeros():
    backend, x, rows = ReferenceBackend(np.float64), np.ones((500, 3)), rows_of(500)
    out = round_trip(backend, make_codec("nodes"), x, 5, DRAW, rows)
    chosen = NodesCodec().chosen(rows, 5, DRAW)
    assert set(np.flatnonzero(out[:, 0])) == set(chosen)
    np.testing.assert_allclose(out[chosen], 5.0, rtol=1e-12)


@pytest.mark.parametrize("name, rate", [("fp32", 1), ("fp16", 1), ("bits", 1), ("bits", 4),
                                        ("bits", 16), ("adaptive", 3), ("subset", 3),
                                        ("nodes", 2)])
def test_rows_named_by_index_are_coded_like_rows_in_place(reference, name, rate):
    x = np.random.default_rng(1).standard_normal((30, 17)).astype(reference.dtype)
    index, ids = np.array([4, 29, 0, 7], np.int32), np.array([1000, 5, 2 ** 40, 7], np.int64)
    codec = make_codec(name)
    named, in_place = Rows(index, ids, ids), Rows(None, ids, ids)
    data = [np.zeros(codec.nbytes(reference, in_place, 17, rate, DRAW), np.uint8) for _ in range(2)]
    codec.encode(reference, x, named, rate, DRAW, data[0])
    codec.encode(reference, np.ascontiguousarray(x[index]), in_place, rate, DRAW, data[1])
    np.testing.assert_array_equal(*data)


@pytest.mark.parametrize("name", ["fp32", "fp16", "bf16", "bits", "adaptive", "subset", "nodes",
                                  "none"])
def test_no_rows_take_no_bytes(reference, name):
    codec, rows = make_codec(name), rows_of(0)
    assert codec.nbytes(reference, rows, 5, 2, DRAW) == 0
    assert round_trip(reference, codec, np.zeros((0, 5), reference.dtype), 2).shape == (0, 5)


def test_nothing_is_sent_and_zeros_arrive(reference):
    codec, x = make_codec("none"), np.ones((4, 5), reference.dtype)
    assert codec.nbytes(reference, rows_of(4), 5, 1, DRAW) == 0
    assert (round_trip(reference, codec, x) == 0).all()


def test_the_same_draw_gives_the_same_bytes_and_another_stream_others():
    backend, codec, rows = ReferenceBackend(), make_codec("1bit"), rows_of(50)
    x = np.random.default_rng(0).standard_normal((50, 32)).astype(np.float32)

    def bytes_of(draw):
        data = np.zeros(codec.nbytes(backend, rows, 32, 1, draw), np.uint8)
        codec.encode(backend, x, rows, 1, draw, data)
        return data.tobytes()
    assert bytes_of(Draw(0, 1, 2, 3)) == bytes_of(Draw(0, 1, 2, 3))
    others = {bytes_of(d) for d in (Draw(0, 1, 2, 3), Draw(1, 1, 2, 3), Draw(0, 2, 2, 3),
                                    Draw(0, 1, 3, 3), Draw(0, 1, 2, 4))}
    assert len(others) == 5


@pytest.mark.parametrize("rate, bits", [(0.5, 1), (1, 1), (1.99, 1), (2, 2), (3, 2), (7.9, 4),
                                        (8, 8), (15, 8), (16, 16), (31, 16), (32, 32)])
def test_a_rate_buys_the_largest_width_it_pays_for(rate, bits):
    assert BitsCodec.bits(rate) == bits


@pytest.mark.parametrize("bits", [1, 4, 8])
@pytest.mark.parametrize("nearest", [False, True])
@pytest.mark.parametrize("width", [1, 41, 128])
def test_native_makes_the_same_bytes(bits, nearest, width):
    from hpcgcn.backend import native
    usable, reason = native.available()
    if not usable:
        pytest.skip(reason)
    x = np.random.default_rng(width).standard_normal((33, width)).astype(np.float32)
    codec, rows, data = make_codec("bits", nearest=nearest), rows_of(33, 2 ** 33), []
    for backend in (ReferenceBackend(), native.NativeBackend(threads=2)):
        data.append(np.zeros(codec.nbytes(backend, rows, width, bits, DRAW), np.uint8))
        codec.encode(backend, backend.from_host(x), rows, bits, DRAW, data[-1])
    np.testing.assert_array_equal(*data)


def test_names():
    assert [fixed_rate(name) for name in CODEC_NAMES] == [None, None, None, None, 8, 4, 2, 1, None,
                                                          None, None, None]
    for name in CODEC_NAMES:
        assert make_codec(name).exact == (name == "fp32")
    with pytest.raises(ConfigError, match="unknown"):
        make_codec("3bits")
