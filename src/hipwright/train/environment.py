"""The environment of training: (task, completion, earlier turns) -> outcome and reward (docs/rewards.md).

The loops of this package and the adapters to other libraries all use it. Equal arguments and an equal verdict of the
judge give an equal result. Judges cache verdicts, so that a program is judged once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, nullcontext
from math import isfinite
from statistics import median
from types import TracebackType
from typing import Self

from hipwright.agents.evidence import clean, deciding_verdict
from hipwright.evaluation.bench import compiled
from hipwright.llm.answers.read import read_answer
from hipwright.llm.answers.repair import UnusableAnswer
from hipwright.records import Evaluation, Program, Timing
from hipwright.train.evidence import describe_evaluation, describe_unusable_answer
from hipwright.train.judging.backends import FLOOR_US, REFERENCE_US
from hipwright.train.judging.protocols import ProgramJudge
from hipwright.train.records import AnswerOutcome, Clock, ScoredOutcome, TrainingProblem, Turn
from hipwright.train.rewards import RewardFunction
from hipwright.train.shaping import static_record

Reader = Callable[[str, TrainingProblem], Program | UnusableAnswer]
HACKS = ("hack", "impossible")
"""Statuses of a proven hack: refused by a rule, or faster than the hardware allows in two measurements."""


def read(completion: str, problem: TrainingProblem) -> Program | UnusableAnswer:
    """The program in a completion, or why it holds none (llm/answers/read.py). Executes nothing and never raises."""
    found = read_answer(completion, task_source=problem.source)
    return found if isinstance(found, UnusableAnswer) else found.program


class Environment:
    """Judges completions and rewards them by group.

    judge: opened and closed with the environment. reward: the reward function of a group. read: finds the program in a
    completion. A context manager; safe to use from several threads.
    """

    def __init__(self, judge: ProgramJudge, reward: RewardFunction, read: Reader = read) -> None:
        self.judge = judge
        self.reward = reward
        self._read = read

    def __enter__(self) -> Self:
        self.judge.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.judge.__exit__(kind, error, tb)

    def submit(self, problem: TrainingProblem, completion: str, history: Sequence[Turn] = ()) -> Future[AnswerOutcome]:
        """The future outcome; judging runs in the background. history: earlier turns, oldest first."""
        program = self._read(completion, problem)
        answer: Future[AnswerOutcome] = Future()
        if isinstance(program, UnusableAnswer):
            answer.set_result(unusable_outcome(program))
            return answer

        def deliver(judged: Future[Evaluation]) -> None:
            try:
                answer.set_result(outcome(judged.result(), program, history, self.judge.clock))
            except BaseException as error:  # the judge was closed, or a defect here: the waiting thread must see it
                answer.set_exception(error)

        self.judge.submit(problem, program).add_done_callback(deliver)
        return answer

    def timing_paused(self, stage: str = "policy") -> AbstractContextManager[None]:
        """A block during which the judge times nothing; see `LocalJudge.timing_paused`. Judges without that method
        need no pause."""
        pause = getattr(self.judge, "timing_paused", None)
        return pause(stage) if pause is not None else nullcontext()

    def score(self, problem: TrainingProblem, completion: str, history: Sequence[Turn] = ()) -> ScoredOutcome:
        """The scored outcome of one completion, as a group of its own."""
        return self.score_group(problem, [completion], [history])[0]

    def score_group(
        self, problem: TrainingProblem, completions: Sequence[str], histories: Sequence[Sequence[Turn]] | None = None
    ) -> list[ScoredOutcome]:
        """The scored outcomes of one prompt's completions, in order; the completions are judged concurrently."""
        earlier = histories if histories is not None else [()] * len(completions)
        waiting = [self.submit(problem, text, turns) for text, turns in zip(completions, earlier, strict=True)]
        return self.reward([future.result() for future in waiting])


# ---------------------------------------------------------------- evaluation -> outcome


def outcome(
    evaluation: Evaluation, program: Program, history: Sequence[Turn] = (), clock: Clock = "device"
) -> AnswerOutcome:
    """The outcome of an evaluated answer. clock: the judge's; the speedup is taken from that source alone."""
    _, verdict = deciding_verdict(evaluation)
    passed = evaluation.passed
    figures = {}
    if passed and clock == "device":
        figures = _measured(evaluation)
    elif passed and clock == "estimate":
        figures = _estimated(evaluation)
    return AnswerOutcome(
        status=evaluation.status,
        fault=evaluation.fault,
        stage=verdict.stage if verdict is not None else "",
        message=clean(evaluation.message, 500),
        evidence=describe_evaluation(evaluation, program, history),
        compiled=compiled(evaluation),
        correct=passed,
        hack=evaluation.status in HACKS and evaluation.fault in (None, "candidate"),
        coverage=evaluation.coverage if passed else 0.0,
        own_time=evaluation.own_time,
        metrics=_metrics(evaluation),
        program=program.key,
        seconds=evaluation.seconds,
        **figures,  # type: ignore[arg-type]
    )


def unusable_outcome(found: UnusableAnswer) -> AnswerOutcome:
    """The outcome of a completion that holds no program."""
    return AnswerOutcome(
        status="parse_error",
        fault="candidate",
        stage="parse",
        message=clean(found.message, 500),
        evidence=describe_unusable_answer(found),
    )


def _measured(evaluation: Evaluation) -> dict[str, object]:
    """Speedup and times against the strongest baseline that was timed."""
    timing = _timing(evaluation)
    known = [one for one in timing.versus.values() if isfinite(one.speedup)] if timing else []
    if timing is None or not known:
        return {}
    versus = min(known, key=lambda one: one.speedup)
    return {
        "clock": "device",
        "device": timing.device,
        "baseline": versus.baseline,
        "speedup": versus.speedup,
        "low": versus.interval[0],
        "high": versus.interval[1],
        "base_ms": median(versus.baseline_ms) if versus.baseline_ms else None,
        "time_ms": timing.median_ms,
        "floor_ms": timing.floor_ms,
    }


def _estimated(evaluation: Evaluation) -> dict[str, object]:
    """Speedup and times by the static estimate, against the reference with a library call for each operator.

    The interval is empty: low and high equal the speedup.
    """
    base, floor = evaluation.features.get(REFERENCE_US), evaluation.features.get(FLOOR_US)
    if not base or not evaluation.score or evaluation.score_kind != "estimate":
        return {}
    speedup = base / evaluation.score
    return {
        "clock": "estimate",
        "baseline": "library",
        "speedup": speedup,
        "low": speedup,
        "high": speedup,
        "base_ms": base / 1e3,
        "time_ms": evaluation.score / 1e3,
        "floor_ms": floor / 1e3 if floor else None,
    }


def _timing(evaluation: Evaluation) -> Timing | None:
    return next((result.timing for result in evaluation.targets.values() if result.timing is not None), None)


def _metrics(evaluation: Evaluation) -> dict[str, float]:
    """The evaluation's features and static record, the measured roofline fraction if there is one, and own_time."""
    found = {**static_record(evaluation), **evaluation.features}
    timing = _timing(evaluation)
    if timing is not None and timing.roofline_fraction is not None:
        found["roofline_fraction"] = timing.roofline_fraction
    if evaluation.own_time is not None:
        found["own_time"] = evaluation.own_time
    return found
