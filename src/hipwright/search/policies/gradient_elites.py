"""MAP-Elites with gradient hints and template parameters, after KernelFoundry.

The grid is that of `islands` (4 x 4 x 4 by the descriptor), one for the run. The gradient of ln(time) over the three
axes is fitted by ridge regression to all verified programs. Of a parent, the axis with the largest expected gain, the
slope times the room left on the axis, gives the hint: the moves that lead along it (search/moves.py). Children are

    HINTED   one of the hint's moves
    PARAMETERS   one template parameter of the elite changed, every single change alike (`turn`)
    the rest  the operators that all policies share
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

from hipwright.records import Decision, Evaluation, Expansion
from hipwright.search.descriptor import AXES, coords
from hipwright.search.moves import (
    BLOCKS,
    MATRIX,
    MOVE,
    PACKED,
    RESIDENT,
    SMALLER,
    SPLIT_WORK,
    STAGE,
    STRENGTH,
    UNROLL,
    WIDER,
    Move,
)
from hipwright.search.policies.common import (
    beats,
    beats_best,
    breed,
    comparison,
    expansion,
    opening,
    ranked,
    rejected,
    time_of,
)
from hipwright.search.policies.islands import Grid
from hipwright.search.view import SearchView, Trial

HINTED, PARAMETERS = 0.45, 0.25
EXPLORE = 0.25
RIDGE = 0.05
LEAST = 4
"""Verified programs from which on a gradient is fitted."""

HINTS: dict[tuple[str, bool], tuple[Move, ...]] = {
    ("memory_level", True): (WIDER, STAGE),
    ("memory_level", False): (RESIDENT, BLOCKS),
    ("compute_level", True): (UNROLL, PACKED, MATRIX),
    ("compute_level", False): (STRENGTH, WIDER),
    ("parallelism_level", True): (SPLIT_WORK, SMALLER, RESIDENT),
    ("parallelism_level", False): (UNROLL, BLOCKS),
}
"""The moves that lead along an axis, up (True) or down."""


class GradientElites:
    """No settings."""

    def select(self, view: SearchView, k: int, rng: random.Random) -> list[Expansion]:
        """An elite, varied along the gradient, by a template parameter, or by an operator."""
        elites, slopes = ranked(grid(view).values()), gradient(view.verified)
        return [
            opening(view, number) or _child(view, number, elites or list(view.verified), slopes, rng)
            for number in range(view.next_number, view.next_number + k)
        ]

    def accept(self, view: SearchView, trial: Trial, evaluation: Evaluation) -> Decision:
        """Keeps what opens a cell or is faster than the cell's elite."""
        if not evaluation.passed:
            return rejected(trial, evaluation)
        cell = coords(evaluation)
        elite, best = grid(view).get(cell), beats_best(view, evaluation)
        kept = best or elite is None or beats(view, evaluation, elite)
        if best:
            reason = comparison(view, evaluation, view.best, "the best")
        else:
            reason = f"opens cell {cell}" if elite is None else comparison(view, evaluation, elite, f"cell {cell},")
        return Decision(number=trial.number, program=evaluation.program, kept=kept, best=best, reason=reason)


def grid(view: SearchView) -> Grid:
    """The fastest kept program of each cell."""
    found: Grid = {}
    for trial in view.verified:
        if trial.evaluation is not None and trial.decision is not None and trial.decision.kept:
            cell = coords(trial.evaluation)
            if cell not in found or beats(view, trial.evaluation, found[cell]):
                found[cell] = trial
    return found


def gradient(trials: Sequence[Trial]) -> tuple[float, ...]:
    """The slope of ln(time) along each axis, by ridge regression; zeros for fewer than LEAST programs."""
    rows = [(_place(t), math.log(time_of(t))) for t in trials if 0 < time_of(t) < math.inf]
    if len(rows) < LEAST:
        return (0.0,) * len(AXES)
    n = len(rows)
    middle = [sum(place[i] for place, _ in rows) / n for i in range(len(AXES))]
    mean = sum(value for _, value in rows) / n
    centred = [([x - m for x, m in zip(place, middle, strict=True)], value - mean) for place, value in rows]
    size = range(len(AXES))
    matrix = [[sum(x[i] * x[j] for x, _ in centred) + (RIDGE * n if i == j else 0.0) for j in size] for i in size]
    return _solved(matrix, [sum(x[i] * y for x, y in centred) for i in size])


def hint(trial: Trial, slopes: Sequence[float]) -> tuple[str, bool] | None:
    """(axis, whether up) with the largest expected gain from a program; None on a flat model."""
    found = [
        (-slope * (1.0 - at) if slope < 0 else slope * at, axis, slope < 0)
        for axis, at, slope in zip(AXES, _place(trial), slopes, strict=True)
    ]
    gain, axis, up = max(found)
    return (axis, up) if gain > 1e-9 else None


def _child(
    view: SearchView, number: int, elites: list[Trial], slopes: Sequence[float], rng: random.Random
) -> Expansion:
    weights = [1.0] * len(elites) if rng.random() < EXPLORE else [rank**-2.0 for rank in range(1, len(elites) + 1)]
    parent, drawn = rng.choices(elites, weights)[0], rng.random()
    program, found = parent.proposed.program, hint(parent, slopes)
    if drawn < HINTED and found is not None:
        move = rng.choice(HINTS[found])
        return expansion(view, number, "mutate", (program,), **{MOVE: move.name, "axis": found[0], "up": found[1]})
    if drawn < HINTED + PARAMETERS:
        return expansion(view, number, "turn", (program,))
    return breed(view, number, parent, elites, rng)


def _place(trial: Trial) -> list[float]:
    features = trial.evaluation.features if trial.evaluation is not None else {}
    values = [float(features.get(axis, 0.0)) for axis in AXES]
    return [min(max(value, 0.0), 1.0) if value == value else 0.0 for value in values]


def _solved(matrix: list[list[float]], right: list[float]) -> tuple[float, ...]:
    """The solution of a small positive definite system, by Gauss and Jordan."""
    rows = [[*row, value] for row, value in zip(matrix, right, strict=True)]
    for i, pivot in enumerate(rows):
        rows[i] = [value / pivot[i] for value in pivot]
        for j, row in enumerate(rows):
            if j != i:
                rows[j] = [value - row[i] * other for value, other in zip(row, rows[i], strict=True)]
    return tuple(row[-1] for row in rows)
