"""What runs is what was compiled here: one list of flags, complete files, a folder nobody else
writes to."""

import ast
import os
import struct
from pathlib import Path
from types import SimpleNamespace

import pytest

from hpcgcn.backend import cuda_compile
from hpcgcn.backend.cuda_compile import FLAGS, Target, choose_target, compile_program
from hpcgcn.backend.cuda_device import SOURCES
from hpcgcn.backend.cuda_kernels import Kernels
from hpcgcn.errors import BackendError

BACKEND = Path(cuda_compile.__file__).parent


@pytest.fixture(scope="module")
def nvrtc():
    """The real NVRTC, through CuPy's bindings."""
    found = pytest.importorskip("cupy_backends.cuda.libs.nvrtc",
                                reason="no NVRTC: pip install 'hpcgcn[cuda-test]'")
    try:
        found.getVersion()
    except Exception as error:  # noqa: BLE001 - loaders differ in what they raise
        pytest.skip(f"NVRTC cannot be loaded ({error})")
    return found


@pytest.fixture
def folder(monkeypatch, tmp_path):
    """A cache of its own, empty."""
    monkeypatch.setattr(cuda_compile, "cache_folder", lambda: tmp_path)
    return tmp_path


class Recorder:
    """NVRTC that notes the options of every compilation."""

    def __init__(self, nvrtc):
        self._nvrtc, self.options = nvrtc, []

    def __getattr__(self, name):
        return getattr(self._nvrtc, name)

    def compileProgram(self, program, options):
        self.options.append(tuple(options))
        self._nvrtc.compileProgram(program, options)


class LoadedFile:
    """RawModule as far as Kernels calls it: there is no device to load to."""

    def __init__(self, *, path):
        self.path = Path(path)

    def get_function(self, name):
        return name, self.path.read_bytes()


def flags_that_cupy_adds() -> set[str]:
    """The string constants that CuPy's compiler module adds to a caller's options."""
    cupy = pytest.importorskip("cupy")
    tree = ast.parse((Path(cupy.__file__).parent / "cuda" / "compiler.py").read_text())
    added = [node.value for node in ast.walk(tree) if isinstance(node, ast.AugAssign)
             and getattr(node.target, "id", "") == "options"]
    return {leaf.value for value in added for leaf in ast.walk(value)
            if isinstance(leaf, ast.Constant) and isinstance(leaf.value, str)}


# -- flags -----------------------------------------------------------------------------------------

def test_no_flag_of_cupys_reaches_the_kernels(nvrtc, folder, monkeypatch):
    theirs = flags_that_cupy_adds()
    assert "-ftz=true" in theirs                 # it appends this one, and the last one wins
    recorder = Recorder(nvrtc)
    monkeypatch.setattr(cuda_compile, "load_nvrtc", lambda _: recorder)
    name, image = Kernels(SimpleNamespace(RawModule=LoadedFile), 80)["axpby<true>"]
    assert recorder.options == [(*FLAGS, "-arch=sm_80")]
    assert not theirs & set(recorder.options[0])
    assert name.startswith("_Z5axpby") and image[:4] == b"\x7fELF"


