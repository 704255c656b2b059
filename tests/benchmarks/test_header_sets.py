"""Programs against AMD's own headers and hipRTC libraries. The sets come from scripts/header-sets.sh."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.common import ROOT
from benchmarks.headers import sets
from benchmarks.headers.compilers import COMPILERS, Compiler
from benchmarks.headers.elf import built_in_header
from benchmarks.headers.sources import Source, sources
from hipwright.errors import ToolchainError
from hipwright.toolchain.amd.rocm_source import rocm_source

FOUND = sets.find()
WAYS = [(name, mode, arch) for name in sets.NAMES for mode in COMPILERS for arch in ("gfx90a", "gfx942")]
PASTED = """#include <hip/hip_runtime.h>
#include <hip/hip_bf16.h>
#include <cstdint>
extern "C" __global__ void scale(__hip_bfloat16* x, const uint8_t* mask, int64_t n) {
    const float v = __bfloat162float(x[threadIdx.x]) * FACTOR;
    if (threadIdx.x < n && mask[threadIdx.x]) x[threadIdx.x] = __float2bfloat16(v == INFINITY ? NAN : v);
}
"""


def here(name: str) -> sets.HeaderSet:
    """The set, or a skip with the reason why it is not here."""
    found = FOUND[name]
    if isinstance(found, str):
        pytest.skip(f"{name}: {found}")
    return found


@pytest.fixture(params=WAYS, ids="-".join)
def compiler(request: pytest.FixtureRequest) -> Iterator[Compiler]:
    """Each way to compile that a set has."""
    name, mode, arch = request.param
    try:
        made = COMPILERS[mode](here(name), arch)
    except ToolchainError as error:
        pytest.skip(error.message)
    yield made
    made.close()


def messages(compiler: Compiler, chosen: list[Source]) -> dict[str, list[str]]:
    suited = [one for one in chosen if not one.archs or compiler.arch in one.archs]
    return {one.name: found for one in suited if (found := compiler.errors(one))}


@pytest.fixture(scope="module")
def sample() -> list[Source]:
    """A few of each kind: what a test run compiles of them by default."""
    parts = (("suite", 40, 3), ("arithmetic", 12, 3), ("corpus", 25, 4), ("knowledge", 6, 2))
    chosen = [one for kind, every, offset in parts for one in sources((kind,), every, offset)]
    return [*chosen, *(one for one in sources(("headers",)) if one.name == "float8")]


@pytest.mark.slow
@pytest.mark.skipif(all(isinstance(one, str) for one in FOUND.values()), reason="no header set: scripts/header-sets.sh")
def test_a_sample_compiles(compiler: Compiler, sample: list[Source]) -> None:
    pasted = Source("own", "pasted", rocm_source(PASTED, "kernel.hip"), ("-DFACTOR=3",))
    assert len(sample) >= 10
    assert messages(compiler, [pasted, *sample]) == {}


@pytest.mark.slow
def test_a_wrong_source_does_not_compile(compiler: Compiler) -> None:
    wrong = PASTED.replace("FACTOR", "no_such_name")
    assert "no_such_name" in compiler.errors(Source("own", "wrong", rocm_source(wrong, "kernel.hip"), ()))[0]


@pytest.mark.exhaustive
def test_every_program_compiles(compiler: Compiler, every_source: list[Source]) -> None:
    assert messages(compiler, every_source) == {}


@pytest.fixture(scope="module")
def every_source() -> list[Source]:
    found = list(sources())
    assert sum(one.kind == "suite" for one in found) == 119
    return found


def test_the_built_in_header_is_read_from_the_library() -> None:
    libraries = [one.built_in for one in sets.present() if one.built_in]
    if not libraries:
        pytest.skip(str(FOUND["debian-6.4"]))
    for library in libraries:
        text = built_in_header(library)
        assert len(text) > 200_000 and "__half2" in text and "#define __global__" in text and "\0" not in text


@given(st.binary(max_size=300), st.booleans())
def test_what_is_no_library_is_an_error(tmp_path_factory: pytest.TempPathFactory, data: bytes, elf: bool) -> None:
    path = tmp_path_factory.mktemp("elf") / "lib.so"
    path.write_bytes(b"\x7fELF\x02" * elf + data)
    with pytest.raises(ValueError, match="holds no hipRTC header"):
        built_in_header(path)


def test_a_set_that_is_not_here_says_why(tmp_path: Path) -> None:
    (tmp_path / "triton.missing").write_text("pip cannot fetch triton's wheel\n")
    found = sets.find(tmp_path)
    assert found["triton"] == "pip cannot fetch triton's wheel" and sets.FETCH in str(found["debian-5.2"])
    assert (ROOT / sets.FETCH).is_file() and sets.present(tmp_path) == []
