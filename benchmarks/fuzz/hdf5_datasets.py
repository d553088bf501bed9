"""Damage of HDF5 datasets: another type, shape, storage, size or place of the bytes, other values.

Every name of another file that is written into external storage or a virtual dataset is in the
case's folder.
"""

from __future__ import annotations

import os

import h5py
import numpy as np

from fuzz.change_arrays import change_array

_BIG = 10**10
_TYPES = {"compound": np.dtype([("a", "<i8"), ("b", "<f4")]),
          "enum": h5py.enum_dtype({"RED": 0, "GREEN": 1}, basetype="i4"),
          "vlen": h5py.vlen_dtype(np.int32), "text": h5py.string_dtype(),
          "fixed-text": np.dtype("S7"), "opaque": np.dtype("V6"), "boolean": np.dtype("?"),
          "array": np.dtype(("<i4", (3,))), "reference": h5py.ref_dtype,
          "region": h5py.regionref_dtype, "complex": np.dtype("c8"), "big-endian": np.dtype(">i8"),
          "int8": np.dtype("i1"), "uint64": np.dtype("u8"), "float64": np.dtype("f8"),
          "float16": np.dtype("f2"), "uint8": np.dtype("u1"), "int32": np.dtype("<i4"),
          "int64": np.dtype("<i8"), "float32": np.dtype("<f4")}


def datasets(file: h5py.File) -> list[h5py.Dataset]:
    """The datasets that are reached without links that leave the file."""
    found = []

    def visit(group, depth):
        for name in group:
            if group.get(name, getlink=True).__class__ is h5py.HardLink:
                item = group[name]
                if isinstance(item, h5py.Dataset):
                    found.append(item)
                elif isinstance(item, h5py.Group) and depth < 4:
                    visit(item, depth + 1)

    visit(file, 0)
    return found


def contents(dataset: h5py.Dataset) -> np.ndarray:
    """The array of a dataset; ValueError for one that an earlier change took out of the file.

    HDF5 crashes on some virtual datasets, and waits for ever for pipes.
    """
    if dataset.is_virtual or dataset.external or dataset.size > 1 << 20:
        raise ValueError("not read")
    return dataset[...]


def names(file: h5py.File) -> list[str]:
    return [dataset.name for dataset in datasets(file)]


def _replaced(file: h5py.File, name: str, make) -> str:
    """Put another dataset in the place of one; attributes are kept."""
    kept = dict(file[name].attrs) if name in file else {}
    del file[name]
    made = make()
    if made is not None:
        for key, value in kept.items():
            made.attrs[key] = value
    return name


def _values(rng, file):
    dataset = file[rng.choice(names(file))]
    array, _ = change_array(rng, contents(dataset))
    if array.shape == dataset.shape and array.dtype == dataset.dtype:
        dataset[...] = array
        return dataset.name
    return _replaced(file, dataset.name, lambda: file.create_dataset(dataset.name, data=array))


def _type(rng, file):
    name, (kind, dtype) = rng.choice(names(file)), rng.choice(list(_TYPES.items()))
    shape = file[name].shape
    return f"{_replaced(file, name, lambda: file.create_dataset(name, shape, dtype))} as {kind}"


def _numeric_type(rng, file):
    name, dtype = (rng.choice(names(file)),
                   rng.choice(("i1", "i2", ">i4", "i8", "u8", "f2", "f8", ">f4", "u1", "c8", "?")))
    with np.errstate(all="ignore"):
        array = contents(file[name]).astype(dtype)
    return f"{_replaced(file, name, lambda: file.create_dataset(name, data=array))} as {dtype}"


def _shape(rng, file):
    name = rng.choice(names(file))
    array = contents(file[name])
    wanted = rng.choice(
        ((), (1,), (0,), array.shape + (1,), (1,) + array.shape, array.shape[::-1],
         (0,) + array.shape[1:], (3,) * 9, (1,) * 32,
         array.shape[:-1] + (array.shape[-1] + 1,) if array.ndim else (2,))
    )
    _replaced(file, name, lambda: file.create_dataset(name, wanted, array.dtype))
    return f"{name} of {wanted}"


