"""What every template must do: build for the AMD targets with no scratch, and by NVRTC from the same source.

Each program is built for gfx1100, whose wavefronts are 32 lanes, and for one CDNA target, which its text decides: all
targets take part. `python -m benchmarks mix` builds the suite's programs for all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from hipwright.engine import write
from hipwright.program import parse
from hipwright.records import Build, Program, content_key
from hipwright.toolchain.amd import offline as amdgpu
from hipwright.toolchain.nvidia import nvrtc
from tests import warm
from tests.engine.harness import CACHE, captured

CDNA, RDNA = ("gfx90a", "gfx942", "gfx950"), "gfx1100"
TARGETS = (*CDNA, RDNA)


def builds(model: torch.nn.Module, inputs: Sequence[torch.Tensor], least: int = 2) -> str:
    """At default knobs; `least` waves a SIMD. Returns the program's text."""
    program = write(captured(model, inputs))
    program_builds(program, lambda target: least)
    return program.text


def program_builds(program: Program, least: Callable[[str], int]) -> Build:
    """least: waves a SIMD on a target. Returns NVRTC's build."""
    parsed = parse(program.text)
    defines = parsed.defines(program.knobs)
    for target in (CDNA[int(content_key(program.text), 16) % len(CDNA)], RDNA):
        build = amdgpu.build(parsed.hip, target, defines, cache=CACHE, unsafe=True)
        assert build.ok, build.log
        for kernel in build.kernels:
            assert kernel.scratch_bytes == 0, (target, kernel)
            assert kernel.occupancy is not None
            assert kernel.occupancy >= least(target), (target, kernel)
    build = nvrtc.build(parsed.hip, defines, arch="sm_90", pool=warm.compilers(), cache=CACHE)
    assert build.ok, build.log
    return build
