"""The candidate's process on the `cpu` and the simulated targets: lowers the plan, runs the kernels. Imports torch.

It holds inputs and parameters, never an expectation. All memory that the plan may access is guarded. A run returns data
for the parent to judge: outputs, buffers afterwards, which tensors share memory, which were changed.
"""

from __future__ import annotations

from typing import Any

from hipwright.device.cpu.launcher import CpuLauncher
from hipwright.device.sim.launcher import SimLauncher
from hipwright.program import parse
from hipwright.program.lower.trace import NoopLauncher, trace
from hipwright.sandbox import lockdown
from hipwright.tensors import Tree
from hipwright.verify.worker.program_subject import ProgramSubject
from hipwright.verify.worker.watched import RunSetting, WatchedCandidate


class CpuWorker:
    """Service of a candidate session.

    init: text, knobs, and for kernels that run: so (path), wave, launch_limit_s, repeats (path, `CpuLauncher`); on a
    simulated target executor (path) and checked, and so is the program that it runs. mode: "run"; "noop" replaces
    kernels by nothing; "trace" only traces. draws: whether the task draws random numbers. table: the state table.
    """

    def __init__(self, init: dict[str, Any], table: Tree) -> None:
        self.mode = init.get("mode", "run")
        self._init = init
        self._table = table
        self._parsed = parse(init["text"])
        self._knobs = {str(k): int(v) for k, v in init.get("knobs", {}).items()}
        if self.mode != "trace":
            self._live = WatchedCandidate(self._subject, table)
            self._live.prepare(RunSetting.of({"poison": init.get("poison", 0xA5)}))

    # ---------------------------------------------------------------- methods of the service

    def run(self, header: dict[str, Any], inputs: Tree) -> tuple[dict[str, Any], Tree]:
        """One forward call, as `WatchedCandidate.run`."""
        self._live.prepare(RunSetting.of(header))
        lockdown()
        return self._live.run(header, inputs)

    def mutate(self, header: dict[str, Any], table: Tree) -> tuple[dict[str, Any], Tree]:
        """Writes new values to every parameter and buffer at its address, but for the carried buffers."""
        self._live.mutate(table, frozenset(header["carried"]))
        return {}, None

    def kept(self, header: dict[str, Any], _: Tree) -> tuple[dict[str, Any], Tree]:
        """The outputs of an earlier call as they are now."""
        return {}, {"outputs": self._live.kept(str(header["keep"]))}

    def trace(self, header: dict[str, Any], inputs: Tree) -> tuple[dict[str, Any], Tree]:
        """Library operators and launches of the plan on these inputs (program.trace)."""
        found = trace(self._parsed, self._knobs, self._table, inputs, meta=bool(header.get("meta", True)))
        return found, None

    # ---------------------------------------------------------------- inside

    def _subject(self, setting: RunSetting, table: Tree) -> ProgramSubject:
        if self.mode == "noop":
            launcher: Any = NoopLauncher(poison=setting.poison)
        else:
            launcher = self._launcher(
                order=setting.order,
                seed=setting.seed,
                poison=setting.poison,
                launch_limit_s=float(self._init.get("launch_limit_s", 10.0)),
            )
        return ProgramSubject(self._parsed, self._knobs, table, launcher, draws=bool(self._init.get("draws")))

    def _launcher(self, **options: Any) -> CpuLauncher | SimLauncher:
        so, signatures = self._init["so"], self._parsed.signatures
        if executor := self._init.get("executor"):
            return SimLauncher(executor, so, signatures, checked=bool(self._init["checked"]), **options)
        return CpuLauncher(so, signatures, wave=int(self._init["wave"]), repeats=self._init.get("repeats"), **options)
