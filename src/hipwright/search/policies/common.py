"""What policies share: numbering, the starting actions, ranks, breeding, and the wording of decisions."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from hipwright.records import Decision, Evaluation, Expansion
from hipwright.search import fitness
from hipwright.search.view import SearchView, Trial

OPERATOR_WEIGHTS = {"mutate": 0.45, "neighbour": 0.35, "crossover": 0.20}


def expansion(view: SearchView, number: int, operator: str, parents: tuple[str, ...] = (), **action: Any) -> Expansion:
    """An expansion with the run's seed."""
    return Expansion(number=number, operator=operator, parents=parents, action=action, seed=view.seed)


def opening(view: SearchView, number: int, **action: Any) -> Expansion | None:
    """The starting actions in order, then uniform samples while nothing is verified; None from then on."""
    if number < len(view.initial):
        return expansion(view, number, "default", **view.initial[number], **action)
    return None if view.verified else expansion(view, number, "random", **action)


def breed(
    view: SearchView, number: int, parent: Trial, mates: Iterable[Trial], rng: random.Random, **action: Any
) -> Expansion:
    """A child of `parent` by an operator drawn with OPERATOR_WEIGHTS; one to cross it with comes from `mates`."""
    operator = rng.choices(list(OPERATOR_WEIGHTS), list(OPERATOR_WEIGHTS.values()))[0]
    parents: tuple[str, ...] = (parent.proposed.program,)
    if operator == "crossover":
        others = [t for t in mates if t.proposed.program != parent.proposed.program]
        if others:
            parents = (*parents, rng.choice(others).proposed.program)
        else:
            operator = "mutate"
    return expansion(view, number, operator, parents, **action)


def time_of(trial: Trial) -> float:
    """What a trial's program takes (units of hipwright.search.fitness.Score); infinite for one without a score."""
    score = fitness.score(trial.evaluation)
    return score.value if score is not None else float("inf")


def ranked(trials: Iterable[Trial]) -> list[Trial]:
    """Fastest first; ties by number, so that the order never depends on anything else."""
    return sorted(trials, key=lambda trial: (time_of(trial), trial.number))


def by_program(view: SearchView) -> Mapping[str, Trial]:
    """The verified trials by their program's key."""
    return {trial.proposed.program: trial for trial in view.verified}


def parent_of(trial: Trial, known: Mapping[str, Trial]) -> Trial | None:
    """The trial that the first parent came from; None where the program was made from nothing."""
    parents: Sequence[str] = trial.proposed.expansion.parents
    return known.get(parents[0]) if parents else None


def margin(view: SearchView) -> float:
    """The relative gain that counts: the run setting "margin", else the model-noise band."""
    return float(view.settings.get("margin", fitness.MODEL_NOISE))


def beats_best(view: SearchView, evaluation: Evaluation) -> bool:
    """True when a program that passed is faster than the best so far, or the first that passed."""
    if not evaluation.passed:
        return False
    best = view.best
    return best is None or best.evaluation is None or fitness.faster(evaluation, best.evaluation, margin(view))


def rejected(trial: Trial, evaluation: Evaluation) -> Decision:
    """The decision on a program that did not pass."""
    why = f"{evaluation.status}: {evaluation.message}" if evaluation.message else evaluation.status
    return Decision(number=trial.number, program=evaluation.program, kept=False, reason=f"not verified: {why}"[:300])


def beats(view: SearchView, evaluation: Evaluation, incumbent: Trial | None) -> bool:
    """True when a program that passed is certainly faster than the incumbent, or there is none."""
    if incumbent is None or incumbent.evaluation is None:
        return True
    return fitness.faster(evaluation, incumbent.evaluation, margin(view))


def keep_if_best(view: SearchView, trial: Trial, evaluation: Evaluation, name: str) -> Decision:
    """Keep what is faster than the best so far, which goes by `name` in the reason."""
    if not evaluation.passed:
        return rejected(trial, evaluation)
    best = beats_best(view, evaluation)
    reason = against(view, evaluation, view.best, name)
    return Decision(number=trial.number, program=evaluation.program, kept=best, best=best, reason=reason)


def against(view: SearchView, evaluation: Evaluation, incumbent: Trial | None, name: str) -> str:
    """In words, how a program that passed compares with an incumbent."""
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
