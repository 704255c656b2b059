"""Helpers of all policies: starting expansions, ranking, breeding, and the reasons of decisions."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from hipwright.records import Decision, Evaluation, Expansion
from hipwright.search import fitness
from hipwright.search.view import START, SearchView, Trial

LEARNED = "learned"
"""The run setting with what earlier runs of the archive taught a policy (agents/learned.py)."""
OPERATOR_WEIGHTS = {"mutate": 0.45, "neighbour": 0.35, "crossover": 0.20}


def expansion(view: SearchView, number: int, operator: str, parents: tuple[str, ...] = (), **action: Any) -> Expansion:
    """Returns an expansion with the run's seed."""
    return Expansion(number=number, operator=operator, parents=parents, action=action, seed=view.seed)


def first(view: SearchView, number: int, **action: Any) -> Expansion:
    """Returns a starting action: the caller's own program, or choices of the engine."""
    given = view.initial[number]
    return expansion(view, number, START if START in given else "default", **given, **action)


def opening(view: SearchView, number: int, **action: Any) -> Expansion | None:
    """Returns a starting action, or a uniform sample while nothing is verified; None once there is a parent."""
    if number < len(view.initial):
        return first(view, number, **action)
    return None if view.verified else expansion(view, number, "random", **action)


def breed(
    view: SearchView, number: int, parent: Trial, mates: Iterable[Trial], rng: random.Random, **action: Any
) -> Expansion:
    """Returns an expansion of `parent` by an operator drawn with OPERATOR_WEIGHTS; `mates`: partners of a crossover."""
    operator = rng.choices(list(OPERATOR_WEIGHTS), list(OPERATOR_WEIGHTS.values()))[0]
    parents: tuple[str, ...] = (parent.proposed.program,)
    if operator == "crossover":
        others = [t for t in mates if t.proposed.program != parent.proposed.program]
        if others:
            parents = (*parents, rng.choice(others).proposed.program)
        else:
            operator = "mutate"
    return expansion(view, number, operator, parents, **action)


def signature_of(choices: Mapping[str, Any]) -> str:
    """The text by which equal choices are found."""
    return repr(sorted(choices.items()))


def time_of(trial: Trial) -> float:
    """The score's value (hipwright.search.fitness.Score) of a trial's program; infinite without a score."""
    score = fitness.score(trial.evaluation)
    return score.value if score is not None else float("inf")


def ranked(trials: Iterable[Trial]) -> list[Trial]:
    """Sorts trials, fastest first; ties by number."""
    return sorted(trials, key=lambda trial: (time_of(trial), trial.number))


def by_program(view: SearchView) -> Mapping[str, Trial]:
    """The verified trials by program key."""
    return {trial.proposed.program: trial for trial in view.verified}


def parent_of(trial: Trial, known: Mapping[str, Trial]) -> Trial | None:
    """The trial of the first parent; None for a program without a parent."""
    parents: Sequence[str] = trial.proposed.expansion.parents
    return known.get(parents[0]) if parents else None


def log_gain(trial: Trial, parent: Trial) -> float:
    """ln(parent's time / the trial's); 0.0 where one of them has none."""
    before, after = time_of(parent), time_of(trial)
    return math.log(before / after) if 0 < before < math.inf and 0 < after < math.inf else 0.0


def margin(view: SearchView) -> float:
    """The least relative gain that counts: the run setting "margin", else MODEL_NOISE."""
    return float(view.settings.get("margin", fitness.MODEL_NOISE))


def beats_best(view: SearchView, evaluation: Evaluation) -> bool:
    """Whether a program passed and is faster than the best so far, or is the first that passed."""
    if not evaluation.passed:
        return False
    best = view.best
    return best is None or best.evaluation is None or fitness.faster(evaluation, best.evaluation, margin(view))


def rejected(trial: Trial, evaluation: Evaluation) -> Decision:
    """Returns the decision on a program that did not pass."""
    why = f"{evaluation.status}: {evaluation.message}" if evaluation.message else evaluation.status
    return Decision(number=trial.number, program=evaluation.program, kept=False, reason=f"not verified: {why}"[:300])


def beats(view: SearchView, evaluation: Evaluation, incumbent: Trial | None) -> bool:
    """Whether a program that passed is certainly faster than the incumbent; True without an incumbent."""
    if incumbent is None or incumbent.evaluation is None:
        return True
    return fitness.faster(evaluation, incumbent.evaluation, margin(view))


def keep_if_best(view: SearchView, trial: Trial, evaluation: Evaluation, name: str) -> Decision:
    """Keeps what is faster than the best so far; `name` stands for that in the reason."""
    if not evaluation.passed:
        return rejected(trial, evaluation)
    best = beats_best(view, evaluation)
    reason = comparison(view, evaluation, view.best, name)
    return Decision(number=trial.number, program=evaluation.program, kept=best, best=best, reason=reason)


def comparison(view: SearchView, evaluation: Evaluation, incumbent: Trial | None, name: str) -> str:
    """Describes how a program that passed compares with an incumbent."""
    if incumbent is None or incumbent.evaluation is None:
        return f"first verified program ({name})"
    gain = fitness.gain(evaluation, incumbent.evaluation)
    if fitness.faster(evaluation, incumbent.evaluation, margin(view)):
        return f"{gain:.1%} faster than {name} #{incumbent.number}"
    score = fitness.score(evaluation)
    if gain > 0 and score is not None:
        bound = f"the {margin(view):.0%} band" if score.kind == "estimate" else "the interval"
        return f"{gain:.1%} faster than {name} #{incumbent.number}, within {bound}"
    return f"not faster than {name} #{incumbent.number}"
