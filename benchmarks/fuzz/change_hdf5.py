"""Damage of HDF5 files that HDF5 itself takes for sound: other types, shapes, storage, links, attributes and values.

Every name of another file that is written into a link, external storage or a virtual dataset is in the case's folder.
"""

from __future__ import annotations

import contextlib
import os
import random
import zlib

import h5py
import numpy as np

from fuzz.change_arrays import change_array

FITTED = "checksums fitted"
_BIG = 10 ** 10
_TYPES = {
    "compound": np.dtype([("a", "<i8"), ("b", "<f4")]), "enum": h5py.enum_dtype({"RED": 0, "GREEN": 1}, basetype="i4"),
    "vlen": h5py.vlen_dtype(np.int32), "text": h5py.string_dtype(), "fixed-text": np.dtype("S7"), "opaque": np.dtype("V6"),
    "boolean": np.dtype("?"), "array": np.dtype(("<i4", (3,))), "reference": h5py.ref_dtype, "region": h5py.regionref_dtype,
    "complex": np.dtype("c8"), "big-endian": np.dtype(">i8"), "int8": np.dtype("i1"), "uint64": np.dtype("u8"), "float64": np.dtype("f8"),
    "float16": np.dtype("f2"), "uint8": np.dtype("u1"), "int32": np.dtype("<i4"), "int64": np.dtype("<i8"), "float32": np.dtype("<f4"),
}
_TEXTS = ["", "x", "\x1b[31mred\x1b[0m", "\x1b]0;title\x07", "a\nb", "\u202e", "y" * 50_000, "null", "[]", "3", "true", "\"s\"", "{}", "{",
          "{\"a\": NaN}", "[" * 5000, "{\"n_parts\": -1}", "{\"config\": 3}", "{\"config\": \"hidden = [\"}", "{\"config\": \"x = 1\"}",
          "[{}]", "[{\"train\": 1}]", "[3]", "1" * 5000, "{\"a\": " + "9" * 5000 + "}", "hpcgcn-graph", "hpcgcn-partition",
          "hpcgcn-checkpoint", "hpcgcn-predictions", "hpcgcn-", "{\"what\": []}"]
_NUMBERS = [0, 1, -1, 2, 3, 7, 30, 2 ** 31 - 1, 2 ** 31, 2 ** 40, 2 ** 62, -2 ** 63, 0.5, -0.5, float("nan"), float("inf"), 1e300]


def change_hdf5(rng: random.Random, path: str) -> str:
    """Change a sound file in place, in one to three ways; sometimes with checksums that fit the new contents."""
    done = []
    with h5py.File(path, "r+") as file:
        for _ in range(rng.choice((1, 1, 1, 2, 3))):
            change = rng.choice(_CHANGES)
            # Not every change goes with every object; what HDF5 refuses to write is passed over.
            with contextlib.suppress(TypeError, ValueError, OSError, RuntimeError, KeyError, OverflowError, NotImplementedError,
                                     AttributeError, IndexError, MemoryError):
                done.append(f"{change.__name__.strip('_')} {change(rng, file)}")
    if rng.random() < 0.65:
        done.append(fit_checksums(path))
        if rng.random() < 0.3:
            done.append(fit_trailer(path))
    return ", ".join(done)


def fit_checksums(path: str) -> str:
    """Write the checksums that the contents have now, so that readers look further."""
    from hpcgcn.graph.datasets import content_checksum
    with contextlib.suppress(Exception), h5py.File(path, "r+") as file:
        for dataset in _datasets(file):
            with contextlib.suppress(Exception):     # of another type, or without bytes of its own
                if "crc32" in dataset.attrs and dataset.size < 1 << 20 and not dataset.is_virtual and not dataset.external:
                    dataset.attrs["crc32"] = np.uint32(zlib.crc32(np.ascontiguousarray(dataset[...]).tobytes()))
        with contextlib.suppress(Exception):
            if "checksum" in file.attrs:
                file.attrs["checksum"] = content_checksum(file)
    return FITTED


