"""The MAP grid: the fastest verified program of each cell of the descriptor (hipwright.search.descriptor)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hipwright.archive import Evaluated, TrialDetail
from hipwright.search.descriptor import AXES, LEVELS, coords
from hipwright.view.plots.best import comparable


@dataclass(frozen=True)
class Cell:
    """One cell. number: the proposal of its fastest program, None for an empty one; rank: 0 (slow) to 4 (the best)."""

    number: int | None = None
    score: float | None = None
    programs: int = 0
    rank: int = 0
    label: str = ""


@dataclass(frozen=True)
class Layer:
    """The cells of one level of parallelism: rows by use of memory, the highest first; columns by arithmetic."""

    level: int
    rows: list[list[Cell]]


@dataclass(frozen=True)
class MapGrid:
    """The layers, how many cells have a program, and how many there are."""

    layers: list[Layer]
    filled: int
    cells: int = LEVELS**3
    levels: tuple[int, ...] = tuple(range(LEVELS))
    axes: tuple[str, ...] = AXES


def map_grid(trials: Sequence[TrialDetail], evaluated: Mapping[int, Evaluated]) -> MapGrid | None:
    """The grid over all islands of a run; None where no program has features."""
    best: dict[tuple[int, int, int], TrialDetail] = {}
    count: dict[tuple[int, int, int], int] = {}
    for trial in comparable(trials):
        found = evaluated.get(trial.number)
        if found is None or not set(AXES) & found.evaluation.features.keys():
            continue
        cell = coords(found.evaluation)
        count[cell] = count.get(cell, 0) + 1
        if cell not in best or (trial.score or 0.0) < (best[cell].score or 0.0):
            best[cell] = trial
    if not best:
        return None
    fastest = min(trial.score or 0.0 for trial in best.values())
    layers = [
        Layer(z, [[_cell(best, count, (m, c, z), fastest) for c in range(LEVELS)] for m in reversed(range(LEVELS))])
        for z in range(LEVELS)
    ]
    return MapGrid(layers, len(best))


def _cell(
    best: Mapping[tuple[int, int, int], TrialDetail],
    count: Mapping[tuple[int, int, int], int],
    at: tuple[int, int, int],
    fastest: float,
) -> Cell:
    place = f"memory {at[0]}, arithmetic {at[1]}, parallelism {at[2]}"
    trial = best.get(at)
    if trial is None or trial.score is None:
        return Cell(label=f"{place}: empty")
    slower = trial.score / fastest if fastest else 1.0
    rank = next(rank for rank, limit in ((4, 1.0), (3, 1.25), (2, 2.0), (1, 4.0), (0, float("inf"))) if slower <= limit)
    label = f"{place}: #{trial.number}, {trial.score:.2f} µs ({trial.score_kind}), the fastest of {count[at]}"
    return Cell(trial.number, trial.score, count[at], rank, label)
