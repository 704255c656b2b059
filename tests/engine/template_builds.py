"""What every template must do: build for the AMD targets with no scratch, and by NVRTC from the same source."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from hipwright.engine.write import write
from hipwright.program import parse
from hipwright.toolchain import amdgpu, nvrtc
from hipwright.toolchain.pool import CompilePool
from tests.engine.harness import CACHE, captured

TARGETS = ("gfx90a", "gfx942", "gfx950", "gfx1100")


def builds(model: torch.nn.Module, inputs: Sequence[torch.Tensor], least: int = 2) -> str:
    """At default knobs; `least` waves a SIMD. Returns the program's text."""
    program = write(captured(model, inputs))
    parsed = parse(program.text)
    defines = parsed.defines(program.knobs)
    for target in TARGETS:
        build = amdgpu.build(parsed.hip, target, defines, cache=CACHE, unsafe=True)
        assert build.ok, build.log
        for kernel in build.kernels:
            assert kernel.scratch_bytes == 0, (target, kernel)
            assert kernel.occupancy is not None
            assert kernel.occupancy >= least, (target, kernel)
    with nvrtc.zygote() as zygote, CompilePool(zygote, 1) as pool:
        build = nvrtc.build(parsed.hip, defines, arch="sm_90", pool=pool, cache=CACHE)
    assert build.ok, build.log
    return program.text
