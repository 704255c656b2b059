"""The vendors' profilers: where each is found, and how it counts one program."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from hipwright.errors import ToolchainError
from hipwright.measure.profile import Profile
from hipwright.measure.profile_amd import RocProfiler
from hipwright.measure.profile_exec import Done, ProfilerSandbox
from hipwright.measure.profile_nvidia import NsightCompute
from hipwright.targets import CUDA, ROCM, TARGETS, Target


class VendorProfiler(Protocol):
    """One vendor's profiler. program: its file's name; install: what to install where it is missing."""

    program: str
    install: str

    def places(self) -> list[Path]:
        """Where the program may be, best first."""
        ...

    def measure(
        self, place: ProfilerSandbox, runner: Sequence[str], arch: str, launches: Callable[[Done], list[dict[str, Any]]]
    ) -> tuple[list[Profile], list[str]]:
        """(a profile of each launch, notes). runner: the command line to profile; launches: reads its output."""
        ...


PROFILERS: dict[Target, VendorProfiler] = {CUDA: NsightCompute(), ROCM: RocProfiler()}
"""The registry of this layer: one entry a GPU runtime."""


def find_tool(target: str) -> Path:
    """Where the profiler of a GPU target is. Raises ToolchainError with what to install."""
    profiler = PROFILERS[TARGETS.gpu(target)]
    for path in profiler.places():
        if os.access(path, os.X_OK) and path.is_file():
            return path
    raise ToolchainError(f"no {profiler.program} on this machine", hint=profiler.install)
