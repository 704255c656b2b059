"""What policies share: numbering, the starting actions, and the wording of decisions."""

from __future__ import annotations

from typing import Any

from hipwright.records import Decision, Evaluation, Expansion
from hipwright.search import fitness
from hipwright.search.view import Trial, View


def expansion(view: View, number: int, operator: str, parents: tuple[str, ...] = (), **action: Any) -> Expansion:
    """An expansion with the run's seed."""
    return Expansion(number=number, operator=operator, parents=parents, action=action, seed=view.seed)


def margin(view: View) -> float:
    """The relative gain that counts: the run setting "margin", else the model-noise band."""
    return float(view.settings.get("margin", fitness.MODEL_NOISE))


def beats_best(view: View, evaluation: Evaluation) -> bool:
    """True when a program that passed is faster than the best so far, or the first that passed."""
    if not evaluation.passed:
        return False
    best = view.best
    return best is None or best.evaluation is None or fitness.faster(evaluation, best.evaluation, margin(view))


def rejected(trial: Trial, evaluation: Evaluation) -> Decision:
    """The decision on a program that did not pass."""
    why = f"{evaluation.status}: {evaluation.message}" if evaluation.message else evaluation.status
    return Decision(number=trial.number, program=evaluation.program, kept=False, reason=f"not verified: {why}"[:300])


def against(view: View, evaluation: Evaluation, incumbent: Trial | None, name: str) -> str:
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
