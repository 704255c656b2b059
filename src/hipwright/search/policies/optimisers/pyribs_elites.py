"""pyribs as a reference arm: MAP-Elites with the line operator (Tjanaka et al., GECCO 2023; Vassiliades & Mouret 2018).

The grid is that of `islands` and `gradient_elites`: 4 x 4 x 4 by the descriptor. A program is the vector of its
choices' places among the values seen, each between 0 and 1; answers are rounded to a place. The grid is filled anew
from the run's trials for each question, so that the policy stays a function of the view.
"""

from __future__ import annotations

from typing import Any

from hipwright.search.descriptor import AXES
from hipwright.search.policies.optimisers.known_space import KnownSpace, OptimiserPolicy

CELLS = 4
ISO_SIGMA, LINE_SIGMA = 0.15, 0.3


class PyribsEmitter:
    """An Optimiser: the line operator over a grid of elites."""

    def asked(self, space: KnownSpace, count: int, seed: int) -> list[dict[str, Any]]:
        """Candidates bred from the grid's elites."""
        import numpy as np
        from ribs import archives, emitters

        keys = list(space.values)
        grid = archives.GridArchive(
            solution_dim=len(keys), dims=[CELLS] * len(AXES), ranges=[(0.0, 1.0)] * len(AXES), seed=seed
        )
        elites = [(trial, value) for trial, value in space.rows if trial.passed]
        grid.add(
            np.array([_vector(space, keys, trial) for trial, _ in elites]),
            np.array([-value for _, value in elites]),
            np.array([_place(trial) for trial, _ in elites]),
        )
        emitter = emitters.IsoLineEmitter(
            grid,
            iso_sigma=ISO_SIGMA,
            line_sigma=LINE_SIGMA,
            x0=np.array(_vector(space, keys, space.base)),
            lower_bounds=np.zeros(len(keys)),
            upper_bounds=np.ones(len(keys)),
            batch_size=count,
            seed=seed,
        )
        return [
            {key: space.values[key][_nearest(at, len(space.values[key]))] for key, at in zip(keys, answer, strict=True)}
            for answer in emitter.ask()
        ]


class PyribsElites(OptimiserPolicy):
    """No settings."""

    package = "ribs"
    optimiser = PyribsEmitter()


def _vector(space: KnownSpace, keys: list[str], trial: Any) -> list[float]:
    """The places of a program's values; of a choice that it has not, the base's."""
    places = [space.index(trial, key) for key in keys]
    base = [space.index(space.base, key) or 0 for key in keys]
    counts = [max(len(space.values[key]) - 1, 1) for key in keys]
    return [(own if own is not None else at) / n for own, at, n in zip(places, base, counts, strict=True)]


def _nearest(at: float, count: int) -> int:
    return min(max(round(float(at) * (count - 1)), 0), count - 1)


def _place(trial: Any) -> list[float]:
    features = trial.evaluation.features
    return [min(max(float(features.get(axis, 0.0)), 0.0), 1.0) for axis in AXES]
