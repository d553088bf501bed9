"""Damage of HDF5 files that HDF5 itself takes for sound: other types, shapes, storage, links,
attributes and values.

Every name of another file that is written into a link, external storage or a virtual dataset is in
the case's folder.
"""

from __future__ import annotations

import contextlib
import random
import zlib

import h5py
import numpy as np

from fuzz.hdf5_datasets import DATASET_CHANGES, contents, datasets
from fuzz.hdf5_structure import STRUCTURE_CHANGES

FITTED = "checksums fitted"
_CHANGES = (*DATASET_CHANGES, *STRUCTURE_CHANGES)


def change_hdf5(rng: random.Random, path: str) -> str:
    """Change a sound file in place, in one to three ways; sometimes with checksums that fit the new
    contents."""
    done = []
    with h5py.File(path, "r+") as file:
        for _ in range(rng.choice((1, 1, 1, 2, 3))):
            change = rng.choice(_CHANGES)
            # Not every change goes with every object; what HDF5 refuses to write is passed over.
            with contextlib.suppress(TypeError, ValueError, OSError, RuntimeError, KeyError,
                                     OverflowError, NotImplementedError, AttributeError, IndexError,
                                     MemoryError):
                done.append(f"{change.__name__.strip('_')} {change(rng, file)}")
    if rng.random() < 0.65:
        done.append(fit_checksums(path))
        if rng.random() < 0.3:
            done.append(fit_trailer(path))
    return ", ".join(done)


def fit_checksums(path: str) -> str:
    """Write the checksums that the contents have now, so that readers look further."""
    from hpcgcn.files.datasets import content_checksum

    with contextlib.suppress(Exception), h5py.File(path, "r+") as file:
        for dataset in datasets(file):
            with contextlib.suppress(Exception):  # of another type, or without bytes of its own
                if "crc32" in dataset.attrs:
                    held = np.ascontiguousarray(contents(dataset)).tobytes()
                    dataset.attrs["crc32"] = np.uint32(zlib.crc32(held))
        with contextlib.suppress(Exception):
            if "checksum" in file.attrs:
                file.attrs["checksum"] = content_checksum(file)
    return FITTED


def fit_trailer(path: str) -> str:
    """Write the checksum of the metadata as well: the file then looks as if we had written it."""
    from hpcgcn.files.trailer import append_trailer, data_regions

    with contextlib.suppress(Exception):  # of a group within itself
        with h5py.File(path, "r+") as file:
            regions = data_regions(file)
        with open(path, "r+b") as disk:
            append_trailer(disk, regions)
    return "trailer fitted"
