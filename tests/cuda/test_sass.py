"""What ptxas makes of the kernels, read from the machine code: no fused operation in the codecs,
no generic addresses, whole vectors where rows are gathered."""

import importlib.util
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

pytest.importorskip("cupy_backends.cuda.libs.nvrtc",
                    reason="no NVRTC: pip install 'hpcgcn[cuda-test]'")
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "cuda"))
import resources

pytestmark = pytest.mark.slow
ARCHITECTURES = (80, 100)


def disassembler() -> str | None:
    """nvdisasm of the toolkit, or of the package nvidia-cuda-nvdisasm."""
    spec = importlib.util.find_spec("nvidia")
    folders = list(spec.submodule_search_locations or ()) if spec else []
    packaged = [str(path) for folder in folders for path in Path(folder).glob("*/bin/nvdisasm")]
    return shutil.which("nvdisasm") or next(iter(packaged), None)


@pytest.fixture(scope="module", params=ARCHITECTURES)
def instructions(request, tmp_path_factory):
    """By kernel: how often each instruction occurs in its machine code."""
    tool = disassembler()
    if tool is None:
        pytest.skip("no nvdisasm: pip install 'hpcgcn[cuda-test]'")
    found, folder = {}, tmp_path_factory.mktemp("sass")
    for number, (file, names) in enumerate(resources.MODULES):
        program = resources.compile_module(file, names, request.param)[1]
        image = folder / f"{number}.cubin"
        image.write_bytes(program.image)
        text = subprocess.run([tool, "-c", image], capture_output=True, text=True,
                              check=True).stdout
        parts = re.split(r"^\.text\.(\S+):", text, flags=re.MULTILINE)[1:]
        code = dict(zip(parts[::2], parts[1::2]))
        found |= {name: Counter(re.findall(r"\*/\s+(?:@!?U?P\w+ +)?([A-Z][\w.]+)",
                                           code[program.names[name]])) for name in names}
    return found


def kinds(counts: Counter) -> set[str]:
    """Instructions without their modifiers."""
    return {name.partition(".")[0] for name in counts}


def test_every_kernel_is_found(instructions):
    assert set(instructions) == {name for _, names in resources.MODULES for name in names}
    assert all("EXIT" in kinds(counts) for counts in instructions.values())


def test_decoding_fuses_nothing(instructions):
    """Each product and each sum is rounded: the numbers are those of the CPU."""
    codecs = {name: counts for name, counts in instructions.items() if "dequantise" in name}
    assert len(codecs) == 8
    for counts in codecs.values():
        assert {"FMUL", "FADD"} <= kinds(counts) and "FFMA" not in kinds(counts)


def test_no_address_is_generic(instructions):
    generic = {name.partition("<")[0] for name, counts in instructions.items()
               if kinds(counts) & {"LD", "ST"}}
    assert not generic


def test_nothing_is_in_local_memory(instructions):
    assert not [name for name, counts in instructions.items() if kinds(counts) & {"LDL", "STL"}]


@pytest.mark.parametrize("storage, load", [("float", "128"), ("bf16", "64"), ("half16", "64")])
def test_rows_are_gathered_in_whole_vectors(instructions, storage, load):
    """Four elements per load: 16 bytes in fp32, 8 in 16-bit storage; sums are written in 16."""
    for kernel in ("spmm_short", "spmm_long"):
        for lanes in (4, 8, 16, 32):
            counts = instructions[f"{kernel}<{storage}, 4, {lanes}>"]
            loads = [name for name in counts if name.startswith("LDG") and load in name.split(".")]
            assert loads and any(name.startswith("STG") and "128" in name.split(".")
                                 for name in counts)