def fit_trailer(path: str) -> str:
    """Write the checksum of the metadata as well: the file then looks as if we had written it."""
    from hpcgcn.graph.trailer import append_trailer, data_regions
    with contextlib.suppress(Exception):             # of a group within itself
        with h5py.File(path, "r+") as file:
            regions = data_regions(file)
        with open(path, "r+b") as disk:
            append_trailer(disk, regions)
    return "trailer fitted"


# -- choosing -------------------------------------------------------------------------------------------------------------

def _datasets(file: h5py.File) -> list[h5py.Dataset]:
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


def _names(file: h5py.File) -> list[str]:
    return [dataset.name for dataset in _datasets(file)]


def _attributed(rng, file):
    """(object, name) of some attribute; mostly of the file itself."""
    holder = file if rng.random() < 0.75 else file[rng.choice(_names(file))]
    return holder, rng.choice(list(holder.attrs) or ["crc32"])


# -- datasets -------------------------------------------------------------------------------------------------------------

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
    dataset = file[rng.choice(_names(file))]
    array, _ = change_array(rng, dataset[...])
    if array.shape == dataset.shape and array.dtype == dataset.dtype:
        dataset[...] = array
        return dataset.name
    return _replaced(file, dataset.name, lambda: file.create_dataset(dataset.name, data=array))


def _type(rng, file):
    name, (kind, dtype) = rng.choice(_names(file)), rng.choice(list(_TYPES.items()))
    shape = file[name].shape
    return f"{_replaced(file, name, lambda: file.create_dataset(name, shape, dtype))} as {kind}"


def _numeric_type(rng, file):
    name, dtype = rng.choice(_names(file)), rng.choice(("i1", "i2", ">i4", "i8", "u8", "f2", "f8", ">f4", "u1", "c8", "?"))
    with np.errstate(all="ignore"):
        array = file[name][...].astype(dtype)
    return f"{_replaced(file, name, lambda: file.create_dataset(name, data=array))} as {dtype}"


def _shape(rng, file):
    name = rng.choice(_names(file))
    array = file[name][...]
    wanted = rng.choice(((), (1,), (0,), array.shape + (1,), (1,) + array.shape, array.shape[::-1], (0,) + array.shape[1:],
                         (3,) * 9, (1,) * 32, array.shape[:-1] + (array.shape[-1] + 1,) if array.ndim else (2,)))
    return f"{_replaced(file, name, lambda: file.create_dataset(name, wanted, array.dtype))} of {wanted}"


def _null(rng, file):
    name = rng.choice(_names(file))
    dtype = file[name].dtype
    return _replaced(file, name, lambda: file.create_dataset(name, data=h5py.Empty(dtype)))


def _declared_huge(rng, file):
    """A size of 10^10 and hardly a byte in the file; all other datasets may say the same."""
    name = rng.choice(_names(file))
    old = file[name]
    shape = rng.choice(((_BIG,), (_BIG,) + old.shape[1:], (old.shape or (1,))[:1] + (_BIG,), (2 ** 40,), (_BIG, _BIG)))
    options = rng.choice(({}, {"chunks": True}, {"maxshape": (None,) * len(shape), "chunks": (1024,) + (1,) * (len(shape) - 1)}))
    _replaced(file, name, lambda: file.create_dataset(name, shape, old.dtype, **options))
    if rng.random() < 0.5 and "n_nodes" in file.attrs:
        file.attrs["n_nodes"] = np.int64(shape[0] - (1 if name.endswith("indptr") else 0))
    return f"{name} of {shape}"


