"""Kernels of a test: compiled as the backend compiles its own."""

from __future__ import annotations

from hpcgcn.backend import cuda_compile


class ProbeModule:
    """Kernels by name expression."""

    def __init__(self, module, names: dict[str, str]):
        self._module, self._names = module, names

    def get_function(self, name: str):
        return self._module.get_function(self._names[name])


def load_module(cupy, source: str, names) -> ProbeModule:
    """Compile a text for the device at hand and load it."""
    nvrtc = cuda_compile.load_nvrtc(cupy)
    properties = cupy.cuda.runtime.getDeviceProperties(0)
    target = cuda_compile.Target(10 * properties["major"] + properties["minor"])
    path, in_image = cuda_compile.compiled_text(nvrtc, source, "kernels.cu", tuple(names), target)
    return ProbeModule(cupy.RawModule(path=str(path)), in_image)
