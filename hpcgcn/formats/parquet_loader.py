"""Writes the columns of a Parquet file as text, in a process of its own.

    python hpcgcn/formats/parquet_loader.py FILE TABLE.csv
"""

from __future__ import annotations

import os
import resource
import sys

MOST_BYTES = 16 << 30      # of memory that it may take
_LARGE_VALUES, _MOST_PER_BYTE = 10_000_000, 50
_MOST_LIST = 100_000


def main(path: str, output: str) -> int:
    """0 if the table was written; 1 and the reason as one line of standard output if not."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _, most = resource.getrlimit(resource.RLIMIT_AS)
    limit = MOST_BYTES if most == resource.RLIM_INFINITY else min(MOST_BYTES, most)
    resource.setrlimit(resource.RLIMIT_AS, (limit, most))
    import pyarrow
    import pyarrow.csv
    import pyarrow.parquet
    try:
        file = pyarrow.parquet.ParquetFile(path)
        n_values = file.metadata.num_rows * file.metadata.num_columns
        if n_values > max(_LARGE_VALUES, _MOST_PER_BYTE * os.path.getsize(path)):
            print(f"claims {n_values:,} values in {os.path.getsize(path):,} bytes; expected at "
                  f"most {_MOST_PER_BYTE} per byte")
            return 1
        table = _flat(pyarrow, file.read())
        pyarrow.csv.write_csv(table, output)
    except Unfit as error:
        print(f"{error}")
        return 1
    except Exception as error:  # noqa: BLE001 - pyarrow raises many kinds for damaged files
        words = str(error).strip().splitlines()
        print(f"cannot be read ({words[0][:200] if words else type(error).__name__}); expected a "
              "sound Parquet file")
        return 1
    return 0


class Unfit(Exception):
    """A column of a type that is not known here."""


def _flat(pyarrow, table):
    """The table with one column per element of columns that hold lists, as embeddings do."""
    arrays, names = [], []
    types = pyarrow.types
    for name, column in zip(table.column_names, table.columns):
        kind = column.type
        if types.is_dictionary(kind):
            column, kind = column.cast(kind.value_type), kind.value_type
        if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
            for k, values in enumerate(_elements(name, column)):
                arrays.append(values)
                names.append(f"{name}_{k}")
            continue
        if not (types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind)
                or types.is_string(kind) or types.is_large_string(kind)):
            raise Unfit(f"has the column {name[:80]!r} of type {str(kind)[:60]}; expected numbers, "
                        "text or lists of numbers")
        arrays.append(column.cast(pyarrow.float64()) if types.is_float16(kind) else column)
        names.append(name)
    return pyarrow.table(arrays, names=names)


def _elements(name: str, column) -> list[list]:
    rows = column.to_pylist()
    width = len(rows[0]) if rows and rows[0] is not None else 0
    if not 0 < width <= _MOST_LIST or any(row is None or len(row) != width for row in rows):
        raise Unfit(f"has lists of different lengths in the column {name[:80]!r}; expected as many "
                    "numbers in each row")
    if not all(type(value) in (int, float) for row in rows for value in row):
        raise Unfit(f"has lists of other things than numbers in the column {name[:80]!r}; expected "
                    "numbers")
    return [list(values) for values in zip(*rows)]


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