def _storage(rng, file):
    name = rng.choice(_names(file))
    array = file[name][...]
    options = rng.choice(({"chunks": True}, {"compression": "gzip"}, {"compression": "lzf"}, {"shuffle": True, "chunks": True},
                          {"fletcher32": True}, {"scaleoffset": 2}, {"maxshape": (None,) * array.ndim, "chunks": True},
                          {"compression": "gzip", "data": np.zeros((1 << 22,), array.dtype)}))
    options = {"data": array, **options}
    return f"{_replaced(file, name, lambda: file.create_dataset(name, **options))} {sorted(options)}"


def _compact(rng, file):
    name = rng.choice(_names(file))
    array = file[name][...]

    def make():
        settings = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        settings.set_layout(h5py.h5d.COMPACT)
        space = h5py.h5s.create_simple(array.shape)
        made = h5py.Dataset(h5py.h5d.create(file.id, name.encode(), h5py.h5t.py_create(array.dtype), space, settings))
        made[...] = array
        return made
    return _replaced(file, name, make)


def _external(rng, file):
    """The bytes are in another file, in none, or come from a pipe that nobody writes into."""
    name, folder = rng.choice(_names(file)), os.path.dirname(file.filename)
    old = file[name]
    target = rng.choice(("bytes.bin", "missing.bin", "pipe"))
    path = target if rng.random() < 0.5 else os.path.join(folder, target)
    if target == "bytes.bin":
        with open(os.path.join(folder, target), "wb") as other:
            other.write(old[...].tobytes())
    if target == "pipe" and not os.path.exists(os.path.join(folder, target)):
        os.mkfifo(os.path.join(folder, target))
    size = rng.choice((h5py.h5f.UNLIMITED, max(old.nbytes, 1)))
    shape, dtype = old.shape, old.dtype
    return f"{_replaced(file, name, lambda: file.create_dataset(name, shape, dtype, external=[(path, 0, size)]))} {target}"


def _virtual(rng, file):
    """The values come from another dataset, of this file or of one that is there or not."""
    name = rng.choice(_names(file))
    old = file[name]
    source = rng.choice((".", os.path.basename(file.filename), "missing.h5", os.path.join(os.path.dirname(file.filename), "other.h5")))
    layout = h5py.VirtualLayout(old.shape, old.dtype)
    layout[...] = h5py.VirtualSource(source, rng.choice((name, rng.choice(_names(file)), "/nothing")), old.shape, old.dtype)
    return f"{_replaced(file, name, lambda: file.create_virtual_dataset(name, layout))} from {os.path.basename(source)}"


# -- links and groups -------------------------------------------------------------------------------------------------------

def _link(rng, file):
    name, folder = rng.choice(_names(file)), os.path.dirname(file.filename)
    target = rng.choice(_names(file))
    own = os.path.basename(file.filename)
    link = rng.choice((h5py.SoftLink(target), h5py.SoftLink(name), h5py.SoftLink("/nothing"), h5py.SoftLink("."),
                       h5py.ExternalLink(own, target), h5py.ExternalLink(os.path.join(folder, own), name),
                       h5py.ExternalLink("missing.h5", target), h5py.ExternalLink("other.h5", target)))
    del file[name]
    file[name] = link
    return f"{name} {type(link).__name__}"


def _hard_link(rng, file):
    name, target = rng.choice(_names(file)), rng.choice(_names(file))
    if name != target:
        kept = file[target]
        del file[name]
        file[name] = kept
    return f"{name} is {target}"


def _group_instead(rng, file):
    name = rng.choice(_names(file))
    del file[name]
    group = file.create_group(name)
    if rng.random() < 0.5:
        group["loop"] = file["/"]
    if rng.random() < 0.5:
        group.create_dataset("indptr", data=np.zeros(3, np.int64))
        group.attrs["n_columns"] = rng.choice(_NUMBERS)
    return name


def _type_instead(rng, file):
    name = rng.choice(_names(file))
    del file[name]
    file[name] = np.dtype("f8")
    return name


def _removed(rng, file):
    name = rng.choice(_names(file))
    del file[name]
    return name


