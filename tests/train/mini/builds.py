"""Builds of programs for gfx942, to compare."""

from __future__ import annotations

from msgspec.structs import replace

from hipwright.program import parse
from hipwright.records import KernelResources, Program
from hipwright.toolchain.amd import offline as amdgpu
from hipwright.toolchain.cache import BuildCache


def kernels(program: Program, cache: BuildCache) -> list[KernelResources]:
    """The resources of each compiled kernel, without its name."""
    parsed = parse(program.text)
    build = amdgpu.build(parsed.hip, "gfx942", parsed.defines(program.knobs), cache=cache)
    assert build.ok, build.log
    return [replace(kernel, name="") for kernel in build.kernels]
