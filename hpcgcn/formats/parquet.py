"""Parquet tables, read by pyarrow in a process of its own and handed over as text: a damaged file
can make it abort."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import tempfile

from hpcgcn.errors import ConfigError, FileError, printable
from hpcgcn.formats.files import check_readable
from hpcgcn.formats.rows import Table

# run as a file: what else the package imports takes longer than reading a table
_LOADER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "parquet_loader.py")


def table_of(path: str, scratch: str | None) -> Table:
    """The table in a Parquet file; its text is written into the folder `scratch`."""
    check_readable(path)
    if importlib.util.find_spec("pyarrow") is None:
        raise ConfigError(f"{path}: Parquet files need the package pyarrow: pip install "
                          "'hpcgcn[parquet]', or save the table as .csv or .npy")
    handle, text = tempfile.mkstemp(dir=scratch, suffix=".csv")
    os.close(handle)
    child = subprocess.run([sys.executable, "-P", _LOADER, path, text], capture_output=True,
                           text=True, errors="replace")
    if child.returncode == 1 and child.stdout:
        raise FileError(f"{path} {printable(child.stdout.strip().splitlines()[-1], 300)}")
    if child.returncode:
        raise FileError(f"{path} cannot be read (pyarrow ended with the code {child.returncode}); "
                        "expected a sound Parquet file")
    table = Table(text)
    table.path = path                    # for messages: the file that the user knows
    return table
