"""A ROCm without a GPU: stub libraries with HIP's and hipRTC's ABI, built here, and code objects for real targets."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from hipwright.device.amd.driver import RocmDriver
from hipwright.toolchain import clang
from hipwright.toolchain.amd import isa
from hipwright.toolchain.amd import offline as amdgpu
from hipwright.toolchain.cache import BuildCache

HERE = Path(__file__).parent
LIVE = ("modules", "streams", "events", "graphs", "executables", "blocks")


def compile_c(source: Path, out: Path, *flags: str) -> Path:
    """A shared library, by the system's compiler or the wheel's clang."""
    compiler = [shutil.which("gcc") or shutil.which("cc") or ""]
    if not compiler[0]:
        compiler = [clang.find().program, "cc"]
    words = [*compiler, "-shared", "-fPIC", "-O1", "-Wall", "-Werror", *flags, str(source), "-o", str(out)]
    subprocess.run(words, check=True, env={**os.environ, "ZIG_GLOBAL_CACHE_DIR": str(out.parent / "zig")})
    return out


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> BuildCache:
    return BuildCache(tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="session")
def code(cache: BuildCache) -> Callable[..., bytes]:
    """(source, target) to a code object."""

    def make(source: str, target: str = "gfx942") -> bytes:
        build = amdgpu.build(source, target, {}, cache=cache)
        assert build.ok, build.log
        return cache.get(build.blob)

    return make


@pytest.fixture(scope="session")
def stub_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_c(HERE / "stub_hip.c", tmp_path_factory.mktemp("stub") / "libamdhip64.so")


class Stub:
    """The test's hand on the stub runtime."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._c = ctypes.CDLL(str(path))
        self._c.stub_segment.restype = ctypes.c_void_p
        self._c.stub_reset()

    def driver(self, index: int = 0) -> RocmDriver:
        return RocmDriver(index, library=self.path)

    def device(self, total: int, architecture: str) -> None:
        self._c.stub_device(total, architecture.encode())

    def knows(self, code: bytes) -> None:
        """Take the kernels of a code object, and the argument layout of the last of them."""
        for name, args in isa.kernel_args(code).items():
            self._c.stub_kernel(name.encode())
            shown = [arg for arg in args if not arg[2].startswith("hidden_")]
            offsets = (ctypes.c_uint * len(shown))(*(offset for _, offset, _ in shown))
            sizes = (ctypes.c_uint * len(shown))(*(size for size, _, _ in shown))
            self._c.stub_layout(len(shown), offsets, sizes)

    def fail(self, function: str, code: int, *, after: int = 0) -> None:
        self._c.stub_fail(function.encode(), code, after)

    def wrong_at(self, element: int) -> None:
        """Compute one element of `trial` wrongly."""
        self._c.stub_wrong(element)

    def calls(self, function: str) -> int:
        return int(self._c.stub_calls(function.encode()))

    def segment(self, size: int) -> bytes:
        """The kernel-argument segment of the last launch."""
        return ctypes.string_at(self._c.stub_segment(), size)

    def launched(self) -> dict[str, Any]:
        numbers, handles = (ctypes.c_uint * 10)(), (ctypes.c_void_p * 2)()
        self._c.stub_launch(numbers, handles)
        names = ("lds", "extra", "params", "captured")
        return {
            "grid": tuple(numbers[:3]),
            "block": tuple(numbers[3:6]),
            "stream": handles[0] or 0,
            "function": handles[1],
            **dict(zip(names, numbers[6:], strict=True)),
        }

    def live(self) -> Mapping[str, int]:
        """Handles that were made and not given back."""
        counts = (ctypes.c_long * len(LIVE))()
        self._c.stub_live(counts)
        return dict(zip(LIVE, counts, strict=True))


@pytest.fixture
def stub(stub_path: Path) -> Stub:
    return Stub(stub_path)