def _renamed(rng, file):
    name = rng.choice(_names(file))
    file.move(name, rng.choice((name + "x", "/deep/er/" + name.strip("/"), "/\x1b[31m", "/" + "n" * 3000, "/a\nb", "/features/indptr")))
    return name


def _added(rng, file):
    name = rng.choice(("extra", "node_names", "original_ids", "offsets", "best_parameters", "features/values", "layout/x", "new", "loop",
                       "\x1b[2J", "checksum"))
    if name == "loop":
        file["loop"] = file["/"]
    elif name in file:
        return "nothing"
    else:
        data = rng.choice((np.frombuffer(b"{\"class_names\": 3}", np.uint8), np.frombuffer(b"[" * 5000, np.uint8),
                           np.frombuffer(b"{\"id_column\": [1], \"class_names\": [1, null, {}]}", np.uint8), np.arange(30),
                           np.array([b"a"] * 30), np.zeros(30, np.float32), "text", np.float64(3), np.zeros((0, 3))))
        file.create_dataset(name, data=data)
    return name


def _json_contents(rng, file):
    """The dataset of further facts holds other JSON than an object of ours, or none."""
    text = rng.choice(_TEXTS + ["{\"class_names\": [\"a\"]}", "{\"feature_names\": 7}", "{\"class_names\": {\"a\": []}}",
                                "{\"class_names\": [\"\\u001b[2J\", \"b\", \"c\"], \"id_column\": \"\\n\"}"]).encode()
    if "extra" in file:
        del file["extra"]
    file.create_dataset("extra", data=np.frombuffer(text or b" ", np.uint8))
    file["extra"].attrs["crc32"] = np.uint32(zlib.crc32(text or b" "))
    return "extra"


# -- attributes -----------------------------------------------------------------------------------------------------------

def _attribute_value(rng, file):
    holder, name = _attributed(rng, file)
    old = holder.attrs.get(name)
    if isinstance(old, str):
        holder.attrs[name] = rng.choice(_TEXTS)
    else:
        number = rng.choice(_NUMBERS)
        kind = getattr(old, "dtype", np.dtype("f8"))
        with np.errstate(all="ignore"):
            holder.attrs[name] = np.array(number).astype(kind)[()] if kind.kind in "iufb" else number
    return name


def _attribute_type(rng, file):
    holder, name = _attributed(rng, file)
    values = (np.array(rng.choice(_NUMBERS[:12]), np.float64), rng.choice(_TEXTS), rng.choice(_TEXTS), b"bytes", np.bytes_(b"\xff\xfe"),
              np.arange(3), np.zeros((2, 2)), np.zeros(0), h5py.Empty("f4"), h5py.Empty(h5py.string_dtype()), np.array([b"a", b"b"]),
              np.zeros((), [("a", "i4")]), np.void(b"abc"), np.array(True), np.uint64(2 ** 64 - 1), np.complex64(1j), file.ref)
    value = rng.choice(values)
    if isinstance(value, h5py.Reference):
        holder.attrs.create(name, value, dtype=h5py.ref_dtype)
    else:
        holder.attrs[name] = value
    return name


def _attribute_removed(rng, file):
    holder, name = _attributed(rng, file)
    del holder.attrs[name]
    return name


def _attribute_added(rng, file):
    holder, _ = _attributed(rng, file)
    name = rng.choice(("note", "\x1b[31m", "a\nb", "n_parts", "multilabel", "uuid"))
    holder.attrs[name] = rng.choice(_TEXTS)
    return name


_CHANGES = (_values, _values, _values, _values, _type, _type, _numeric_type, _shape, _shape, _null, _declared_huge, _storage, _compact,
            _external, _virtual, _link, _link, _hard_link, _group_instead, _type_instead, _removed, _renamed, _added, _json_contents,
            _attribute_value, _attribute_value, _attribute_value, _attribute_type, _attribute_type, _attribute_removed,
            _attribute_added)
