"""The plausibility screener: ranks programs by whether they are worth an evaluation; it never decides a verdict.

The engine's screener reads the program's text (parser, hazards, limits) and two small regressions on the run's own
trials; the other asks a language model for two probabilities. Each prediction is stored with its proposal, so that
`calibration` can compare it with the outcome.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import exp, log
from typing import TYPE_CHECKING, Any

from hipwright.agents.screening.calibration import Calibration, EventCalibration, calibration
from hipwright.agents.screening.skill import Skill, skill
from hipwright.archive.log import AUTHOR_NOTE
from hipwright.errors import HipwrightError, InfrastructureError, OutOfBudget
from hipwright.llm.records import Message, ModelAnswer, Request
from hipwright.program import parse
from hipwright.records import Program
from hipwright.search import Proposal, ProposalRequest, SearchView, Trial, fitness
from hipwright.search.interfaces import INFRASTRUCTURE
from hipwright.search.operators import Choices, Space

if TYPE_CHECKING:
    from hipwright.agents.base import Tools
    from hipwright.agents.screening.fit import Chance, Scores

Write = Callable[[Choices], Proposal]

FEWEST = 4
"""The least number of scored trials for the score regression."""
_REFUSED = 0.02  # factor on the predictions of a program with a static problem
_WORST = 0.3
"""A usefulness below which a model's program may be screened out."""
_ANSWER_TOKENS = 1024


@dataclass(frozen=True)
class Prediction:
    """A prediction for one program. compiles, passes, better (than the first parent): probabilities, None if unknown.

    author: who predicts, "engine" or "llm". score: predicted, in the view's kind of score; gain: expected relative
    improvement on the best so far.
    """

    author: str
    compiles: float | None = None
    passes: float | None = None
    better: float | None = None
    score: float | None = None
    gain: float | None = None
    why: str = ""

    @property
    def usefulness(self) -> float:
        """The ranking figure: the probability to pass times the gain, if predicted."""
        chance = 1.0 if self.passes is None else self.passes
        return float(f"{chance * (1.0 if self.gain is None else self.gain):.6g}")

    def refused(self, why: str) -> Prediction:
        """Returns the prediction for a program with a static problem."""
        compiles, passes, better = (
            None if p is None else _REFUSED * p for p in (self.compiles, self.passes, self.better)
        )
        return replace(self, compiles=compiles, passes=passes, better=better, why=why)

    def notes(self) -> dict[str, Any]:
        """The prediction as stored with a proposal: rounded figures, unknown ones left out."""
        figures = {name: getattr(self, name) for name in ("compiles", "passes", "better", "score", "gain")}
        known = {name: float(f"{value:.4g}") for name, value in figures.items() if value is not None}
        return {AUTHOR_NOTE: self.author, **known, **({"why": self.why} if self.why else {})}


def static_problem(program: Program, targets: Sequence[str] = ()) -> str:
    """The problem that a program's text alone shows (parse error, hazard); "" for none."""
    if program.form != "program":
        return ""
    try:
        parse(program.text)
    except HipwrightError as error:
        return error.message[:200]
    from hipwright.program.hazards.report import hazards

    found = next((h for h in hazards(program.text, targets) if h.severity == "error"), None)
    return f"{found.name}: {found.message}"[:200] if found else ""


# ---------------------------------------------------------------- by the engine


