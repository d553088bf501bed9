"""Rows of text tables: whole numbers are read a chunk at a time by array operations, all else row
by row."""

from __future__ import annotations

import csv
import itertools
import re
from collections.abc import Iterator

import numpy as np

from hpcgcn.formats.files import Lines, bad, decoded

SEPARATORS = (",", "\t", ";", " ")
_NAMES = {",": "commas", "\t": "tabs", ";": "semicolons", " ": "spaces"}
_COMMENTS = ("#", "%")
_MOST_DIGITS = 18
_WHOLE = re.compile(r"[+-]?[0-9]{1,18}")


def separator_of(path, number: int, line: str) -> str:
    """What divides the columns of a line: a comma, tab or semicolon, or else spaces."""
    bare = _without_quoted(line)
    marks = [mark for mark in SEPARATORS[:3] if mark in bare]
    if len(marks) > 1:
        raise bad(path, number, f"both {_NAMES[marks[0]]} and {_NAMES[marks[1]]} in {line[:60]!r}",
                  "one separator")
    return marks[0] if marks else " "


def _without_quoted(line: str) -> str:
    return "".join(line.split('"')[::2])


def cells(path, number: int, line: str, separator: str) -> list[str]:
    """The columns of one line."""
    if separator == " ":
        return line.split()
    if '"' not in line:
        return [cell.strip() for cell in line.split(separator)]
    try:
        return [cell.strip() for cell in next(csv.reader([line], delimiter=separator, strict=True))]
    except csv.Error as error:
        raise bad(path, number, f"{error} in {line[:60]!r}", "quotes that are closed") from None


def is_whole(cell: str) -> bool:
    """Is this a whole number that fits in 64 bits?"""
    return _WHOLE.fullmatch(cell) is not None


def is_number(cell: str) -> bool:
    """Is this a number of any kind?"""
    try:
        float(cell)
    except ValueError:
        return False
    return True


class Table:
    """A text table: its separator, its header if it has one, and its rows."""

    def __init__(self, path, chunk_bytes: int | None = None):
        self.path = path
        self.lines = Lines(path, chunk_bytes) if chunk_bytes else Lines(path)
        self.first_line, first, second = self._first_rows()
        self.separator = separator_of(path, self.first_line, first)
        self.first = cells(path, self.first_line, first, self.separator)
        self.second = cells(path, self.first_line + 1, second, self.separator) if second else None
        self.n_columns = len(self.first)

    def _first_rows(self) -> tuple[int, str, str | None]:
        """Number and text of the first line that is neither blank nor a comment, and the next such
        line."""
        first_rows = []
        for first, chunk in Lines(self.path).chunks():
            for number, line in _filled(first, chunk):
                text = decoded(self.path, number, line).strip("\r ")
                if text and not text.startswith(_COMMENTS):
                    first_rows.append((number, text))
                    if len(first_rows) == 2:
                        return first_rows[0][0], first_rows[0][1], first_rows[1][1]
        if not first_rows:
            raise bad(self.path, None, "there is nothing but comments", "rows of data")
        return first_rows[0][0], first_rows[0][1], None

    def chunks(self, skip_first: bool) -> Iterator[tuple[int, bytes]]:
        """(number of the first line, whole lines) without comments before the data and, if asked,
        without the header."""
        begin = self.first_line + (1 if skip_first else 0)
        for first, chunk in self.lines.chunks():
            if first < begin:
                lines = chunk.split(b"\n", begin - first)
                chunk, first = (lines[-1] if len(lines) > begin - first else b""), begin
            if chunk.strip():
                yield first, chunk

    def rows(self, first: int, chunk: bytes) -> Iterator[tuple[int, list[str]]]:
        """(line number, columns) of the rows of a chunk; a row of another length is refused."""
        for number, line in _filled(first, chunk):
            text = decoded(self.path, number, line).strip("\r\n")
            if not text.strip() or text.startswith(_COMMENTS):
                continue
            row = cells(self.path, number, text, self.separator)
            if len(row) != self.n_columns:
                raise bad(self.path, number, f"{len(row)} columns in {text[:60]!r}",
                          f"{self.n_columns} columns separated by {_NAMES[self.separator]}, as "
                          f"in line {self.first_line}")
            yield number, row


