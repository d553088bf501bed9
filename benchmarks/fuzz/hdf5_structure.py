"""Damage of the structure of HDF5 files: links, groups, names, further contents and attributes.

Every name of another file that is written into a link is in the case's folder.
"""

from __future__ import annotations

import os
import zlib

import h5py
import numpy as np

from fuzz.hdf5_datasets import names

_TEXTS = ["", "x", "\x1b[31mred\x1b[0m", "\x1b]0;title\x07", "a\nb", "\u202e", "y" * 50_000, "null",
          "[]", "3", "true", '"s"', "{}", "{", '{"a": NaN}', "[" * 5000, '{"n_parts": -1}',
          '{"config": 3}', '{"config": "hidden = ["}', '{"config": "x = 1"}', "[{}]",
          '[{"train": 1}]', "[3]", "1" * 5000, '{"a": ' + "9" * 5000 + "}", "hpcgcn-graph",
          "hpcgcn-partition", "hpcgcn-checkpoint", "hpcgcn-predictions", "hpcgcn-", '{"what": []}']
_NUMBERS = [0, 1, -1, 2, 3, 7, 30, 2**31 - 1, 2**31, 2**40, 2**62, -(2**63), 0.5, -0.5,
            float("nan"), float("inf"), 1e300]


def _attributed(rng, file):
    """(object, name) of some attribute; mostly of the file itself."""
    holder = file if rng.random() < 0.75 else file[rng.choice(names(file))]
    return holder, rng.choice(list(holder.attrs) or ["crc32"])


def _link(rng, file):
    name, folder = rng.choice(names(file)), os.path.dirname(file.filename)
    target = rng.choice(names(file))
    own = os.path.basename(file.filename)
    link = rng.choice(
        (h5py.SoftLink(target), h5py.SoftLink(name), h5py.SoftLink("/nothing"), h5py.SoftLink("."),
         h5py.ExternalLink(own, target), h5py.ExternalLink(os.path.join(folder, own), name),
         h5py.ExternalLink("missing.h5", target), h5py.ExternalLink("other.h5", target))
    )
    del file[name]
    file[name] = link
    return f"{name} {type(link).__name__}"


def _hard_link(rng, file):
    name, target = rng.choice(names(file)), rng.choice(names(file))
    if name != target:
        kept = file[target]
        del file[name]
        file[name] = kept
    return f"{name} is {target}"


def _group_instead(rng, file):
    name = rng.choice(names(file))
    del file[name]
    group = file.create_group(name)
    if rng.random() < 0.5:
        group["loop"] = file["/"]
    if rng.random() < 0.5:
        group.create_dataset("indptr", data=np.zeros(3, np.int64))
        group.attrs["n_columns"] = rng.choice(_NUMBERS)
    return name


def _type_instead(rng, file):
    name = rng.choice(names(file))
    del file[name]
    file[name] = np.dtype("f8")
    return name


def _removed(rng, file):
    name = rng.choice(names(file))
    del file[name]
    return name


def _renamed(rng, file):
    name = rng.choice(names(file))
    file.move(
        name,
        rng.choice(
            (name + "x", "/deep/er/" + name.strip("/"), "/\x1b[31m", "/" + "n" * 3000, "/a\nb",
             "/features/indptr")
        ),
    )
    return name


def _added(rng, file):
    name = rng.choice(
        ("extra", "node_names", "original_ids", "offsets", "best_parameters", "features/values",
         "layout/x", "new", "loop", "\x1b[2J", "checksum")
    )
    if name == "loop":
        file["loop"] = file["/"]
    elif name in file:
        return "nothing"
    else:
        data = rng.choice(
            (np.frombuffer(b'{"class_names": 3}', np.uint8), np.frombuffer(b"[" * 5000, np.uint8),
             np.frombuffer(b'{"id_column": [1], "class_names": [1, null, {}]}', np.uint8),
             np.arange(30), np.array([b"a"] * 30), np.zeros(30, np.float32), "text", np.float64(3),
             np.zeros((0, 3)))
        )
        file.create_dataset(name, data=data)
    return name


def _json_contents(rng, file):
    """The dataset of further facts holds other JSON than an object of ours, or none."""
    text = rng.choice(
        _TEXTS
        + ['{"class_names": ["a"]}', '{"feature_names": 7}', '{"class_names": {"a": []}}',
           '{"class_names": ["\\u001b[2J", "b", "c"], "id_column": "\\n"}']
    ).encode()
    if "extra" in file:
        del file["extra"]
    file.create_dataset("extra", data=np.frombuffer(text or b" ", np.uint8))
    file["extra"].attrs["crc32"] = np.uint32(zlib.crc32(text or b" "))
    return "extra"


# -- attributes ------------------------------------------------------------------------------------


def _attribute_value(rng, file):
    holder, name = _attributed(rng, file)
    old = holder.attrs.get(name)
    if isinstance(old, str):
        holder.attrs[name] = rng.choice(_TEXTS)
    else:
        number = rng.choice(_NUMBERS)
        kind = getattr(old, "dtype", np.dtype("f8"))
        with np.errstate(all="ignore"):
            holder.attrs[name] = (
                np.array(number).astype(kind)[()] if kind.kind in "iufb" else number
            )
    return name


def _attribute_type(rng, file):
    holder, name = _attributed(rng, file)
    values = (np.array(rng.choice(_NUMBERS[:12]), np.float64), rng.choice(_TEXTS),
              rng.choice(_TEXTS), b"bytes", np.bytes_(b"\xff\xfe"), np.arange(3), np.zeros((2, 2)),
              np.zeros(0), h5py.Empty("f4"), h5py.Empty(h5py.string_dtype()),
              np.array([b"a", b"b"]), np.zeros((), [("a", "i4")]), np.void(b"abc"), np.array(True),
              np.uint64(2**64 - 1), np.complex64(1j), file.ref)
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


STRUCTURE_CHANGES = (_link, _link, _hard_link, _group_instead, _type_instead, _removed, _renamed,
                     _added, _json_contents, _attribute_value, _attribute_value, _attribute_value,
                     _attribute_type, _attribute_type, _attribute_removed, _attribute_added)
