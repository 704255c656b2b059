"""The compilers of the GPU targets: HIP source to machine code for a GPU of this machine, by the target's runtime."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from hipwright.records import Build
from hipwright.sandbox import MakeZygote, Zygote
from hipwright.targets import CUDA, ROCM, Target
from hipwright.toolchain.amd import hiprtc
from hipwright.toolchain.cache import BuildCache
from hipwright.toolchain.nvidia import nvrtc
from hipwright.toolchain.pool import CompilePool


class GpuCompiler(Protocol):
    """Compiles for one GPU runtime; toolchain/amd/hiprtc.py and toolchain/nvidia/nvrtc.py are such modules."""

    def zygote(self, *, unsafe: bool = False, make: MakeZygote = Zygote) -> Zygote:
        """A contained process for the sessions of a CompilePool. The caller closes it."""
        ...

    def build(
        self,
        hip: str,
        defines: Mapping[str, int],
        *,
        arch: str,
        pool: CompilePool,
        cache: BuildCache,
        unsafe: bool = False,
    ) -> Build:
        """Compile for the architecture `arch`. A wrong source is Build(ok=False); ToolchainError without a compiler."""
        ...


GPU_COMPILERS: dict[Target, GpuCompiler] = {ROCM: hiprtc, CUDA: nvrtc}
"""The registry of this layer: one entry a GPU runtime."""
