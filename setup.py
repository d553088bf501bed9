"""Builds the native kernels; all other facts of the package are in setup.cfg."""

import os
import platform
from concurrent.futures import ThreadPoolExecutor

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

SOURCES = "hpcgcn/backend/native/src"
HEADERS = ["attention", "call", "codec", "cover", "dense", "epilogue", "labels", "loss",
           "philox", "rows", "sparse", "spmm", "storage", "threads", "vector"]

# Sums in another order would break what the kernels promise, so no fast-math; fused multiply-add
# only where written.
COMMON_FLAGS = ["-std=gnu11", os.environ.get("HPCGCN_OPTIMISE", "-O3"), "-g0", "-fopenmp",
                "-fvisibility=hidden", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math",
                "-Wall", "-Wextra", "-Wno-psabi"]
LEVEL_FLAGS = {"plain": []}
if platform.machine() in ("x86_64", "AMD64"):
    LEVEL_FLAGS["avx2"] = ["-mavx2", "-mfma", "-mf16c"]
    LEVEL_FLAGS["avx512"] = ["-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl", "-mfma",
                             "-mf16c", "-mprefer-vector-width=512"]


class BuildKernels(build_ext):
    """Compiles kernels.c once for each instruction set level; the module picks one when it is
    loaded."""

    def build_extension(self, extension):
        with ThreadPoolExecutor() as pool:
            for objects in pool.map(self.compile_level, LEVEL_FLAGS):
                extension.extra_objects += objects
        super().build_extension(extension)

    def compile_level(self, level):
        return self.compiler.compile([f"{SOURCES}/kernels.c"],
                                     output_dir=f"{self.build_temp}/{level}",
                                     macros=[("LEVEL", level)],
                                     extra_postargs=COMMON_FLAGS + LEVEL_FLAGS[level])


setup(
    cmdclass={"build_ext": BuildKernels},
    ext_modules=[Extension(
        "hpcgcn.backend.native._kernels",
        sources=[f"{SOURCES}/module.c"],
        depends=[f"{SOURCES}/kernels.c"] + [f"{SOURCES}/{name}.h" for name in HEADERS],
        extra_compile_args=COMMON_FLAGS,
        extra_link_args=["-fopenmp", "-lm"],
        py_limited_api=True,
        optional=True,      # without a compiler the package installs, and runs on `reference`
    )],
)
