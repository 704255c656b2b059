"""What every template must do: build for the AMD targets with no scratch, and by NVRTC from the same source."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from hipwright.engine import write
from hipwright.program import parse
from hipwright.records import Build, Program
from hipwright.toolchain.amd import offline as amdgpu
from hipwright.toolchain.nvidia import nvrtc
from tests import warm
from tests.engine.harness import CACHE, captured

TARGETS = ("gfx90a", "gfx942", "gfx950", "gfx1100")


def builds(model: torch.nn.Module, inputs: Sequence[torch.Tensor], least: int = 2) -> str:
    """At default knobs; `least` waves a SIMD. Returns the program's text."""
    program = write(captured(model, inputs))
    program_builds(program, lambda target: least)
    return program.text


def program_builds(program: Program, least: Callable[[str], int]) -> Build:
    """least: waves a SIMD on a target. Returns NVRTC's build."""
    parsed = parse(program.text)
    defines = parsed.defines(program.knobs)
    for target in TARGETS:
        build = amdgpu.build(parsed.hip, target, defines, cache=CACHE, unsafe=True)
        assert build.ok, build.log
        for kernel in build.kernels:
            assert kernel.scratch_bytes == 0, (target, kernel)
            assert kernel.occupancy is not None
            assert kernel.occupancy >= least(target), (target, kernel)
    build = nvrtc.build(parsed.hip, defines, arch="sm_90", pool=warm.compilers(), cache=CACHE)
    assert build.ok, build.log
    return build