def _filled(first: int, chunk: bytes) -> Iterator[tuple[int, bytes]]:
    """(number, text) of the lines that are not blank; a file of millions of blank ones is read at
    once."""
    if not chunk.isspace():
        yield from ((number, line) for number, line in enumerate(chunk.split(b"\n"), first)
                    if line and not line.isspace())


def parse_integers(chunk: bytes, separator: str, n_columns: int) -> np.ndarray | None:
    """(n_rows, n_columns) int64 of lines of plain digits with single separators; None if any line
    is something else."""
    if b"\r" in chunk:
        chunk = chunk.replace(b"\r\n", b"\n")
    text = np.frombuffer(chunk, np.uint8)
    is_digit = (text - np.uint8(48)) < 10
    if not len(text) or not is_digit[0] or is_digit[-1]:
        return None
    bounds = np.flatnonzero(is_digit[1:] != is_digit[:-1]) + 1
    stops, starts = bounds[0::2], np.concatenate([[0], bounds[1::2]])
    if (len(starts) % n_columns or (starts[1:] - stops[:-1] != 1).any()
            or stops[-1] != len(text) - 1):
        return None
    marks = text[stops].reshape(-1, n_columns)
    if (marks[:, -1] != 10).any() or (marks[:, :-1] != ord(separator)).any():
        return None
    lengths = stops - starts
    if lengths.max() > _MOST_DIGITS:
        return None
    return _numbers(text, stops, lengths).reshape(-1, n_columns)


def _numbers(text: np.ndarray, stops: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """The numbers whose last digits are before `ends`: one pass per decimal place, over the numbers
    that are that long."""
    values = (text[stops - 1] - np.uint8(48)).astype(np.int64)
    shortest, longest = int(lengths.min()), int(lengths.max())
    for place in range(1, longest):
        if place < shortest:
            values += (text[stops - 1 - place] - np.uint8(48)).astype(np.int64) * 10 ** place
        else:
            at = np.flatnonzero(lengths > place)
            digits = (text[stops[at] - 1 - place] - np.uint8(48)).astype(np.int64)
            values[at] += digits * 10 ** place
    return values


def read_numbers(path, dtype, missing: bool = False) -> np.ndarray:
    """A whole table of numbers without a header, (n_rows, n_columns) of dtype; `missing` allows
    NaN.

    Whole numbers must be in the range of the type.
    """
    table = Table(path)
    blocks = [_number_block(table, first, chunk, np.dtype(dtype), missing)
              for first, chunk in table.chunks(skip_first=False)]
    return np.concatenate(blocks)


def row_line(path, row: int) -> int:
    """The line of a row of a table without a header; for messages."""
    table = Table(path)
    numbers = (number for first, chunk in table.chunks(skip_first=False)
               for number, _ in table.rows(first, chunk))
    return next(itertools.islice(numbers, row, None))


def _number_block(table: Table, first: int, chunk: bytes, dtype: np.dtype,
                  missing: bool) -> np.ndarray:
    whole = parse_integers(chunk, table.separator, table.n_columns)
    if whole is not None:
        return whole.astype(dtype)
    if dtype.kind == "f":
        try:
            delimiter = None if table.separator == " " else table.separator
            numbers = np.loadtxt(chunk.decode("ascii").splitlines(), dtype, delimiter=delimiter,
                                 ndmin=2, comments=None)
            if numbers.shape[1] == table.n_columns and (missing or np.isfinite(numbers).all()):
                return numbers
        except (ValueError, UnicodeDecodeError):
            pass
    return np.array([_number_row(table, number, row, dtype, missing)
                     for number, row in table.rows(first, chunk)], dtype)


def _number_row(table: Table, number: int, row: list[str], dtype: np.dtype, missing: bool) -> list:
    """One row, read slowly, to say what is wrong with it."""
    kind = int if dtype.kind in "iu" else float
    for cell in row:
        try:
            value = kind(cell)
        except ValueError:
            raise bad(table.path, number, f"{cell[:40]!r}",
                      "whole numbers" if kind is int else "numbers") from None
        if kind is float and not missing and not abs(value) <= float(np.finfo(dtype).max):
            raise bad(table.path, number, f"the value {cell!r}", "finite numbers")
        if kind is int and not np.iinfo(dtype).min <= value <= np.iinfo(dtype).max:
            raise bad(table.path, number, f"the number {cell[:40]} is out of range",
                      "smaller numbers")
    return [kind(cell) for cell in row]
