"""Compile small HIP sources once a session, and launch them on torch tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

from hipwright.device.cpu.launcher import CpuLauncher
from hipwright.program.signature import parse_signatures
from hipwright.records import Build
from hipwright.toolchain.cache import BuildCache
from hipwright.toolchain.cpu import build as cpu

HEADER = "#include <hip/hip_runtime.h>\n#include <hip/hip_fp16.h>\n#include <hip/hip_bf16.h>\n"


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> BuildCache:
    return BuildCache(tmp_path_factory.mktemp("builds"))


class Gpu:
    """Compiles and launches; the newest launcher stays in `.launcher`."""

    def __init__(self, cache: BuildCache) -> None:
        self.cache = cache
        self.launcher: CpuLauncher

    def build(self, source: str, *, wave: int = 64, checked: bool = False, **defines: int) -> Build:
        return cpu.build(HEADER + source, defines, wave=wave, checked=checked, cache=self.cache)

    def load(
        self,
        source: str,
        *,
        wave: int = 64,
        checked: bool = False,
        defines: dict[str, int] | None = None,
        **options: Any,
    ) -> CpuLauncher:
        built = self.build(source, wave=wave, checked=checked, **(defines or {}))
        assert built.ok, built.log
        signatures = parse_signatures(source).signatures
        self.launcher = CpuLauncher(str(self.cache.path(built.blob)), signatures, wave=wave, **options)
        return self.launcher

    def run(
        self, source: str, kernel: str, grid: Any, block: Any, args: Sequence[Any], *, lds: int = 0, **options: Any
    ) -> CpuLauncher:
        launcher = self.load(source, **options)
        launcher.launch(kernel, dims(grid), dims(block), lds, args)
        return launcher


def dims(value: int | tuple[int, ...]) -> tuple[int, int, int]:
    given = (value,) if isinstance(value, int) else value
    return (*given, *(1,) * (3 - len(given)))  # type: ignore[return-value]


@pytest.fixture
def gpu(cache: BuildCache) -> Gpu:
    return Gpu(cache)


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


Run = Callable[..., CpuLauncher]
