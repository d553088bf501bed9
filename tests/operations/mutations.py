"""Put one fault at a time into a copy of the native kernels, and see that a test of operations
notices.

    python tests/operations/mutations.py            all; exit code 1 if one survives
    python tests/operations/mutations.py rows.h     those of one file

Each fault is compiled for every instruction set, without optimisation for speed of compilation;
about 30 s each.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCES = "hpcgcn/backend/native/src"

# (file, what is there, what is put in its place)
FAULTS = [
    # A tail is dropped, or handled as whole vectors are not.
    ("rows.h", "    if (k < width) {\n        const int n = (int)",
     "    if (k + 1 < width) {\n        const int n = (int)"),
    ("rows.h", "        if (k < width) {\n            const int rest",
     "        if (k + 1 < width) {\n            const int rest"),
    ("spmm.h", "sum += tail ? load_first(to, tail) : load(to);",
     "sum += tail ? splat(0.0f) : load(to);"),
    ("spmm.h", "partial ? load_first(t->mask + at, tail)", "partial ? splat(1.0f)"),
    ("spmm.h", "        for (; entry < end; entry++)\n",
     "        for (; entry + 1 < end; entry++)\n"),
    ("spmm.h", "element(scratch, kind, row * stride + k)", "element(scratch, kind, row * stride)"),
    ("sparse.h", "n_slices = (width + slice - 1) / slice;", "n_slices = width / slice;"),
    ("loss.h", "        sums += clear_after(e, rest);", "        sums += e;"),
    ("loss.h",
     "    if (k < n_classes) {\n"
     "        const int rest = (int)(n_classes - k);\n        vfloat target",
     "    if (k + 1 < n_classes) {\n"
     "        const int rest = (int)(n_classes - k);\n        vfloat target"),
    ("codec.h", "value = load(row + width - LANES);", "value = load(row + k - LANES);"),
    # A sum in another order, lost, or in too little precision.
    ("dense.h", " || row == last - 1)", ")"),
    ("dense.h", "(double)x[i] * (double)x[i]", "(double)(x[i] * x[i])"),
    ("dense.h", "        out[k] += (float)total;", "        out[k] = (float)total;"),
    # One setting is ignored.
    ("spmm.h", "return p->column_scale ? weight * p->column_scale[source] : weight;",
     "return weight;"),
    ("spmm.h", "return p->row_scale ? p->row_scale[row] * p->scale : p->scale;",
     "return p->row_scale ? p->row_scale[row] : p->scale;"),
    ("sparse.h", "const float weight = row_scale * entry_weight",
     "const float weight = entry_weight"),
    ("sparse.h", "const int half = columns[lane] % 8;", "const int half = columns[lane] % 4;"),
    ("epilogue.h", "const int64_t skipped = d->first_column % 8;",
     "const int64_t skipped = 0 * d->first_column;"),
    ("epilogue.h", "to[k] = v < 0.0f ? 0.0f : v; ", "to[k] = v > 0.0f ? v : 0.0f; "),
    ("epilogue.h", "        dbias[k] += dy[k];", "        dbias[k] += rstd * dy[k];"),
    ("codec.h", "if ((double)zero + levels * (double)step < (double)high)", "if (false)"),
    ("codec.h", "    low += 0.0f, high += 0.0f; ", "    "),
    ("loss.h", "const vint too_small = x < splat(-87.0f);",
     "const vint too_small = x < splat(-9.0f);"),
    ("dense.h", "rest2 = (float)(1.0 - a[7].number)", "rest2 = 1.0f - beta2"),
]


def build(root: Path) -> Path:
    """The kernels in the copy at `root`, compiled quickly."""
    environment = os.environ | {"HPCGCN_OPTIMISE": "-O1"}
    done = subprocess.run([sys.executable, "setup.py", "-q", "build_ext", "--build-lib",
                           root / "built", "--build-temp", root / "temporary"], cwd=root,
                          env=environment, capture_output=True, text=True, timeout=300)
    found = list((root / "built").rglob("_kernels*.so"))
    if not found:
        raise RuntimeError(f"the kernels do not compile\n{done.stderr[-3000:]}")
    return found[0]


def failing_test(fault: tuple[str, str, str] | None) -> str:
    """Run the native tests of operations with the fault; the first test that fails, or "" if none
    does."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        shutil.copytree(ROOT / SOURCES, root / SOURCES)
        for name in ("setup.py", "setup.cfg", "pyproject.toml", "README.md"):
            shutil.copy(ROOT / name, root)
        (root / "hpcgcn" / "__init__.py").write_text((ROOT / "hpcgcn" / "__init__.py").read_text())
        if fault is not None:
            name, there, wrong = fault
            path = root / SOURCES / name
            text = path.read_text()
            if text.count(there) != 1:
                raise RuntimeError(f"{name} no longer has this once: {there}")
            path.write_text(text.replace(there, wrong))
        environment = os.environ | {"HPCGCN_NATIVE_LIBRARY": str(build(root)),
                                    "PYTHONPATH": str(ROOT)}
        done = subprocess.run([sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider",
                               "-k", "native and not sanitized", ROOT / "tests" / "operations"],
                              cwd=ROOT, env=environment,
                              capture_output=True, text=True, timeout=600)
    if done.returncode == 0:
        return ""
    failed = re.search(r"^FAILED \S*?([^/\s]+::.+?)(?: - |$)", done.stdout, re.MULTILINE)
    if done.returncode != 1 or not failed:
        raise RuntimeError(f"{fault}: the tests did not "
                           f"run\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return failed.group(1)


def main(files: list[str]) -> int:
    if failing_test(None):
        print("the kernels fail without any fault")
        return 1
    faults, survivors = [fault for fault in FAULTS if not files or fault[0] in files], 0
    for fault in faults:
        failed = failing_test(fault)
        print(f"{fault[0]}: {fault[1].strip()}\n    -> {fault[2].strip()}\n"
              f"    {'noticed by ' + failed if failed else 'SURVIVES'}", flush=True)
        survivors += not failed
    print(f"{len(faults)} faults, {survivors} of them unnoticed")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
