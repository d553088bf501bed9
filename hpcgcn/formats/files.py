"""Reading files of others: text in whole lines at a time, gzip or not, and errors that name the
file and the line."""

from __future__ import annotations

import gzip
import json
import os
import re
import zlib
from collections import Counter
from collections.abc import Iterator

from hpcgcn.errors import FileError

# the arrays that a chunk is parsed by stay in the cache: twice as fast as with 16 MiB
CHUNK_BYTES = 1 << 20
MOST_LINE_BYTES = 64 << 20
# What unpacks to more than this, and to so many times its packed size, is taken for an attack.
LARGE_BYTES = 128 << 20
# Of text less is large: lines of names are read one by one, and only a text that repeats itself
# shrinks like that.
LARGE_TEXT_BYTES = 4 << 20
MOST_RATIO = 100
_GZIP_MAGIC = b"\x1f\x8b"
# all but tab and carriage return
CONTROL = re.compile("[\x00-\x08\x0a-\x0c\x0e-\x1f\x7f-\x9f\u2028\u2029]")
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def unpacks_to_too_much(unpacked: int, packed: int, large: int | None = None) -> bool:
    """Is this a file that is small on the disk and huge in memory?

    Tables and arrays of data are not.
    """
    return (unpacked > (LARGE_BYTES if large is None else large)
            and unpacked > MOST_RATIO * packed)


def bad(path, line: int | None, problem: str, expected: str) -> FileError:
    """The one message about an error in a file of others, to be raised."""
    where = f"{path}, line {line}" if line else f"{path}"
    return FileError(f"{where}: {problem}; expected {expected}")


def inside(folder: str | os.PathLike, *names: str) -> str:
    """The path of a file in a folder; a name or a link that leads out of the folder is refused."""
    path = os.path.join(os.fspath(folder), *names)
    root = os.path.realpath(folder)
    if any(os.path.isabs(name)
           for name in names) or os.path.commonpath([root, os.path.realpath(path)]) != root:
        raise FileError(f"{path} leads out of the folder {folder}; expected a file within it: "
                        "copy the file there")
    return path


def present(folder: str | os.PathLike, *names: str) -> str | None:
    """The path of the first of some files that is in a folder, or None."""
    for name in names:
        if os.path.exists(os.path.join(os.fspath(folder), name)):
            return inside(folder, name)
    return None


def check_readable(path: str | os.PathLike):
    """Say what is wrong with a file before it is opened."""
    if not os.path.exists(path):
        raise FileError(f"{path}: no such file")
    if os.path.isdir(path):
        raise FileError(f"{path} is a folder; expected a file")
    if not os.path.isfile(path):
        raise FileError(f"{path} is no regular file; expected one: pipes and devices are not read")
    if not os.access(path, os.R_OK):
        raise FileError(f"{path}: no permission to read it")
    if os.path.getsize(path) == 0:
        raise FileError(f"{path} is empty (0 bytes); expected data: the download or copy may "
                        "have failed")


