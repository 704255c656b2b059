"""The contained process of a simulated profile: one call of a program on a simulated GPU that counts. Imports torch."""

from __future__ import annotations

from typing import Any

import torch

from hipwright.device.sim.launcher import SimLauncher
from hipwright.program import parse
from hipwright.program.lower.closures import lower
from hipwright.program.lower.table import to_device
from hipwright.sandbox import lockdown
from hipwright.targets import CPU, TARGETS
from hipwright.tensors import Tree

SERVICE = "hipwright.measure.profiling.simulated_process:SimulatedCall"


class SimulatedCall:
    """Service of a session. init: target, text, knobs, executor and so (paths), launch_limit_s; bundle: state table."""

    def __init__(self, init: dict[str, Any], state: Tree) -> None:
        parsed = parse(init["text"])
        self._launcher = SimLauncher(
            init["executor"],
            init["so"],
            parsed.signatures,
            launch_limit_s=float(init["launch_limit_s"]),
            profiled=TARGETS[init["target"]].architecture,
        )
        self._plan = lower(parsed, init["knobs"], state, self._launcher, allow_random=True, device=CPU.name)
        lockdown()

    def run(self, header: dict[str, Any], inputs: Tree) -> tuple[dict[str, Any], Tree]:
        """{"launches": as `SimLauncher.counted`} of one call. Raises CandidateError for what the program does wrong."""
        with torch.no_grad():
            self._plan.forward(*to_device(inputs, CPU.name))
        return {"launches": self._launcher.counted}, None
