"""Every call of CuPy that the backend makes exists in the installed CuPy with these arguments.

The stand-in takes the calls in the tests, so its arguments are compared with CuPy's, name by name
and in order: a call that the stand-in accepts is one that CuPy accepts. Nothing here needs a GPU.
"""

import ast
import inspect
import re
from pathlib import Path

import pytest

from hpcgcn.backend import cuda_compile

cupy = pytest.importorskip("cupy", reason="no CuPy: pip install 'hpcgcn[cuda-test]'")
nvrtc = pytest.importorskip("cupy_backends.cuda.libs.nvrtc")

BACKEND = Path(cuda_compile.__file__).parent


def arguments(function, name: str) -> list[str]:
    """Names of the parameters, `*` where the rest goes by name; of compiled code from the first
    line of its docstring, as Cython writes it."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        line = re.search(rf"{re.escape(name)}\((.*)\)", function.__doc__ or "")
        assert line, f"CuPy's {name} tells no signature"
        return [re.sub(r"=.*", "", part).split()[-1]
                for part in line.group(1).split("\n")[0].split(", ") if part not in ("", "self")]
    found, named = [], False
    for parameter in parameters:
        if parameter.kind is parameter.KEYWORD_ONLY and not named:
            found.append("*")
            named = True
        if parameter.name not in ("self", "_"):
            found.append("*" * (parameter.kind is parameter.VAR_POSITIONAL) + parameter.name)
    return found


def pairs(stand_in):
    """(name, the stand-in's, CuPy's) of every function and method that the backend calls."""
    classes = ((stand_in.ndarray, cupy.ndarray, ("set", "get", "view", "reshape")),
               (stand_in.arrays.MemoryPointer, cupy.cuda.MemoryPointer,
                ("copy_to_host_async", "copy_from_host_async", "copy_from_device_async",
                 "memset_async")),
               (stand_in.cuda.Stream, cupy.cuda.Stream,
                ("__init__", "use", "synchronize", "record", "wait_event", "begin_capture",
                 "end_capture", "is_capturing")),
               (stand_in.cuda.Graph, cupy.cuda.Graph, ("launch",)),
               (stand_in.cuda.Event, cupy.cuda.Event, ("__init__", "record", "synchronize")),
               (stand_in.arrays.MemoryPool, cupy.cuda.MemoryPool, ("used_bytes", "total_bytes")),
               (stand_in.RawModule, cupy.RawModule, ("get_function",)),
               (stand_in, cupy, ("asarray", "empty", "zeros", "get_default_memory_pool")),
               (stand_in.cuda, cupy.cuda, ("alloc_pinned_memory", "Device")),
               (stand_in.runtime, cupy.cuda.runtime,
                ("getDeviceCount", "free", "getDeviceProperties", "memGetInfo")),
               (stand_in.nvrtc, nvrtc,
                ("createProgram", "addNameExpression", "compileProgram", "getPTX", "getCUBIN",
                 "getLoweredName", "getProgramLog", "destroyProgram", "getVersion",
                 "getSupportedArchs")))
    return [(name, getattr(ours, name), getattr(theirs, name))
            for ours, theirs, names in classes for name in names]


def test_what_the_stand_in_takes_cupy_takes(stand_in):
    """CuPy may take more at the end, or by name; it may not lack or reorder what is used."""
    different = {}
    for name, ours, theirs in pairs(stand_in):
        mine, real = arguments(ours, name), arguments(theirs, name)
        by_position = [a for a in mine if a != "*"]
        if real[:len(by_position)] != by_position:
            different[name] = mine, real
    assert not different


def test_a_module_comes_from_a_file_and_a_kernel_takes_shared_memory():
    assert "path" in arguments(cupy.RawModule, "RawModule")
    assert arguments(cupy.RawKernel.__call__, "__call__")[:3] == ["grid", "block", "args"]
    assert "shared_mem" in cupy.RawKernel.__call__.__doc__


def test_every_symbol_of_cupy_in_the_backend_is_one_of_these(stand_in):
    """A new call of `cupy.` or `runtime.` gets a line here, and so a checked signature."""
    known = {name for name, _, _ in pairs(stand_in)} | {
        "cuda", "runtime", "ndarray", "RawModule", "Stream", "Event", "memory", "__version__",
        "OutOfMemoryError", "CUDARuntimeError", "nvrtc", "nccl",
        "streamCaptureModeThreadLocal",
        "cublas", "gemm", "get_cublas_handle", "cublas_calls"}           # gemm: test_device.py
    used = set()
    for path in BACKEND.glob("cuda*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute):
                text = ast.unparse(node)
                if re.fullmatch(r"(self\.)?_?(cupy|runtime)\.[\w.]+", text):
                    used |= set(text.split(".")) - {"self", "cupy", "_cupy"}
    assert used <= known, used - known
    assert {"alloc_pinned_memory", "getDeviceProperties"} <= used


# -- bindings that do not load here, because their libraries are not there -----------------------

def bound(library: str) -> dict[str, list[str]]:
    """The signatures that a compiled module of CuPy tells in its docstrings: name -> arguments."""
    folder = Path(nvrtc.__file__).parent
    data = b"\n".join(path.read_bytes() for path in folder.glob(f"{library}.*.so"))
    found = {}
    for line in re.findall(rb"[\x20-\x7e]{6,}", data):
        match = re.fullmatch(r"([\w.]+)\((.*?)\)(?: -> \w+)?", line.decode())
        if match:
            parts = [p for p in match.group(2).split(", ") if p and p != "self"]
            found[match.group(1)] = [re.sub(r"=.*", "", part) for part in parts]
    return found


def names(parts: list[str]) -> list[str]:
    return [part.split()[-1] for part in parts]


def test_calls_of_nccl_are_those_of_cupys_bindings(stand_in):
    theirs, nccl = bound("nccl"), stand_in.nccl
    for name in ("get_version", "get_unique_id", "groupStart", "groupEnd"):
        assert arguments(getattr(nccl, name), name) == names(theirs[name]), name
    for name in ("send", "recv"):
        mine = arguments(getattr(nccl.NcclCommunicator, name), name)
        assert mine == names(theirs[f"NcclCommunicator.{name}"]), name
    made = theirs["NcclCommunicator"]
    assert arguments(nccl.NcclCommunicator.__init__, "")[:3] == names(made)[:3]
    assert made[1].startswith("bytes ") and isinstance(nccl.get_unique_id(), bytes)


def test_calls_of_cublas_are_those_of_cupys_bindings(stand_in):
    theirs = bound("cublas")
    for name in ("gemmEx", "setPointerMode"):
        assert arguments(getattr(stand_in.cublas_calls, name), name) == names(theirs[name]), name
    assert callable(cupy.cuda.get_cublas_handle)
