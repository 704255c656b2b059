"""The evaluation of one program: every stage in the caller's thread, on every target of the evaluator.

Cheap stages come first: parse, builds for every target at once, verification on the CPU and on the GPUs, the trace that
coverage and the static estimate need, and timing. The first stage that rejects decides; a stage that was not run says
why.
"""

from __future__ import annotations

from hipwright.errors import HipwrightError
from hipwright.evaluation.context import EvaluationContext
from hipwright.evaluation.modelnew_stages import ModelNewSchedule, as_modelnew, vet_stage
from hipwright.evaluation.program_stages import (
    PARSE,
    assess_stage,
    build_plan,
    build_stage,
    full_timing,
    trace_stage,
    untimed,
    verify_cpu_stage,
    verify_gpu_stage,
    verify_simulated_stage,
)
from hipwright.evaluation.results import Findings
from hipwright.evaluation.stages import EvaluationState, advance, conclude
from hipwright.program import parse
from hipwright.records import Evaluation, Program
from hipwright.targets import CPU
from hipwright.verify import Oracle
from hipwright.verify.hip_lint import LintWarning, lint
from hipwright.verify.verification import Gate


class Evaluator(EvaluationContext):
    """Evaluates programs of one task on the given targets. Safe to call from several threads."""

    def evaluate(
        self,
        program: Program,
        oracle: Oracle | None = None,
        *,
        thorough: bool = False,
        gate: Gate = "full",
        timed: bool = True,
    ) -> Evaluation:
        """Runs every stage; a fault of the candidate or the machine is reported inside the Evaluation.

        oracle: draws other inputs than the evaluator's own. thorough: also verify the other wave size, and time once
        more in a fresh process. gate: "fast" verifies less, for rewards (docs/score.md).
        """
        state = EvaluationState(program, Findings(self.targets, self.waves[0]))
        oracle = oracle or self.oracle
        if program.form == "modelnew":
            return self._modelnew(state, oracle, gate, timed)
        return conclude(self._program(state, oracle, thorough, gate, timed), self.handle.task.key)

    def lint(self, program: Program) -> list[LintWarning]:
        """Static warnings about the HIP source; they do not affect the verdict."""
        return lint(parse(program.text), self.amd)

    def _program(
        self, state: EvaluationState, oracle: Oracle, thorough: bool, gate: Gate, timed: bool
    ) -> EvaluationState:
        # it detects races and out-of-bounds accesses
        verify = [verify_cpu_stage(self, oracle, gate)] if CPU.name in self.targets else []
        verify += [verify_simulated_stage(self, name, oracle, gate) for name in self.simulated]
        verify += [verify_gpu_stage(self, name, oracle, gate) for name in self.gpus]
        for gpu in self.gpus.values() if gate == "full" and CPU.name not in self.targets else ():
            gpu.make_cases(oracle)
        if CPU.name in self.targets and not self.gpus:
            self.begin_judging(oracle)
        build = build_stage(build_plan(self, every_wave=thorough, sides=gate == "full"))
        state = advance(state, PARSE, build, *verify, trace_stage(self, oracle))
        for name in self.gpus:
            timing = full_timing(self, name, gate, again=thorough)
            state = advance(state, timing) if timed else untimed(state, name)
        return advance(state, assess_stage(self))

    def _modelnew(self, state: EvaluationState, oracle: Oracle, gate: Gate, timed: bool) -> Evaluation:
        state = advance(state, vet_stage(self))
        if state.converted is not None and CPU.name in self.targets:
            judged = self.evaluate(state.converted, oracle, gate=gate, timed=timed)
            return as_modelnew(judged, state.program)
        try:
            state = ModelNewSchedule(self, oracle, gate, timed).run(state)
        except HipwrightError as error:  # its process did not start
            state = state.ended(error.verdict())
        return conclude(state, self.handle.task.key)
