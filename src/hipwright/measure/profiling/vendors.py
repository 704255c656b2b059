"""The vendors' profilers: where each is installed, and how it profiles one program."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from hipwright.errors import ToolchainError
from hipwright.measure.profiling.amd import RocProfiler
from hipwright.measure.profiling.nvidia import NsightCompute
from hipwright.measure.profiling.profile import Profile
from hipwright.measure.profiling.profiler_sandbox import Done, ProfilerSandbox
from hipwright.targets import CUDA, ROCM, TARGETS, Target


class VendorProfiler(Protocol):
    """One vendor's profiler. program: its file's name; install: what to install where it is missing."""

    program: str
    install: str

    def places(self) -> list[Path]:
        """Paths where the program may be, the preferred one first."""
        ...

    def measure(
        self, place: ProfilerSandbox, runner: Sequence[str], arch: str, launches: Callable[[Done], list[dict[str, Any]]]
    ) -> tuple[list[Profile], list[str]]:
        """(a profile of each launch, notes). runner: the command line to profile; launches: reads its output."""
        ...


PROFILERS: dict[Target, VendorProfiler] = {CUDA: NsightCompute(), ROCM: RocProfiler()}
"""One entry for each GPU runtime."""


def find_tool(target: str) -> Path:
    """The path of a GPU target's profiler. Raises ToolchainError with what to install."""
    profiler = PROFILERS[TARGETS.gpu(target)]
    for path in profiler.places():
        if os.access(path, os.X_OK) and path.is_file():
            return path
    raise ToolchainError(f"no {profiler.program} on this machine", hint=profiler.install)
