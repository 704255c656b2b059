"""What a task's programs execute at the task's own size, counted by a simulated GPU: the first blocks of each launch.

Nothing is judged, and the task's code runs in this process: for your own tasks, not for a candidate.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from benchmarks.timing.sides import model_and_inputs
from hipwright.device.sim.launcher import FirstBlocks, SimLauncher
from hipwright.program import parse
from hipwright.program.lower.closures import lower
from hipwright.program.lower.trace import trace
from hipwright.records import KernelResources, Program
from hipwright.targets import Architecture
from hipwright.task.host import state as states
from hipwright.task.host.load import TaskModule
from hipwright.toolchain.cache import BuildCache
from hipwright.toolchain.sim import build as sim
from hipwright.toolchain.sim import runtime

LIMIT_S = 20.0
"""Processor seconds of a launch."""


@dataclass(frozen=True)
class CountedProgram:
    """kernels: their resources as AMD code. launches: as `SimLauncher.counted`; library: operators that the plan leaves
    to the library, as `program.lower.trace` records them."""

    kernels: tuple[KernelResources, ...]
    launches: tuple[dict[str, Any], ...]
    library: tuple[dict[str, Any], ...]


class CountedTask:
    """One task's inputs, made once for all of its programs.

    target: the simulated target whose machine code runs. caches: the architecture whose caches are modelled.
    """

    def __init__(self, path: Path, target: str, caches: Architecture, cache: BuildCache) -> None:
        self._target, self._caches, self._cache = target, caches, cache
        model, inputs = model_and_inputs(TaskModule(str(path), path.read_text()), torch.device("cpu"))
        self._inputs = inputs
        self._state = states.build(model, leaf=lambda tensor: tensor.detach())

    def counted(self, program: Program) -> CountedProgram | str:
        """The counts of one call; in words why there are none. Operators of the library are not run: a program that
        has some is not counted."""
        parsed = parse(program.text)
        library = [op for op in trace(parsed, program.knobs, self._state, self._inputs)["ops"] if op["out"]]
        if any(_computes(op) for op in library):
            return "leaves operators to the library"
        build = sim.build(parsed.hip, self._target, parsed.defines(program.knobs), cache=self._cache)
        if not build.ok:
            return (build.log.strip().splitlines() or ["does not compile"])[0][:160]
        launcher = SimLauncher(
            str(runtime.library(self._cache)),
            str(self._cache.path(build.blob)),
            parsed.signatures,
            checked=False,
            launch_limit_s=LIMIT_S,
            profiled=self._caches,
            first=FirstBlocks(),
        )
        plan = lower(parsed, program.knobs, self._state, launcher, allow_random=True)
        with torch.no_grad():
            plan.prepare()
            launcher.counted.clear()
            plan.forward(*self._inputs)
        return CountedProgram(build.kernels, tuple(launcher.counted), tuple(library))


def _computes(op: dict[str, Any]) -> bool:
    from hipwright.measure.cost import op_seconds

    return op_seconds(op) > 0.0
