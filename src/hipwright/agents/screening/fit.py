"""Two small regressions on one-hot choices, fitted to the trials of a run, in numpy.

`Chance`: logistic regression with a ridge prior around the base rate (Newton's method). `Scores`: Bayesian linear
regression of the log score; the widths of prior and noise maximise the marginal likelihood (Bishop 2006, chapter 3).
Deterministic: the same rows give the same figures, which callers round before comparing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import erf, exp, pi, sqrt
from typing import Any

import numpy as np

Choices = Mapping[str, Any]
Array = np.ndarray[Any, np.dtype[np.float64]]

PRIOR_PASSES, PRIOR_FAILURES = 4.0, 1.0
"""Pseudo-counts of the prior: four programs of five pass."""
_SPREAD = 1.5  # standard deviation of a choice's effect on the log odds
_EFFECTS = (0.05, 0.15, 0.4)  # of a choice's effect on the log score
_NOISES = (0.02, 0.06, 0.2)


@dataclass(frozen=True)
class Coding:
    """The column of every (key, value) of a space."""

    columns: Mapping[tuple[str, Any], int]

    @classmethod
    def of(cls, options: Mapping[str, Sequence[Any]]) -> Coding:
        """One column per option of each choice with several options."""
        pairs = [(key, value) for key in sorted(options) if len(options[key]) > 1 for value in options[key]]
        return cls({pair: number for number, pair in enumerate(pairs)})

    def rows(self, many: Sequence[Choices]) -> Array:
        """One-hot rows, shape (len(many), columns)."""
        out = np.zeros((len(many), len(self.columns)))
        for row, choices in enumerate(many):
            for item in choices.items():
                column = self.columns.get(item)
                if column is not None:
                    out[row, column] = 1.0
        return out


@dataclass(frozen=True)
class Chance:
    """The fitted probability of one event."""

    coding: Coding
    weights: Array
    offset: float

    @classmethod
    def fit(cls, coding: Coding, rows: Sequence[Choices], happened: Sequence[bool]) -> Chance:
        """Fits to observed outcomes; without rows it is the prior."""
        passes, failures = PRIOR_PASSES + sum(happened), PRIOR_FAILURES + len(happened) - sum(happened)
        offset = float(np.log(passes / failures))
        x = coding.rows(rows)
        weights = np.zeros(x.shape[1])
        if 0 < sum(happened) < len(happened):  # with one outcome only, choices cannot be told apart
            weights = _newton(x, np.array(happened, dtype=np.float64), offset)
        return cls(coding, weights, offset)

    def of(self, many: Sequence[Choices]) -> list[float]:
        """The event's probability for each set of choices."""
        logits = np.clip(self.coding.rows(many) @ self.weights + self.offset, -30, 30)
        return [float(value) for value in 1.0 / (1.0 + np.exp(-logits))]


def _newton(x: Array, y: Array, offset: float, steps: int = 12) -> Array:
    """Ridge logistic regression with a fixed offset."""
    weights = np.zeros(x.shape[1])
    prior = np.eye(x.shape[1]) / _SPREAD**2
    for _ in range(steps):
        p = 1.0 / (1.0 + np.exp(-np.clip(x @ weights + offset, -30, 30)))
        slope = x.T @ (y - p) - weights / _SPREAD**2
        curve = (x.T * (p * (1 - p))) @ x + prior
        weights = weights + np.linalg.solve(curve, slope)
    return weights


@dataclass(frozen=True)
class Scores:
    """The log score of a program as a normal distribution."""

    coding: Coding
    mean: float
    weights: Array
    covariance: Array
    noise: float

    @classmethod
    def fit(cls, coding: Coding, rows: Sequence[Choices], logs: Sequence[float]) -> Scores:
        """Fits to log scores; needs at least one."""
        x, y = coding.rows(rows), np.array(logs, dtype=np.float64)
        centre = float(y.mean())
        best = max((_evidence(x, y - centre, e, n), -e, -n) for e in _EFFECTS for n in _NOISES)
        effect, noise = -best[1], -best[2]
        precision = x.T @ x / noise**2 + np.eye(x.shape[1]) / effect**2
        covariance = np.asarray(np.linalg.inv(precision), dtype=np.float64)
        weights = covariance @ x.T @ (y - centre) / noise**2
        return cls(coding, centre, weights, covariance, noise)

    def of(self, many: Sequence[Choices]) -> list[tuple[float, float]]:
        """(mean, standard deviation) of the log score of each set of choices, noise included."""
        x = self.coding.rows(many)
        means = x @ self.weights + self.mean
        variances = np.einsum("ij,jk,ik->i", x, self.covariance, x) + self.noise**2
        return [(float(m), float(np.sqrt(max(v, 1e-12)))) for m, v in zip(means, variances, strict=True)]


def _evidence(x: Array, y: Array, effect: float, noise: float) -> float:
    """The log marginal likelihood of centred scores, rounded so that equal fits tie."""
    covariance = effect**2 * (x @ x.T) + noise**2 * np.eye(len(y))
    _, logdet = np.linalg.slogdet(covariance)
    return round(float(-0.5 * (y @ np.linalg.solve(covariance, y) + logdet + len(y) * np.log(2 * np.pi))), 6)


def below(limit: float, mean: float, deviation: float) -> float:
    """The probability that a normal variable is below a limit."""
    return 0.5 * (1.0 + erf((limit - mean) / (deviation * sqrt(2.0))))


def expected_gain(limit: float, mean: float, deviation: float) -> float:
    """Expected improvement below a limit (Jones, Schonlau & Welch 1998)."""
    z = (limit - mean) / deviation
    density = exp(-0.5 * z * z) / sqrt(2.0 * pi)
    return max((limit - mean) * below(limit, mean, deviation) + deviation * density, 0.0)
