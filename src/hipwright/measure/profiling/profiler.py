"""Runs a program under the vendor's profiler and finds what limits each kernel (docs/profile.md). Does not import
torch.

The profiled process runs no host code of the candidate: the launch plan is parsed, never executed, and the kernels come
as a code object. It runs in a sandbox where the driver lets a contained process read the counters; where the driver
denies them, it runs outside, and the report says so.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from hipwright.errors import CandidateError, DeviceError, InfrastructureError
from hipwright.measure.profiling.bottleneck import diagnose
from hipwright.measure.profiling.nvidia import CountersDenied, check_permission
from hipwright.measure.profiling.profile import Profile, plain_name
from hipwright.measure.profiling.profiler_sandbox import Done, ProfilerSandbox
from hipwright.measure.profiling.vendors import PROFILERS, find_tool
from hipwright.records import Build, Record
from hipwright.sandbox import GpuAccess
from hipwright.targets import TARGETS
from hipwright.tensors import Tree, write_bundle
from hipwright.toolchain.nvidia.nvrtc import OWN

JOB, CODE, DATA = "job.json", "kernels.bin", "data.bundle"
MARK = "hipwright-profile:"
WARM_CALLS = 3


class ProfileJob(Record, frozen=True, kw_only=True):
    """The profiled process's job: target, program text and knobs.

    Its code object, inputs and state are in other files.
    """

    target: str
    text: str
    knobs: dict[str, int] = msgspec.field(default_factory=dict)


class ProfileReport(Record, frozen=True, kw_only=True):
    """One profiled call: its launches in order. contained: whether the profiler ran in the sandbox."""

    target: str
    profiles: tuple[Profile, ...]
    tool: str
    contained: bool
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class ProfiledProgram:
    """A program, built for `arch` ("sm_90", "gfx942"), with the inputs and state table (HostTensors) of a workload."""

    job: ProfileJob
    arch: str
    build: Build
    code: bytes
    inputs: Tree
    state: Tree


def profile_program(
    subject: ProfiledProgram,
    *,
    index: int = 0,
    unsafe: bool = False,
    bandwidth: float | None = None,
    limit_s: float = 300.0,
) -> ProfileReport:
    """Profile every launch of one call of the program on GPU `index`, with what limits each.

    bandwidth: measured bytes/s of device memory, where it is known. Raises ToolchainError without ncu or rocprofv3,
    DeviceError where the counters may not be read, CandidateError for what the program does wrong, SandboxMissing
    without a sandbox (unless unsafe).
    """
    tool = find_tool(subject.job.target)
    with tempfile.TemporaryDirectory(prefix="hipwright-profile-") as name:
        folder = Path(name)
        write_job(folder, subject)
        access = GpuAccess(TARGETS.gpu(subject.job.target), index)
        place = ProfilerSandbox(folder, tool, access, contained=not unsafe, limit_s=limit_s)
        try:
            profiles, notes = _measure(subject, place)
        except CountersDenied as error:
            if not place.contained:
                raise
            place = place.outside()
            profiles, notes = _measure(subject, place)
            notes.append(f"profiled outside the sandbox, where the counters may be read ({error.message})")
    own = {kernel.name for kernel in subject.build.kernels}
    finished = tuple(_finish(profile, subject.build, own, bandwidth) for profile in profiles)
    return ProfileReport(
        target=subject.job.target, profiles=finished, tool=str(tool), contained=place.contained, notes=tuple(notes)
    )


def write_job(folder: Path, subject: ProfiledProgram) -> None:
    """Writes what `profiled_process` reads: the job, the code object, inputs and state."""
    (folder / JOB).write_text(subject.job.to_json())
    (folder / CODE).write_bytes(subject.code)
    handle = os.open(folder / DATA, os.O_CREAT | os.O_RDWR, 0o644)
    try:
        write_bundle(handle, {"inputs": subject.inputs, "state": subject.state})
    finally:
        os.close(handle)


def runner(folder: Path) -> list[str]:
    """The command line of the process under the profiler."""
    return [os.path.realpath(sys.executable), "-B", "-m", "hipwright.measure.profiling.profiled_process", str(folder)]


def _measure(subject: ProfiledProgram, place: ProfilerSandbox) -> tuple[list[Profile], list[str]]:
    profiler = PROFILERS[TARGETS.gpu(subject.job.target)]
    return profiler.measure(place, runner(place.inside), subject.arch.partition(":")[0], _launches)


def _launches(done: Done) -> list[dict[str, Any]]:
    """The launches of the program's own kernels, from the process's last line.

    Raises the error that the line reports.
    """
    line = next((text for text in reversed(done.stdout.splitlines()) if MARK in text), "")
    if not line:
        said = (done.stderr.strip() or done.stdout.strip())[-600:]
        check_permission(done.stdout + done.stderr)
        raise InfrastructureError(f"the profiled process ended with {done.returncode} before its work: {said}")
    reported: dict[str, Any] = json.loads(line.partition(MARK)[2])
    if "error" in reported:
        error = reported["error"]
        kind = CandidateError if error.get("fault") == "candidate" else DeviceError
        raise kind(str(error["message"]), status=error["status"], stage="measure")
    launches: list[dict[str, Any]] = reported["launches"]
    return launches


def _finish(profile: Profile, build: Build, own: set[str], bandwidth: float | None) -> Profile:
    """The profile with what the build knows (own kernels, scratch) and the bottleneck."""
    name = plain_name(profile.kernel)
    name = name if name in own else name.removeprefix(OWN)
    if name in own:
        known = next(kernel for kernel in build.kernels if kernel.name == name)
        scratch = profile.scratch_bytes if profile.scratch_bytes is not None else float(known.scratch_bytes)
        profile = msgspec.structs.replace(profile, kernel=name, scratch_bytes=scratch)
    profile = msgspec.structs.replace(profile, own=name in own)
    return msgspec.structs.replace(profile, bottleneck=diagnose(profile, bandwidth=bandwidth))
