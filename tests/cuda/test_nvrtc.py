"""Compilation for real, without a GPU: every kernel to machine code for four architectures, as
NVRTC on a cluster does."""

import re
import sys
from pathlib import Path

import pytest

# One compilation of everything, before the first test.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

pytest.importorskip("cupy", reason="cupy is not installed: pip install 'hpcgcn[cuda-test]'")

CUDA = Path(__file__).resolve().parents[2] / "cuda"
sys.path.insert(0, str(CUDA))
import resources  # noqa: E402

try:
    VERSION = resources.nvrtc_version()
except Exception as error:  # noqa: BLE001 - loaders differ in what they raise
    pytest.skip(f"NVRTC cannot be loaded ({error}): pip install 'hpcgcn[cuda-test]'",
                allow_module_level=True)


@pytest.fixture(scope="module")
def usage():
    """Registers, spills and shared memory of every kernel on every architecture."""
    return resources.compile_all()


def test_every_kernel_compiles_for_every_architecture(usage):
    names = {name for _, names in resources.MODULES for name in names}
    assert set(usage) == {(name, a) for name in names for a in resources.ARCHITECTURES}
    assert all(u.registers > 0 for u in usage.values())


def test_no_kernel_spills(usage):
    assert not [key for key, u in usage.items() if u.spilled_bytes or u.stack_bytes]


def test_blocks_of_all_kernels_fit_a_multiprocessor(usage):
    """65,536 registers: at least two blocks of 256 threads at a time."""
    assert not [key for key, u in usage.items() if u.registers > 128 or u.shared_bytes > 24576]


def test_the_committed_table_is_that_of_the_sources(usage):
    page = resources.TABLE.read_text()
    listed = set(re.findall(r"^\| `([^`]+)` \|", page, re.MULTILINE))
    assert listed == {name for name, _ in usage}, "run python cuda/resources.py"
    if f"NVRTC {VERSION};" in page:                 # another compiler may count other registers
        assert page == resources.table(usage, VERSION), "run python cuda/resources.py"


@pytest.mark.parametrize("kind, load", [("float", r"ld\.global(\.nc)?\.v4\.f32"),
                                        ("bf16", r"ld\.global(\.nc)?\.v4\.u16")])
def test_rows_are_read_in_vectors(kind, load):
    ptx = resources.compile_module("spmm.cu", (f"spmm_short<{kind}, 4, 32>",), 80)[1].ptx
    assert re.search(load, ptx) and re.search(r"st\.global(\.cs)?\.v4\.f32", ptx)


def test_what_is_used_once_in_a_while_leaves_the_cache_first():
    """Indices and sums pass the caches by; rows of x do not."""
    ptx = resources.compile_module("spmm.cu", ("spmm_short<float, 4, 32>",), 80)[1].ptx
    assert re.search(r"ld\.global\.cs\.[su]32", ptx) and re.search(r"st\.global\.cs\.v4\.f32", ptx)
    assert re.search(r"ld\.global(\.nc)?\.v4\.f32", ptx) and "ld.global.cs.v4" not in ptx


def test_code_that_must_not_be_fused_is_not():
    ptx = resources.compile_module("quantise.cu", ("dequantise<4, true>",), 80)[1].ptx
    assert "mul.rn.f32" in ptx and "add.rn.f32" in ptx and "fma.rn.f32" not in ptx
    # Encoding divides: ptxas makes fused operations of `div.rn`, whose result is rounded once.
    names = tuple(f"quantise<{bits}, true>" for bits in (1, 2, 4, 8))
    ptx = resources.compile_module("quantise.cu", names, 80)[1].ptx
    assert "div.rn.f32" in ptx and "fma.rn.f32" not in ptx
