"""A simulated ROCm for tests: built once for all of them, and used where ROCM_PATH names it."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

from hipwright.toolchain.amd import hiprtc
from hipwright.toolchain.cache import BuildCache
from hipwright.toolchain.pool import CompilePool
from hipwright.toolchain.sim_rocm import folder

CACHE = BuildCache(Path(tempfile.gettempdir()) / "hipwright-engine-tests")
"""Shared with the tests of the engine: the executor and the libraries are built once a machine."""


def made(path: Path, architecture: str = "gfx942") -> Path:
    """A folder for ROCM_PATH."""
    return folder.make(path, architecture, cache=CACHE)


def compiler(cache: BuildCache, architecture: str = "gfx942") -> Callable[[str], bytes]:
    """HIP source to a code object, by the compilers of the ROCm that ROCM_PATH names."""

    def compile_(source: str) -> bytes:
        with hiprtc.zygote() as host, CompilePool(host, 1) as pool:
            build = hiprtc.build(source, {}, arch=architecture, pool=pool, cache=cache)
        assert build.ok, build.log
        return cache.get(build.blob)

    return compile_