class EngineScreener:
    """Predicts from a run's own trials. Deterministic; its only state is a cache of the latest view's fit.

    problem: program -> static problem, "" for none.
    """

    name = "screener"

    def __init__(self, space: Space, problem: Callable[[Program], str]) -> None:
        self._options = {key: tuple(choice.options) for key, choice in space.items()}
        self._read = problem
        self._fitted: tuple[SearchView, _Fit] | None = None
        self._skill: tuple[SearchView, Skill] | None = None
        self._problems: dict[str, str] = {}

    def choose(self, ask: ProposalRequest, draws: Sequence[Choices], write: Write) -> tuple[int, Proposal, Prediction]:
        """Returns (index, program, prediction) of the most useful draw that is new and without a static problem.

        Where the run's own events do not show that the predictions beat the base rate (`skill`), draws are taken as
        they come. They are written and checked in that order, as both cost more than the regressions. Without such a
        draw it returns the first duplicate, else one with a problem. Raises the error of `write` if all failed.
        """
        known = {trial.proposed.program for trial in ask.view.trials}
        found = self.predict(ask, draws)
        fallback: list[tuple[bool, int, Proposal, Prediction]] = []
        problem: Exception | None = None
        order = sorted(
            range(len(draws)), key=lambda n: (-found[n].usefulness, n) if self._trusted(ask.view) else (0, n)
        )
        for n in order:
            try:
                made = write(draws[n])
            except Exception as error:  # one set of choices that the engine cannot write
                problem = error
                continue
            why = self._problem(made.program)
            if not why and made.program.key not in known:
                return n, made, found[n]
            fallback.append((bool(why), n, made, found[n].refused(why) if why else found[n]))
        if not fallback and problem is not None:
            raise problem
        _, *chosen = min(fallback, key=lambda one: one[0])
        return tuple(chosen)  # type: ignore[return-value]

    def _trusted(self, view: SearchView) -> bool:
        """Whether the predictions of this run were better than its base rates."""
        if self._skill is None or self._skill[0] is not view:
            self._skill = view, skill(view)
        return self._skill[1].shown

    def predict(self, ask: ProposalRequest, draws: Sequence[Choices]) -> list[Prediction]:
        """Predicts each set of choices drawn for one ask, from the run's trials alone."""
        if self._fitted is None or self._fitted[0] is not ask.view:
            self._fitted = ask.view, _Fit.of(self._options, ask.view)
        fit = self._fitted[1]
        parent = _parent(ask)
        compiles, passes = fit.compiles.of(draws), fit.passes.of(draws)
        scores: Sequence[tuple[float, float] | None] = fit.scores.of(draws) if fit.scores else [None] * len(draws)
        return [_prediction(fit, parent, *figures) for figures in zip(compiles, passes, scores, strict=True)]

    def _problem(self, program: Program) -> str:
        if program.key not in self._problems:
            self._problems[program.key] = self._read(program)
        return self._problems[program.key]


def _prediction(
    fit: _Fit, parent: Trial | None, compiles: float, passes: float, scored: tuple[float, float] | None
) -> Prediction:
    from hipwright.agents.screening.fit import below, expected_gain

    if scored is None or fit.best is None:
        return Prediction("engine", compiles, passes)
    mean, deviation = scored
    better, before = None, fitness.score(parent.evaluation) if parent else None
    if before is not None:
        better = passes * fit.moves * below(log(before.value) + log(1 - fitness.MODEL_NOISE), mean, deviation)
    gain = expected_gain(fit.best, mean, deviation)
    return Prediction("engine", compiles, passes, better, score=exp(mean), gain=gain)


@dataclass(frozen=True)
class _Fit:
    """The regressions fitted to a view. best: the smallest log score of the fitted kind.

    moves: how often a child's score differs from its parent's beyond the noise; many changes have no effect.
    """

    compiles: Chance
    passes: Chance
    scores: Scores | None
    best: float | None
    moves: float

    @classmethod
    def of(cls, options: Mapping[str, Sequence[Any]], view: SearchView) -> _Fit:
        from hipwright.agents.screening.fit import Chance, Coding, Scores  # numpy: 60 ms that other commands save

        coding = Coding.of(options)
        judged = [t for t in view.trials if _informative(t, options)]
        statuses = [t.evaluation.status for t in judged if t.evaluation is not None]
        rows = [t.proposed.choices for t in judged]
        compiled = [status not in ("parse_error", "compile_error") for status in statuses]
        scored, logs = _scored(judged)
        fitted = Scores.fit(coding, [t.proposed.choices for t in scored], logs) if len(logs) >= FEWEST else None
        return cls(
            Chance.fit(coding, rows, compiled),
            Chance.fit(coding, rows, [status == "pass" for status in statuses]),
            fitted,
            min(logs) if fitted else None,
            _moves(view, judged),
        )


def _informative(trial: Trial, options: Mapping[str, Sequence[Any]]) -> bool:
    """Whether a trial says something about choices: evaluated without a machine fault, and written by the engine."""
    e, choices = trial.evaluation, trial.proposed.choices
    return e is not None and e.fault not in INFRASTRUCTURE and bool(choices) and choices.keys() <= options.keys()


def _scored(trials: Sequence[Trial]) -> tuple[list[Trial], list[float]]:
    """The trials with a score of the latest one's kind and basis, and their log scores; kinds are never mixed."""
    found = [(t, s) for t in trials if (s := fitness.score(t.evaluation)) is not None and s.value > 0]
    kept = [(t, s) for t, s in found if (s.kind, s.basis) == (found[-1][1].kind, found[-1][1].basis)]
    return [t for t, _ in kept], [log(s.value) for _, s in kept]


def _moves(view: SearchView, judged: Sequence[Trial]) -> float:
    """The share of verified children whose score moved beyond the noise band, with a prior of one in two."""
    by_program = {t.proposed.program: t.evaluation for t in view.verified}
    pairs = [(t.evaluation, by_program.get(key)) for t in judged for key in t.proposed.expansion.parents[:1]]
    gains = [fitness.gain(e, before) for e, before in pairs if e is not None and e.passed and before is not None]
    return (sum(abs(gain) > fitness.MODEL_NOISE for gain in gains) + 1.0) / (len(gains) + 2.0)


