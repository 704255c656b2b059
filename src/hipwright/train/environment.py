"""The environment of learning: (task, completion, turns before) -> outcome and reward (docs/rewards.md).

Everything that trains goes through here: our own loops and the adapters to other libraries. With the same arguments and
the same verdict of the judge the answer is the same; the judge remembers programs, so a second look costs nothing.
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
from hipwright.train.evidence import unusable_words, words
from hipwright.train.judging.backends import FLOOR_US, REFERENCE_US
from hipwright.train.judging.protocols import ProgramJudge
from hipwright.train.records import AnswerOutcome, Clock, ScoredOutcome, TrainingProblem, Turn
from hipwright.train.rewards import RewardFunction

Reader = Callable[[str, TrainingProblem], Program | UnusableAnswer]
HACKS = ("hack", "impossible")
"""Proven ones: refused by rule, or faster than the work can be done, which the clock said twice by its full rules."""


def read(completion: str, problem: TrainingProblem) -> Program | UnusableAnswer:
    """The program in a completion, read as any model's answer (llm/answers/read.py); never executed, never raises."""
    found = read_answer(completion, task_source=problem.source)
    return found if isinstance(found, UnusableAnswer) else found.program


class Environment:
    """judge: what judges, opened and closed with the environment; reward: of one group; read: completion -> program.

    A context manager; safe to use from several threads.
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
        """The outcome to come; judging goes on in the background. history: the turns before, oldest first."""
        program = self._read(completion, problem)
        answer: Future[AnswerOutcome] = Future()
        if isinstance(program, UnusableAnswer):
            answer.set_result(no_program(program))
            return answer

        def told(judged: Future[Evaluation]) -> None:
            try:
                answer.set_result(outcome(judged.result(), program, history, self.judge.clock))
            except BaseException as error:  # the judge was closed, or a fault of ours: whoever waits must hear of it
                answer.set_exception(error)

        self.judge.submit(problem, program).add_done_callback(told)
        return answer

    def sharing(self, stage: str = "policy") -> AbstractContextManager[None]:
        """Around the caller's own work on a GPU that the judge may time on; see `LocalJudge.sharing`. A judge that
        shares nothing waits for nothing."""
        shares = getattr(self.judge, "sharing", None)
        return shares(stage) if shares is not None else nullcontext()

    def score(self, problem: TrainingProblem, completion: str, history: Sequence[Turn] = ()) -> ScoredOutcome:
        """One completion, as a group of its own."""
        return self.score_group(problem, [completion], [history])[0]

    def score_group(
        self, problem: TrainingProblem, completions: Sequence[str], histories: Sequence[Sequence[Turn]] | None = None
    ) -> list[ScoredOutcome]:
        """The completions of one prompt, scored as a group, in order; judged side by side."""
        before = histories if histories is not None else [()] * len(completions)
        waiting = [self.submit(problem, text, turns) for text, turns in zip(completions, before, strict=True)]
        return self.reward([future.result() for future in waiting])


# ---------------------------------------------------------------- evaluation -> outcome


def outcome(
    evaluation: Evaluation, program: Program, history: Sequence[Turn] = (), clock: Clock = "device"
) -> AnswerOutcome:
    """What an evaluation says of an answer. clock: the judge's; a speedup is told only from what it names."""
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
        evidence=words(evaluation, program, history),
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


def no_program(found: UnusableAnswer) -> AnswerOutcome:
    """The outcome of a completion that holds no program."""
    return AnswerOutcome(
        status="parse_error",
        fault="candidate",
        stage="parse",
        message=clean(found.message, 500),
        evidence=unusable_words(found),
    )


def _measured(evaluation: Evaluation) -> dict[str, object]:
    """Against the strongest baseline that was timed."""
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
    """Of the static estimate: against the reference, each of its operators one library call. It has no interval."""
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
    """The evaluation's features, and the measured roofline fraction in place of the estimated one."""
    found = dict(evaluation.features)
    timing = _timing(evaluation)
    if timing is not None and timing.roofline_fraction is not None:
        found["roofline_fraction"] = timing.roofline_fraction
    if evaluation.own_time is not None:
        found["own_time"] = evaluation.own_time
    return found