def _null(rng, file):
    name = rng.choice(names(file))
    dtype = file[name].dtype
    return _replaced(file, name, lambda: file.create_dataset(name, data=h5py.Empty(dtype)))


def _declared_huge(rng, file):
    """A size of 10^10 and hardly a byte in the file; all other datasets may say the same."""
    name = rng.choice(names(file))
    old = file[name]
    shape = rng.choice(
        ((_BIG,), (_BIG,) + old.shape[1:], (old.shape or (1,))[:1] + (_BIG,), (2**40,),
         (_BIG, _BIG))
    )
    options = rng.choice(
        ({}, {"chunks": True},
         {"maxshape": (None,) * len(shape), "chunks": (1024,) + (1,) * (len(shape) - 1)})
    )
    _replaced(file, name, lambda: file.create_dataset(name, shape, old.dtype, **options))
    if rng.random() < 0.5 and "n_nodes" in file.attrs:
        file.attrs["n_nodes"] = np.int64(shape[0] - (1 if name.endswith("indptr") else 0))
    return f"{name} of {shape}"


def _storage(rng, file):
    name = rng.choice(names(file))
    array = contents(file[name])
    options = rng.choice(
        ({"chunks": True}, {"compression": "gzip"}, {"compression": "lzf"},
         {"shuffle": True, "chunks": True}, {"fletcher32": True}, {"scaleoffset": 2},
         {"maxshape": (None,) * array.ndim, "chunks": True},
         {"compression": "gzip", "data": np.zeros((1 << 22,), array.dtype)})
    )
    options = {"data": array, **options}
    return (f"{_replaced(file, name, lambda: file.create_dataset(name, **options))} "
            f"{sorted(options)}")


def _compact(rng, file):
    name = rng.choice(names(file))
    array = contents(file[name])

    def make():
        settings = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        settings.set_layout(h5py.h5d.COMPACT)
        space = h5py.h5s.create_simple(array.shape)
        made = h5py.Dataset(
            h5py.h5d.create(file.id, name.encode(), h5py.h5t.py_create(array.dtype), space,
                            settings)
        )
        made[...] = array
        return made

    return _replaced(file, name, make)


def _external(rng, file):
    """The bytes are in another file, in none, or come from a pipe that nobody writes into."""
    name, folder = rng.choice(names(file)), os.path.dirname(file.filename)
    old = file[name]
    target = rng.choice(("bytes.bin", "missing.bin", "pipe"))
    path = target if rng.random() < 0.5 else os.path.join(folder, target)
    if target == "bytes.bin":
        with open(os.path.join(folder, target), "wb") as other:
            other.write(contents(old).tobytes())
    if target == "pipe" and not os.path.exists(os.path.join(folder, target)):
        os.mkfifo(os.path.join(folder, target))
    size = rng.choice((h5py.h5f.UNLIMITED, max(old.nbytes, 1)))
    shape, dtype = old.shape, old.dtype
    place = [(path, 0, size)]
    _replaced(file, name, lambda: file.create_dataset(name, shape, dtype, external=place))
    return f"{name} {target}"


def _virtual(rng, file):
    """The values come from another dataset, of this file or of one that is there or not."""
    name = rng.choice(names(file))
    old = file[name]
    source = rng.choice(
        (".", os.path.basename(file.filename), "missing.h5",
         os.path.join(os.path.dirname(file.filename), "other.h5"))
    )
    layout = h5py.VirtualLayout(old.shape, old.dtype)
    layout[...] = h5py.VirtualSource(source,
                                     rng.choice((name, rng.choice(names(file)), "/nothing")),
                                     old.shape, old.dtype)
    _replaced(file, name, lambda: file.create_virtual_dataset(name, layout))
    return f"{name} from {os.path.basename(source)}"


DATASET_CHANGES = (_values, _values, _values, _values, _type, _type, _numeric_type, _shape, _shape,
                   _null, _declared_huge, _storage, _compact, _external, _virtual)