class Lines:
    """The lines of a text file in chunks of bounded size; `done` says how much of the file has been
    read."""

    def __init__(self, path: str | os.PathLike, chunk_bytes: int = CHUNK_BYTES):
        check_readable(path)
        self.path, self.chunk_bytes, self.size = path, chunk_bytes, os.path.getsize(path)
        self.line = 1                    # number of the next line
        self.done = 0                    # bytes of the file, as it is on the disk

    def chunks(self) -> Iterator[tuple[int, bytes]]:
        """(number of the first line, whole lines that end with a line feed), in order; from the
        beginning each time."""
        self.line, self.done = 1, 0
        with open(self.path, "rb") as raw:
            stream = gzip.GzipFile(fileobj=raw) if raw.peek(2)[:2] == _GZIP_MAGIC else raw
            rest, any_text, unpacked = b"", False, 0
            while data := self._read(stream):
                self.done = raw.tell()
                unpacked += len(data)
                if unpacks_to_too_much(unpacked, self.done, LARGE_TEXT_BYTES):
                    raise bad(self.path, self.line,
                              f"{self.done:,} bytes unpack to {unpacked:,}",
                              f"at most {MOST_RATIO} times as much: if it is meant, unpack it "
                              "with gunzip first")
                end = data.rfind(b"\n") + 1
                if not end:
                    rest += data
                    if len(rest) > MOST_LINE_BYTES:
                        raise bad(self.path, self.line,
                                  f"a line of more than {len(rest) >> 20} MiB", "lines of text")
                    continue
                chunk, rest = (rest + data[:end] if rest else data[:end]), data[end:]
                any_text = any_text or not chunk.isspace()
                yield self._counted(chunk)
            if rest:
                any_text = any_text or not rest.isspace()
                yield self._counted(rest + b"\n")
            if not any_text:
                raise bad(self.path, None, "there is nothing but blank lines", "data")

    def _read(self, stream) -> bytes:
        try:
            return stream.read(self.chunk_bytes)
        except EOFError:
            raise bad(self.path, self.line, "the gzip data is cut short",
                      "a whole file: copy or download it again") from None
        except (gzip.BadGzipFile, zlib.error) as error:
            raise bad(self.path, self.line, f"the gzip data is damaged ({error})",
                      "a sound file: copy or download it again") from None
        except OSError as error:
            raise FileError(f"cannot read {self.path}: {error.strerror or error}") from None

    def _counted(self, chunk: bytes) -> tuple[int, bytes]:
        if b"\0" in chunk:
            line = self.line + chunk[:chunk.index(b"\0")].count(b"\n")
            raise bad(self.path, line, "a zero byte", "plain text (this is a binary file)")
        # The count is quick, the search is not.
        lone = (re.search(rb"\r(?!\n)", chunk) if chunk.count(b"\r") != chunk.count(b"\r\n")
                else None)
        if lone:
            raise bad(self.path, self.line + chunk[:lone.start()].count(b"\n"),
                      "a carriage return without a line feed", "lines that end with a line feed")
        first = self.line
        self.line += chunk.count(b"\n")
        return first, chunk.removeprefix(_BYTE_ORDER_MARK) if first == 1 else chunk


def text_lines(path: str | os.PathLike) -> Iterator[tuple[int, str]]:
    """(number, text) of every line that is not blank."""
    for first, chunk in Lines(path).chunks():
        for number, line in enumerate(chunk.split(b"\n")[:-1], first):
            if line.strip():
                yield number, decoded(path, number, line.rstrip(b"\r"))


def decoded(path, number: int, line: bytes) -> str:
    """A line as text, without characters that would steer a terminal or end lines where it is
    shown."""
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise bad(path, number, f"byte {error.start + 1} is not UTF-8 text",
                  "a text file in UTF-8") from None
    wrong = CONTROL.search(text)
    if wrong:
        raise bad(path, number, f"the control character {wrong.group()!r}", "printable text")
    return text


def read_json(path: str | os.PathLike):
    """The value of a JSON file."""
    check_readable(path)
    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file, object_pairs_hook=lambda pairs: _object(path, pairs))
    except json.JSONDecodeError as error:
        raise bad(path, error.lineno, f"not valid JSON ({error.msg})", "JSON") from None
    except (ValueError, RecursionError) as error:
        # not UTF-8, a number of thousands of digits, brackets too deep
        raise bad(path, None, f"not valid JSON ({type(error).__name__})", "JSON in UTF-8") from None


def _object(path, pairs: list) -> dict:
    """A JSON object; a key that is there twice is refused, where JSON would keep the last."""
    members = dict(pairs)
    if len(members) != len(pairs):
        counts = Counter(key for key, _ in pairs)
        twice = next(key for key, _ in pairs if counts[key] > 1)
        raise bad(path, key_line(path, twice, 2), f"{twice[:40]!r} is there twice",
                  "every key once")
    return members


def key_line(path: str | os.PathLike, key: str, number: int = 1) -> int | None:
    """The line of a key in a JSON file, the second time if `number` is 2; for messages."""
    with open(path, encoding="utf-8") as file:
        text = file.read()
    places = [match.start() for match in re.finditer(re.escape(json.dumps(key)) + r"\s*:", text)]
    return text.count("\n", 0, places[number - 1]) + 1 if len(places) >= number else None
