"""A judge whose verdict depends on the first word of the program's text."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from msgspec.structs import replace

from hipwright.records import Build, Evaluation, Program, TargetResult, Timing, Verdict, Versus
from hipwright.train.environment import Environment
from hipwright.train.records import Clock, TrainingProblem
from hipwright.train.rewards import RewardFunction, reward

CORPUS = Path(__file__).parents[2] / "src/hipwright/audit/corpus"
SOURCE = (CORPUS / "tasks/row_sum.py").read_text()
PROGRAM = (CORPUS / "program/honest/row_sum_wave.py").read_text()


def answer(word: str) -> str:
    """A completion with a program whose verdict is the word's: fast, slow, wrong, broken."""
    return f"```python\n# {word}\n{PROGRAM}\n```"


class WordVerdictJudge:
    """fast: correct, speedup 2; slow: correct; wrong: compiles; broken: a fault of the device, `faults` times."""

    device = "none"
    clock: Clock = "device"

    def __init__(self, faults: int = 1_000_000) -> None:
        self.faults = faults
        self.asked: list[str] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        return None

    def submit(self, problem: TrainingProblem, program: Program) -> Future[Evaluation]:
        found: Future[Evaluation] = Future()
        found.set_result(self._judged(problem, program))
        return found

    def prefetch(self, problems: Sequence[TrainingProblem]) -> None:
        return None

    def _judged(self, problem: TrainingProblem, program: Program) -> Evaluation:
        word = program.text.lstrip().splitlines()[0].removeprefix("# ")
        self.asked.append(word)
        known: dict[str, Any] = {"task": problem.name, "program": program.key}
        if word == "broken" and self.faults > 0:
            self.faults -= 1
            return Evaluation(**known, status="unscorable", fault="device", message="the GPU fell off the bus")
        build = Build(target="cuda", ok=True)
        if word == "wrong":
            verdict = Verdict(status="wrong_value", fault="candidate", stage="verify", message="off by one")
            target = TargetResult(target="cuda", build=build, verdict=verdict)
            return Evaluation(**known, status="wrong_value", fault="candidate", targets={"cuda": target})
        speedup = 2.0 if word == "fast" else 0.8
        versus = Versus(
            baseline="eager",
            speedup=speedup,
            interval=(speedup - 0.05, speedup + 0.05),
            samples_ms=(1.0,),
            baseline_ms=(speedup,),
            pairs=1,
        )
        timing = Timing(device="none", architecture="none", median_ms=1.0, versus={"eager": versus}, floor_ms=0.25)
        target = TargetResult(target="cuda", build=build, verdict=Verdict(status="pass"), timing=timing)
        return Evaluation(**known, status="pass", targets={"cuda": target}, coverage=1.0)


def environment(name: str = "hipwright", faults: int = 1_000_000) -> Environment:
    return Environment(WordVerdictJudge(faults), reward(name))


OCCUPANCY = 0.75
"""The one shaping term of every evaluation of `ShapedJudge`, also of wrong ones."""


class ShapedJudge(WordVerdictJudge):
    """Gives every evaluation the metric `static_occupancy`."""

    def _judged(self, problem: TrainingProblem, program: Program) -> Evaluation:
        return replace(super()._judged(problem, program), features={"static_occupancy": OCCUPANCY})


def shaped_environment(function: RewardFunction) -> Environment:
    return Environment(ShapedJudge(), function)
