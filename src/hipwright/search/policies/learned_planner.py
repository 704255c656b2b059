"""Planning apart from coding, by a planner that is trained on the archive's own events (after MTMC, arXiv:2511.20100).

In MTMC a planner that was trained by reinforcement chooses the next optimisation and another model writes it. Here the
planner is a logistic classifier: how likely is a plan, a move or an operator on a parent, to give a verified program
that is faster beyond the noise? Its features are the plan, the plan with what limits the parent, and the parent's rank.
It begins with the weights that the archive's earlier runs gave (the run setting "learned", {"planner": weights}, by
`train`), goes on with the run's own trials, and the plan is drawn with weight p^2; the share RANDOM is drawn evenly,
which keeps the planner supplied with plans that it does not believe in.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Mapping

from hipwright.records import Decision, Evaluation, Expansion
from hipwright.search import fitness
from hipwright.search.moves import EVERY_MOVE, MOVE
from hipwright.search.policies.common import (
    LEARNED,
    OPERATOR_WEIGHTS,
    by_program,
    expansion,
    keep_if_best,
    opening,
    parent_of,
    ranked,
)
from hipwright.search.view import SearchView, Trial

BASES, RANDOM = 3, 0.15
PLANS = (*EVERY_MOVE, *OPERATOR_WEIGHTS)
RATE, DECAY, EPOCHS = 0.2, 0.01, 3

Features = dict[str, float]
Row = tuple[Features, bool]


class LearnedPlanner:
    """Run setting "learned": {"planner": {feature: weight}} of earlier runs."""

    def select(self, view: SearchView, k: int, rng: random.Random) -> list[Expansion]:
        """Draws a plan on one of the fastest programs by its chance."""
        elites = ranked(view.verified)[:BASES]
        begun = (view.settings.get(LEARNED) or {}).get("planner") or {}
        weights = train(rows_of(view), begun)
        return [
            opening(view, number) or _planned(view, number, elites, weights, rng)
            for number in range(view.next_number, view.next_number + k)
        ]

    def accept(self, view: SearchView, trial: Trial, evaluation: Evaluation) -> Decision:
        """Keeps what is faster than the best so far."""
        return keep_if_best(view, trial, evaluation, "the best")


def features(plan: str, limit: str, rank: int) -> Features:
    """The features of a plan on a program. rank: of the program among the verified ones, 0 for the fastest."""
    return {"bias": 1.0, f"plan {plan}": 1.0, f"plan {plan} on {limit or 'unknown'}": 1.0, "rank": min(rank, 8) / 8}


def chance(weights: Mapping[str, float], found: Features) -> float:
    """The predicted chance of a faster program."""
    return 1.0 / (1.0 + math.exp(-sum(weights.get(name, 0.0) * value for name, value in found.items())))


def train(rows: Iterable[Row], weights: Mapping[str, float]) -> dict[str, float]:
    """Logistic regression by gradient steps in the rows' order, from `weights`, with weight decay."""
    learnt, seen = {"bias": -1.5, **weights}, list(rows)
    for _ in range(EPOCHS):
        for found, better in seen:
            miss = float(better) - chance(learnt, found)
            for name, value in found.items():
                now = learnt.get(name, 0.0)
                learnt[name] = now + RATE * (miss * value - DECAY * now)
    return {name: round(value, 5) for name, value in sorted(learnt.items())}


def rows_of(view: SearchView) -> list[Row]:
    """A row for each of the view's children: its plan, and whether it was certainly faster than its parent."""
    known, rows = by_program(view), list[Row]()
    for trial in view.trials:
        parent = parent_of(trial, known)
        if parent is None or parent.evaluation is None or trial.evaluation is None:
            continue
        plan = plan_of(trial)
        if plan in PLANS and trial.evaluation.fault in (None, "candidate"):
            counted = view.counted.get(parent.proposed.program)
            rank = int(trial.proposed.expansion.action.get("rank", 0))
            better = fitness.faster(trial.evaluation, parent.evaluation)
            rows.append((features(plan, counted.limit if counted else "", rank), better))
    return rows


def plan_of(trial: Trial) -> str:
    """The plan that a trial followed: the move that its author made, else its operator."""
    move = trial.proposed.expansion.action.get(MOVE) or trial.proposed.notes.get(MOVE)
    return str(move or trial.proposed.expansion.operator)


def _planned(
    view: SearchView, number: int, elites: list[Trial], weights: Mapping[str, float], rng: random.Random
) -> Expansion:
    plans = []
    for rank, parent in enumerate(elites):
        counted = view.counted.get(parent.proposed.program)
        for plan in PLANS:
            if plan != "crossover" or len(elites) > 1:
                likely = chance(weights, features(plan, counted.limit if counted else "", rank))
                plans.append((likely, rank, parent, plan))
    even = rng.random() < RANDOM
    likely, rank, parent, plan = rng.choices(plans, [1.0 if even else one[0] ** 2 for one in plans])[0]
    program, action = parent.proposed.program, {"rank": rank, "chance": round(likely, 4)}
    if plan in EVERY_MOVE:
        return expansion(view, number, "mutate", (program,), **{MOVE: plan, **action})
    if plan == "crossover":
        other = rng.choice([one.proposed.program for one in elites if one is not parent])
        return expansion(view, number, plan, (program, other), **action)
    return expansion(view, number, plan, (program,), **action)
