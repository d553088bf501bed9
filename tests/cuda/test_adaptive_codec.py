"""Codec `adaptive` on the device: the bytes of the reference, with the kernels of uniform bits."""

import numpy as np
import pytest

from hpcgcn.backend.reference import ReferenceBackend
from hpcgcn.exchange.codecs import Draw, Rows, make_codec


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("width", [1, 5, 41, 64])
def test_the_same_bytes_and_the_same_rows_again(backend, width, wide):
    rng, rate, draw = np.random.default_rng(width), 3, Draw(1, 2, 3)
    x = (rng.standard_normal((37, width)) * np.exp(rng.standard_normal((37, 1)))).astype(np.float32)
    index, ids = rng.permutation(37)[:21].astype(np.int32), rng.permutation(10 ** 6)[:21]
    weights, found = rng.random(21), []
    for device in (ReferenceBackend(), backend):
        codec = make_codec("adaptive", wide_parameters=wide)
        rows = Rows(device.from_host(index), device.from_host(ids), ids, weights=weights)
        message = device.message(codec.nbytes(device, rows, width, rate, draw))
        codec.encode(device, device.from_host(x), rows, rate, draw, message.array)
        out = device.empty((21, width))
        codec.decode(device, message.array, rows, rate, draw, out)
        found.append((np.array(device.to_host(message.array)), np.array(device.to_host(out))))
    for there, here in zip(*found):
        np.testing.assert_array_equal(there, here)
