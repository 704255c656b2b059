"""Checks which parts of the toolchain work on this machine, for `hipwright doctor`."""

from __future__ import annotations

import tempfile

from hipwright.errors import HipwrightError, SandboxMissing
from hipwright.events import doing
from hipwright.records import Record
from hipwright.sandbox import NEEDS_SANDBOX
from hipwright.targets import OFFLINE
from hipwright.toolchain import clang
from hipwright.toolchain.amd import ocml
from hipwright.toolchain.amd import offline as amdgpu
from hipwright.toolchain.cache import BuildCache

TRIAL = '#include <hip/hip_runtime.h>\nextern "C" __global__ void trial(float* x) { x[threadIdx.x] *= 2.0f; }\n'


class ToolCheck(Record, frozen=True, kw_only=True):
    """The outcome of one check. fix: how to repair it, "" where it works."""

    name: str
    ok: bool
    detail: str
    fix: str = ""


def checks() -> list[ToolCheck]:
    """Checks the compiler, then one build for each AMD target, then the optional parts."""
    try:
        found = clang.find()
    except HipwrightError as error:
        return [ToolCheck(name="clang", ok=False, detail=error.message, fix=error.hint), _ocml()]
    return [ToolCheck(name="clang", ok=True, detail=f"{found.id} ({found.program})"), *_builds(), _ocml()]


def _builds() -> list[ToolCheck]:
    with tempfile.TemporaryDirectory(prefix="hipwright-probe-") as folder:
        return [_build(name, BuildCache(folder)) for name in OFFLINE]


def _build(target: str, cache: BuildCache) -> ToolCheck:
    doing(f"compiling a trial program for {target}")
    try:
        build = amdgpu.build(TRIAL, target, {}, cache=cache)
    except SandboxMissing:
        return ToolCheck(name=target, ok=False, detail=NEEDS_SANDBOX, fix="see sandbox")
    except HipwrightError as error:
        return ToolCheck(name=target, ok=False, detail=error.message, fix=error.hint)
    if build.ok:
        return ToolCheck(name=target, ok=True, detail=f"compiles ({build.seconds:.2f} s); offline, nothing is run")
    lines = build.log.splitlines() or ["no message"]
    return ToolCheck(name=target, ok=False, detail=lines[0], fix=f"reinstall the compiler: {clang.FIX}")


def _ocml() -> ToolCheck:
    bitcode = ocml.find()
    if bitcode:
        return ToolCheck(name="ocml", ok=True, detail=f"AMD's device math library ({bitcode.folder})")
    detail = "AMD's device math library is not here: hipwright's own device math is used (docs/toolchain.md)"
    return ToolCheck(name="ocml", ok=False, detail=detail, fix="optional: ROCm, or apt-get install rocm-device-libs")
