"""What the hot kernels ask of memory, counted on their PTX, and the least time that follows.

    python cuda/roofline.py                    count, write ROOFLINE.md beside this file (a minute)
    python cuda/roofline.py --json FILE        only the counts

Every byte that a kernel touches must pass the device's memory once: that is its roofline. What it
asks for beyond that must come from caches: requests and sectors say how much.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import sys
from pathlib import Path

import numpy as np

if __name__ == "__main__":                       # tests that import this choose for themselves
    os.environ.update(HPCGCN_CUDA_STAND_IN="1", HPCGCN_CUDA_STAND_IN_KERNELS="ptx-80")
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from hpcgcn.backend.cuda import CudaBackend
from hpcgcn.backend.cuda_device import load_cupy

TABLE = Path(__file__).resolve().parent / "ROOFLINE.md"
ROWS, DEGREE = 64, 8
# memory of devices, TB/s as their makers say, of which a kernel may reach some 85 %
DEVICES = {"V100": 0.90, "A100 80 GB": 2.04, "H100 SXM": 3.35}
REACHED = 0.85


def numbers(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def operations(b, width: int = 128):
    """Hot operations on aligned rows: what is called, by the kernel's name."""
    put = b.from_host
    x, y, out = (put(numbers(ROWS, width, seed=k)) for k in range(3))
    index = put(np.random.default_rng(0).permutation(ROWS).astype(np.int32))
    ids = put(np.arange(ROWS, dtype=np.int64))
    indptr = np.arange(0, DEGREE * ROWS + 1, DEGREE, dtype=np.int64)
    indices = np.random.default_rng(1).integers(0, ROWS, DEGREE * ROWS).astype(np.int32)
    short = b.csr(indptr, indices, ROWS)
    long = b.csr(indptr[::16] * 1, indices, ROWS)           # 128 entries per row
    vector = [put(numbers(width, seed=k)) for k in range(6)]
    xhat, rstd = put(numbers(ROWS, width)), put(np.abs(numbers(ROWS)))
    wide = b.zeros((ROWS, -(-width // 4) * 4))
    coded = b.zeros((ROWS * (8 + width),), np.uint8)
    return {
        "spmm_short": lambda: b.spmm(short, x, out),
        "spmm_long": lambda: b.spmm(long, x, out[:len(long.structure.host_indptr) - 1]),
        "gather_rows": lambda: b.gather_rows(x, index, out),
        "scatter_add_rows": lambda: b.scatter_add_rows(x, index, out),
        "copy_columns": lambda: b.copy_columns(x, wide[:, :width]),
        "axpby": lambda: b.axpby(2.0, x, 1.0, y, out),
        "epilogue_forward": lambda: b.epilogue_forward(x, out, *vector[:3], xhat, rstd, (1, 2),
                                                       9000, ids),
        "epilogue_backward": lambda: b.epilogue_backward(x, y, out, 1.0, vector[0], xhat, rstd,
                                                         *vector[3:]),
        "dropout": lambda: b.dropout(x, out, (1, 2), 9000, ids),
        "quantise": lambda: b.quantise(x, None, ids, 8, (1, 2), True, coded),
        "dequantise": lambda: b.dequantise(coded, 8, True, out),
        "column_sums": lambda: b.column_sum_add(x, vector[5]),
    }


def count(backend, word: str, call):
    """Traffic of the kernel whose name has a word in it, in one call on the PTX machine."""
    load_cupy().modules._ptx()
    machine = importlib.import_module("hpcgcn_ptx_machine.machine")
    traffic = importlib.import_module("hpcgcn_ptx_machine.traffic")
    call()                                       # what it allocates and compiles
    backend.synchronize()
    counter = traffic.Counter()
    with machine.counting(counter):
        call()
        backend.synchronize()
    found, = (t for name, t in counter.kernels.items() if word in name)
    return found


def counts(width: int) -> dict[str, dict]:
    """Of all hot operations at a width: requests, sectors, wavefronts, and bytes touched once."""
    backend = CudaBackend()
    result = {}
    for name, call in operations(backend, width).items():
        found = count(backend, name, call)
        result[name] = {"requests": found.load_requests + found.store_requests,
                        "sectors": found.load_sectors + found.store_sectors,
                        "touched": 32 * (len(found.loaded) + len(found.stored)),
                        "wavefronts": found.shared_wavefronts,
                        "generic": found.generic_requests}
    return result


def page(found: dict[int, dict]) -> str:
    """ROOFLINE.md."""
    lines = ["# Rooflines of the hot kernels", "",
             f"`python cuda/roofline.py`: counted on the PTX of compute_80, {ROWS} rows, fp32, per "
             "row. Touched: bytes of all sectors (32 bytes) that are read or written, each once: "
             "what memory must move at least. Asked: bytes of the sectors of all requests; what is "
             "more than touched comes from caches if the kernel is to reach its roofline. Least "
             f"time: a million rows, touched bytes at {REACHED:.0%} of the memory's rate; not "
             f"measured. SpMM: {DEGREE} entries per row (`spmm_long`: 128, of {ROWS // 16} rows), "
             "all rows of x in a cache after their first use; rows of 41 columns are gathered from "
             "a copy with a pitch of 44, which `copy_columns` makes.", ""]
    for width, kernels in found.items():
        lines += [f"## {width} columns", "",
                  "| kernel | requests | asked, bytes | touched, bytes | shared wavefronts | "
                  + " | ".join(f"{name}, ms" for name in DEVICES) + " |",
                  "|---|---:|---:|---:|---:|" + "---:|" * len(DEVICES)]
        for name, c in kernels.items():
            per_row = {key: value / ROWS for key, value in c.items()}
            times = [per_row["touched"] * 1e6 / (REACHED * rate * 1e12) * 1e3
                     for rate in DEVICES.values()]
            lines.append(f"| `{name}` | {per_row['requests']:.1f} | "
                         f"{32 * per_row['sectors']:.0f} | {per_row['touched']:.0f} | "
                         f"{per_row['wavefronts']:.1f} | "
                         + " | ".join(f"{time:.2f}" for time in times) + " |")
        lines.append("")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", metavar="FILE")
    given = parser.parse_args()
    found = {width: counts(width) for width in (128, 41)}
    if given.json:
        Path(given.json).write_text(json.dumps(found, indent=1))
    else:
        TABLE.write_text(page(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