def test_nothing_is_compiled_by_cupy():
    """CuPy compiles for RawKernel, RawModule(code=...) and its own element-wise kernels."""
    for path in BACKEND.glob("cuda*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call):
                continue
            name = getattr(node.func, "attr", getattr(node.func, "id", ""))
            assert name not in ("RawKernel", "ElementwiseKernel", "ReductionKernel", "fuse"), path
            if name == "RawModule":
                assert [keyword.arg for keyword in node.keywords] == ["path"] and not node.args


def test_subnormal_numbers_stay_subnormal(nvrtc):
    """What `-ftz=true` would do to the codecs, and does not."""
    source = (SOURCES / "quantise.cu").read_text()

    def ptx(*more):
        return compile_program(nvrtc, source, "quantise.cu", ("dequantise<4, true>",), Target(80),
                               more).ptx
    assert ".ftz" not in ptx() and ".ftz" in ptx("-ftz=true")


# -- files -----------------------------------------------------------------------------------------

@pytest.mark.parametrize("architecture", [70, 80, 90, 100])
def test_machine_code_is_complete(nvrtc, architecture):
    """CuPy's getCUBIN drops the last byte of the file."""
    source = '__global__ void twice(float *x) { x[threadIdx.x] *= 2.0f; }'
    image = compile_program(nvrtc, source, "twice.cu", ("twice",), Target(architecture)).image
    segments, sections = struct.unpack_from("<QQ", image, 32)
    segment, n_segments, section, n_sections = struct.unpack_from("<HHHH", image, 54)
    assert len(image) == max(segments + segment * n_segments, sections + section * n_sections)


def test_a_file_that_lacks_more_than_a_byte_is_refused():
    header = bytearray(b"\x7fELF".ljust(64, b"\0"))
    struct.pack_into("<QQ", header, 32, 64, 0)
    struct.pack_into("<HHHH", header, 54, 56, 1, 0, 0)
    whole = bytes(header) + bytes(56)
    assert cuda_compile.complete(whole[:-1]) == cuda_compile.complete(whole) == whole
    with pytest.raises(BackendError, match="118 of 120 bytes"):
        cuda_compile.complete(whole[:-2])


def test_a_module_is_compiled_once(nvrtc, folder, monkeypatch):
    recorder = Recorder(nvrtc)
    for _ in range(2):
        path, names = cuda_compile.compiled(recorder, "reduce.cu", ("column_sums",), Target(80))
    assert len(recorder.options) == 1 and path.parent == folder
    assert names["column_sums"].encode() in path.read_bytes()


def test_other_flags_and_architectures_are_other_files(nvrtc, folder, monkeypatch):
    arguments = (nvrtc, "reduce.cu", ("column_sums",))
    paths = [cuda_compile.compiled(*arguments, target)[0] for target in
             (Target(80), Target(90), Target(80, "ptx"))]
    monkeypatch.setattr(cuda_compile, "FLAGS", (*FLAGS, "-lineinfo"))
    paths.append(cuda_compile.compiled(*arguments, Target(80))[0])
    assert len(set(paths)) == 4
    assert b".visible .entry" in paths[2].read_bytes()


@pytest.mark.parametrize("capability, expected", [
    (70, Target(70)), (80, Target(80)), (86, Target(86)), (103, Target(100)),
    (110, Target(100, "ptx"))])
def test_the_target_fits_the_device(capability, expected):
    assert choose_target((50, 60, 70, 80, 86, 90, 100), capability) == expected


@pytest.mark.parametrize("supported, capability", [((50, 60, 70), 61), ((90, 100), 80)])
def test_a_device_that_is_too_old_is_named(supported, capability):
    with pytest.raises(BackendError, match=f"compute capability {capability / 10}"):
        choose_target(supported, capability)


# -- the folder ------------------------------------------------------------------------------------

@pytest.fixture
def scratch(monkeypatch, tmp_path):
    """A temporary folder of the node, and no folder chosen."""
    monkeypatch.delenv(cuda_compile.CACHE, raising=False)
    monkeypatch.setenv("SLURM_TMPDIR", str(tmp_path))
    cuda_compile.cache_folder.cache_clear()
    yield tmp_path
    cuda_compile.cache_folder.cache_clear()


def test_the_folder_is_private(scratch):
    path = cuda_compile.cache_folder()
    assert path == scratch / f"hpcgcn-kernels-{os.getuid()}"
    assert path.stat().st_mode & 0o777 == 0o700


def test_a_folder_that_others_prepared_is_not_used(scratch, monkeypatch, caplog):
    theirs = scratch / f"hpcgcn-kernels-{os.getuid()}"
    (scratch / "elsewhere").mkdir(mode=0o700)
    for prepare in (lambda: theirs.mkdir(mode=0o777) or theirs.chmod(0o777),
                    lambda: theirs.symlink_to(scratch / "elsewhere"), theirs.touch):
        prepare()
        cuda_compile.cache_folder.cache_clear()
        caplog.clear()
        chosen = cuda_compile.cache_folder()
        assert chosen != theirs and cuda_compile.is_private(chosen)
        assert "not a private folder" in caplog.text
        theirs.rmdir() if theirs.is_dir() and not theirs.is_symlink() else theirs.unlink()


def test_a_folder_of_another_user_is_not_private(tmp_path, monkeypatch):
    tmp_path.chmod(0o700)
    assert cuda_compile.is_private(tmp_path)
    monkeypatch.setattr(os, "getuid", lambda: 4321)
    assert not cuda_compile.is_private(tmp_path)
