"""Damage of a case's files, by what their names say they are, and of the folder around them."""

from __future__ import annotations

import glob
import gzip
import os
import random
import shutil
import zlib

from fuzz.change_arrays import change_npy, change_npz
from fuzz.change_bytes import change_bytes
from fuzz.change_hdf5 import change_hdf5
from fuzz.change_pickles import change_pickle
from fuzz.change_text import change_text
from fuzz.change_weights import change_safetensors, change_torch

# The ending of a name -> a function (rng, data) -> (data, words).
_BY_ENDING = {".npy": change_npy, ".npz": change_npz, ".safetensors": change_safetensors,
              ".pt": change_torch}
_TEXTS = (".csv", ".toml", ".json", ".mtx", ".index", ".txt", ".svm")
_BY_ENDING |= dict.fromkeys(_TEXTS, change_text)
_BY_ENDING |= dict.fromkeys((".x", ".y", ".tx", ".ty", ".allx", ".ally", ".graph"), change_pickle)


def change_case(rng: random.Random, folder: str, patterns: tuple[str, ...]) -> str:
    """Damage one of the files that the patterns name, sometimes two, or its place in the folder."""
    done, damaged = [], set()
    for _ in range(rng.choice((1, 1, 1, 1, 2))):
        found = {path for pattern in patterns
                 for path in glob.glob(os.path.join(folder, pattern), recursive=True)
                 if os.path.isfile(path)}
        if not found:
            break
        path = rng.choice(sorted(found))
        if rng.random() < 0.04:
            what = change_place(rng, path, folder)
        else:
            # HDF5 may crash on what is damaged already, and a hostile pickle may take for ever to
            # load: that would be no fault of ours.
            what = change_file(rng, path, by_bytes=path in damaged)
        damaged.add(path)
        done.append(f"{os.path.relpath(path, folder)}: {what}")
    return "; ".join(done)


def flip_one_bit(rng: random.Random, folder: str, patterns: tuple[str, ...]) -> str:
    """One bit of one of the files, any of them as likely as any other."""
    paths = sorted(path for pattern in patterns
                   for path in glob.glob(os.path.join(folder, pattern)))
    bit = rng.randrange(8 * sum(map(os.path.getsize, paths)))
    for path in paths:
        if bit < 8 * os.path.getsize(path):
            break
        bit -= 8 * os.path.getsize(path)
    with open(path, "r+b") as file:
        file.seek(bit // 8)
        byte = file.read(1)[0]
        file.seek(bit // 8)
        file.write(bytes([byte ^ 1 << bit % 8]))
    return f"{os.path.relpath(path, folder)}: bit {bit}"


def change_file(rng: random.Random, path: str, by_bytes: bool = False) -> str:
    """Damage one file, by what it is or by its bytes."""
    if path.endswith(".h5") and not by_bytes and rng.random() < 0.75:
        return change_hdf5(rng, path)
    with open(path, "rb") as file:
        data = file.read()
    change = next((function for ending, function in _BY_ENDING.items() if path.endswith(ending)),
                  change_bytes)
    change = change_packed if path.endswith(".gz") else change
    change = change_bytes if by_bytes else change
    try:
        data, what = (change if rng.random() < 0.8 else change_bytes)(rng, data)
    except Exception:  # noqa: BLE001 - damaged twice: what knows the format can read it no more
        data, what = change_bytes(rng, data)
    with open(path, "wb") as file:
        file.write(data)
    return what


def change_packed(rng: random.Random, data: bytes) -> tuple[bytes, str]:
    """Gzip: the text within, the bytes, or a small file that unpacks to a large one."""
    kind = rng.random()
    if kind < 0.2:
        return change_bytes(rng, data)
    if kind < 0.23:
        return bomb(rng.choice((b"0 1\n", b"0,1\n", b"\n", b" ", b"1", b"0,0\n1,2\n")),
                    rng.choice((32, 400))), "bomb"
    text, what = change_text(rng, gzip.decompress(data))
    return gzip.compress(text, 1, mtime=0), what


_MEMBERS: dict[bytes, bytes] = {}


def bomb(text: bytes, members: int) -> bytes:
    """Gzip data of some KiB for each of its members of 2 MiB, all of them the same text."""
    if text not in _MEMBERS:
        packer = zlib.compressobj(9, wbits=31)
        _MEMBERS[text] = packer.compress(text * ((2 << 20) // len(text))) + packer.flush()
    return _MEMBERS[text] * members


def change_place(rng: random.Random, path: str, folder: str) -> str:
    """The file is missing, empty, a folder, a pipe, a link or another file. Links stay within the
    case's folder."""
    kind = rng.choice(("missing", "empty", "folder", "pipe", "dangling link", "own link", "another",
                       "link"))
    siblings = [name for name in sorted(os.listdir(os.path.dirname(path)))
                if os.path.isfile(os.path.join(os.path.dirname(path), name))]
    other = rng.choice(siblings)
    content = os.path.join(os.path.dirname(path), other)
    if kind == "another":
        if content != path:
            shutil.copyfile(content, path)
        return f"{other} instead"
    os.unlink(path)
    if kind == "empty":
        open(path, "wb").close()
    elif kind == "folder":
        os.mkdir(path)
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "dangling link":
        os.symlink("nothing", path)
    elif kind == "own link":
        os.symlink(os.path.basename(path), path)
    elif kind == "link":
        os.symlink(other, path)
    return kind
