"""One build cache and one compiled set of kernels for all tests here."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from hipwright.records import Build
from hipwright.toolchain import clang
from hipwright.toolchain.amd import ocml
from hipwright.toolchain.amd import offline as amdgpu
from hipwright.toolchain.cache import BuildCache
from hipwright.toolchain.nvidia import nvrtc
from hipwright.toolchain.pool import CompilePool

from . import kernels


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> BuildCache:
    return BuildCache(tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="session")
def built(cache: BuildCache) -> Callable[[str, str], Build]:
    """(kernel's name, target) to its build."""

    def make(name: str, target: str) -> Build:
        source = (kernels.EVERYWHERE | kernels.WITH_MFMA)[name]
        return amdgpu.build(source, target, kernels.DEFINES, cache=cache)

    return make


@pytest.fixture
def fresh() -> None:
    """Clears the caches of what was found on this machine, before and after."""
    for found in (clang.find, ocml.find):
        found.cache_clear()
    yield
    for found in (clang.find, ocml.find):
        found.cache_clear()


@pytest.fixture(scope="module")
def compilers() -> Iterator[CompilePool]:
    with nvrtc.zygote() as zygote, CompilePool(zygote, 1) as made:
        yield made


@pytest.fixture
def compile_(compilers: CompilePool, cache: BuildCache) -> Callable[..., Build]:
    def make(hip: str, arch: str = "sm_90", **defines: int) -> Build:
        return nvrtc.build(hip, defines, arch=arch, pool=compilers, cache=cache)

    return make