def prediction_from_rates(draft: Proposal, view: SearchView, problem: str) -> Prediction:
    """Predicts a model's program from the pass rates of models' programs in this run and its static problem."""
    evaluations = [t.evaluation for t in view.trials if t.evaluation is not None and t.proposed.author == "llm"]
    judged = [e for e in evaluations if e.fault not in INFRASTRUCTURE]
    compiled = sum(e.status not in ("parse_error", "compile_error") for e in judged)
    compiles = (compiled + 2.0) / (len(judged) + 3.0)
    passes = (sum(e.passed for e in judged) + 1.5) / (len(judged) + 3.0)
    predicted = Prediction("engine", compiles, passes)
    return predicted.refused(problem) if problem else predicted


def _parent(ask: ProposalRequest) -> Trial | None:
    keys = ask.expansion.parents[:1]
    return next((t for t in ask.view.verified if t.proposed.program in keys), None)


# ---------------------------------------------------------------- by a language model


class LlmScreener:
    """Asks a language model for predictions of programs that a language model wrote."""

    name = "screener"

    def __init__(self, tools: Tools) -> None:
        self._tools = tools

    def judge(self, drafts: Mapping[int, Proposal], seed: int) -> dict[int, Prediction]:
        """Returns predictions by proposal number, asked for concurrently; unreadable answers are left out.

        Raises ProviderError; with a spent budget the remaining programs are not screened.
        """
        requests = [self._request(number, draft, seed) for number, draft in sorted(drafts.items())]
        found: dict[int, Prediction] = {}
        for request, answer in zip(requests, self._tools.client.ask_all(requests), strict=True):
            if isinstance(answer, ModelAnswer):
                read = read_prediction(answer.text)
                if read is not None:
                    found[request.number] = read
            elif isinstance(answer, InfrastructureError) and not isinstance(answer, OutOfBudget):
                raise answer
        return found

    def _request(self, number: int, draft: Proposal, seed: int) -> Request:
        import random

        from hipwright.agents.base import fence, render

        tools = self._tools
        model = tools.lineup.choose(self.name, random.Random(f"{seed}/screener/{number}"))
        text = render(
            "screener",
            task=fence(tools.graph_text, "python"),
            program=fence(draft.program.text, "python"),
            targets=", ".join(tools.targets),
        )
        return Request(
            role=self.name,
            number=number,
            index=0,
            model=model,
            messages=(Message(role="user", text=text),),
            max_tokens=_ANSWER_TOKENS,
            temperature=0.0,
        )


def read_prediction(text: str) -> Prediction | None:
    """Reads "compile" and "plausible" from an answer with any text around them; None when one is missing."""
    compiles, plausible = (_probability(text, name) for name in ("compile", "plausible"))
    if compiles is None or plausible is None:
        return None
    return Prediction("llm", compiles, compiles * plausible)


_NUMBER = r"[\"']?{name}\w*[\"'*]*\s*[:=]\s*[\"'*]*(true|false|yes|no|[0-9]*\.?[0-9]+)\s*(%?)"
_WORDS = {"true": 1.0, "yes": 1.0, "false": 0.0, "no": 0.0}


def _probability(text: str, name: str) -> float | None:
    """The last figure given for a name, since conclusions come last. Percent where marked or above 1."""
    found = re.findall(_NUMBER.format(name=name), text, re.IGNORECASE)
    if not found:
        return None
    word, per_cent = found[-1]
    value = _WORDS.get(word.lower())
    if value is None:
        value = float(word)
        value = value / 100.0 if per_cent or value > 1.0 else value
    return min(value, 1.0)


def screened_out(predictions: Mapping[int, Prediction], written: int, round_size: int) -> list[int]:
    """Returns the numbers of the proposals that are not worth an evaluation, the worst first.

    written: the round's proposals by models. At most half of the round is screened out, and never all of them.
    """
    allowed = min(round_size // 2, written - 1)
    poor = [
        (p.usefulness, number)
        for number, p in predictions.items()
        if p.usefulness < _WORST and (p.why or p.author == "llm")  # pass rates alone say nothing against one program
    ]
    return [number for _, number in sorted(poor)[: max(allowed, 0)]]


__all__ = [
    "Calibration",
    "EngineScreener",
    "EventCalibration",
    "LlmScreener",
    "Prediction",
    "calibration",
    "prediction_from_rates",
    "read_prediction",
    "screened_out",
    "static_problem",
]
