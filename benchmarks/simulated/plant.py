"""Plants faults in the assembly of a task's first program and has the verifier judge each, on a simulated target."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.simulated.mutations import AssemblyFault, faults, replaced
from hipwright.api.task_engine import task_engine
from hipwright.errors import GuardFailed, HipwrightError
from hipwright.evaluation import Evaluator
from hipwright.events import silent
from hipwright.machine import Machine
from hipwright.program import parse
from hipwright.records import Build, Program, Verdict
from hipwright.targets import TARGETS
from hipwright.tensors import tensor_leaves
from hipwright.toolchain.sim import build as simulated
from hipwright.toolchain.sim import runtime
from hipwright.verify import verify_cpu
from hipwright.verify.candidate import CandidateSession
from hipwright.verify.verification import Gate

TRAP = "\ts_trap 2"
CASES = 8
"""Families of each workload whose outputs are compared bit by bit."""


@dataclass(frozen=True)
class PlantedRow:
    """One fault and its end.

    ending: "found" where the verifier refused it, "no effect" where no output of any case has another value, "missed"
    where some have and it passed. status, message: of the verdict.
    """

    task: str
    kind: str
    line: int
    before: str
    after: str
    ending: str
    status: str
    message: str
    seconds: float


@dataclass(frozen=True)
class FaultySubject:
    """A task's first program, built for a simulated target."""

    evaluator: Evaluator
    target: str
    program: Program
    build: Build

    @classmethod
    def of(cls, evaluator: Evaluator, program: Program, target: str) -> FaultySubject:
        """The program, compiled."""
        parsed = parse(program.text)
        made = simulated.build(parsed.hip, target, parsed.defines(program.knobs), cache=evaluator.cache)
        return cls(evaluator, target, program, made)

    @property
    def assembly(self) -> str:
        """What clang wrote."""
        return self.evaluator.cache.get(self.build.isa_blob).decode()

    def judge(self, assembly: str, gate: Gate = "full") -> Verdict:
        """The verdict on the program with other machine code. Raises errors that are not the candidate's."""
        evaluator, wave = self.evaluator, TARGETS[self.target].architecture.wave
        build = simulated.from_assembly(assembly, self.target, self.build, evaluator.cache)
        return verify_cpu(
            parse(self.program.text),
            self.program,
            {(wave, checked): build for checked in (True, False)},
            evaluator.oracle,
            evaluator.candidates,
            waves=(wave,),
            limits=evaluator.limits,
            cache=evaluator.cache,
            gate=gate,
            executor=runtime.library(evaluator.cache),
        )

    def outputs(self, assembly: str) -> list[NDArray[np.float64]]:
        """Every output of every planned case that the program supports."""
        build = simulated.from_assembly(assembly, self.target, self.build, self.evaluator.cache)
        oracle, found = self.evaluator.oracle, []
        names = [planned.workload.name for planned in oracle.planned() if planned.role != "full"]
        cases = [oracle.case(name, family) for name in names for family in oracle.families(name)[:CASES]]
        with CandidateSession(
            self.evaluator.candidates,
            self.program,
            cases[0].state,
            so=self.evaluator.cache.path(build.blob),
            executor=runtime.library(self.evaluator.cache),
            wave=TARGETS[self.target].architecture.wave,
            limits=self.evaluator.limits,
        ) as session:
            for case in cases:
                with suppress(GuardFailed):
                    tree = session.run(case).tree
                    found += [leaf.to_f64() for leaf in tensor_leaves(tree)]
        return found

    def runs(self, line: int) -> bool:
        """Whether any verified case executes the line: a trap there is found."""
        verdict = self.judge(replaced(self.assembly, line, TRAP), "fast")
        return "a trap" in verdict.message


def planted(made: Machine, task: Path, target: str, each: int, seed: int) -> Iterator[PlantedRow]:
    """The rows of one task, of the lines that run. Raises HipwrightError where the program itself does not pass."""
    with made.open(task, seed=seed + 1, listener=silent) as bench:
        subject = FaultySubject.of(bench.evaluator, task_engine(bench).default(), target)
        assembly = subject.assembly
        honest = subject.judge(assembly, "fast")
        if not honest.passed:
            raise HipwrightError(f"{task.stem}: the program itself is refused: {honest.message}")
        executed: dict[int, bool] = {}
        expected = subject.outputs(assembly)
        for fault in faults(assembly, random.Random(f"{task.stem}/{target}/{seed}"), each):
            if fault.line not in executed:
                executed[fault.line] = subject.runs(fault.line)
            if executed[fault.line]:
                yield _row(subject, task.stem, fault, expected)


def _row(subject: FaultySubject, task: str, fault: AssemblyFault, expected: list[NDArray[np.float64]]) -> PlantedRow:
    start = time.perf_counter()
    changed = fault.into(subject.assembly)
    verdict = subject.judge(changed, "fast")
    if verdict.passed:
        verdict = subject.judge(changed)
    ending = "found"
    if verdict.passed:
        outputs = zip(subject.outputs(changed), expected, strict=True)
        same = all(np.array_equal(one, other, equal_nan=True) for one, other in outputs)
        ending = "no effect" if same else "missed"
    spent, text = round(time.perf_counter() - start, 2), fault.text.strip()
    message = verdict.message[:200]
    return PlantedRow(task, fault.kind, fault.line + 1, fault.before, text, ending, verdict.status, message, spent)
