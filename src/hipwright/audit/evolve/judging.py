"""Verdicts on wrong programs at the least cost: a library is compiled when a stage of the full gate first needs it."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping
from functools import partial

from hipwright.audit.verdicts import ObservedVerdict
from hipwright.errors import HipwrightError
from hipwright.evaluation import Evaluator
from hipwright.evaluation.results import build_verdict
from hipwright.program import Parsed, parse
from hipwright.records import Build, Program, Verdict
from hipwright.toolchain.cpu import build as cpu
from hipwright.verify import verify_cpu
from hipwright.verify.verification import UNCLAIMED

NEAR = 30.0
"""A wrong value of at most this many budgets almost passed."""
LATE_STAGES = ("second call", "orders", "races", "inputs", "contract", "barriers")


class NotBuilt(HipwrightError):
    """A library that a stage needs does not compile; carries the failed build."""

    def __init__(self, build: Build) -> None:
        super().__init__("the program does not compile")
        self.build = build


class LazyBuilds(Mapping[tuple[int, bool], Build]):
    """Builds of a program for the cpu target by (wave, checked), each compiled when it is first asked for."""

    def __init__(self, evaluator: Evaluator, parsed: Parsed) -> None:
        self._build = partial(cpu.build, parsed.hip, parsed.defines(), cache=evaluator.cache, unsafe=evaluator.unsafe)
        self._kinds = [(wave, checked) for wave in evaluator.waves for checked in (True, False)]
        self._built: dict[tuple[int, bool], Build] = {}

    def __getitem__(self, kind: tuple[int, bool]) -> Build:
        """The build. Raises KeyError for a wave that is not verified, NotBuilt where it does not compile."""
        if kind not in self._kinds:
            raise KeyError(kind)
        if kind not in self._built:
            self._built[kind] = self._build(wave=kind[0], checked=kind[1])
        if not self._built[kind].ok:
            raise NotBuilt(self._built[kind])
        return self._built[kind]

    def __iter__(self) -> Iterator[tuple[int, bool]]:
        return iter(self._kinds)

    def __len__(self) -> int:
        return len(self._kinds)


def verdict_on(evaluator: Evaluator, text: str) -> tuple[ObservedVerdict, Verdict]:
    """The full gate's verdict on the cpu target. Faults of the machine raise.

    coverage: of a pass, 0 where the outputs are right without the program's kernels, else None.
    """
    start = time.perf_counter()
    try:
        parsed = parse(text)
        builds = LazyBuilds(evaluator, parsed)
        builds[evaluator.waves[0], True]
        verdict = verify_cpu(
            parsed,
            Program(text=text),
            builds,
            evaluator.oracle,
            evaluator.candidates,
            waves=evaluator.waves,
            limits=evaluator.limits,
            cache=evaluator.cache,
        )
    except NotBuilt as error:
        verdict = build_verdict(error.build)
    except HipwrightError as error:
        verdict = error.verdict()
        if verdict.fault != "candidate":
            raise
    if verdict.passed:
        coverage = 0.0 if verdict.checks.get("noop_right") else None
        return ObservedVerdict(status="pass", coverage=coverage, seconds=time.perf_counter() - start), verdict
    unclaimed = bool(verdict.evidence.get(UNCLAIMED))
    return (
        ObservedVerdict(
            status=verdict.status,
            fault="candidate" if unclaimed else verdict.fault,
            stage=verdict.stage,
            message=verdict.message,
            family=verdict.family,
            seconds=time.perf_counter() - start,
        ),
        verdict,
    )


def nearness(verdict: Verdict, check: str) -> float:
    """How nearly a refused program passed, from 0 to 1: by its error, or by the lateness of the check."""
    if verdict.status == "wrong_value" and verdict.worst_error is not None:
        if verdict.worst_error <= 1.0:
            return 1.0
        return max(0.0, 1.0 - math.log(verdict.worst_error) / math.log(NEAR))
    if check in LATE_STAGES:
        return 0.6
    return 0.4 if verdict.family not in ("", "given", "normal") else 0.0
