"""A cost model fitted to measurements: the static estimate's error as a linear function of its own parts.

log(measured / estimated) is fitted by ridge regression (Hoerl & Kennard 1970) on features that the estimate already
has, standardised; without data it would be the estimate itself. It is fitted for one device from pairs of estimate and
measured time, and cross-validated over whole tasks, since programs of one task are similar. It has only ten weights, as
a search needs an order more than a time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import log
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from hipwright.records import Estimate, Record

FEATURES = (
    "log estimate",
    "log memory",
    "log issue",
    "log bytes a kernel",
    "log rereads",
    "log efficiency",
    "log resident",
    "kernels",
    "library share",
)
FITTED = "fitted"
"""The kind of the row that a refined estimate has beside its own."""
RIDGE = 1.0  # in units of one sample: few samples change little
FOLDS = 10
FEWEST = 5  # programs of a task from which an order within it counts


@dataclass(frozen=True)
class TimedProgram:
    """One program: the group that cross-validation must not split (its task), the estimate's features, and
    microseconds.
    """

    group: str
    features: tuple[float, ...]
    estimated_us: float
    measured_us: float


class CostModel(Record, frozen=True, kw_only=True):
    """weights: of the standardised FEATURES; mean, scale: of the standardisation.

    device: the one whose times were fitted.
    """

    device: str
    samples: int
    bias: float
    weights: tuple[float, ...]
    mean: tuple[float, ...]
    scale: tuple[float, ...]

    def microseconds(self, features: Sequence[float], estimated_us: float) -> float:
        """The fitted time of a program."""
        standard = (np.asarray(features) - np.asarray(self.mean)) / np.asarray(self.scale)
        return float(estimated_us * np.exp(np.clip(self.bias + standard @ np.asarray(self.weights), -5.0, 5.0)))


class Quality(Record, frozen=True, kw_only=True):
    """How well times are predicted.

    overall, within: Spearman's rank correlation over all programs, and its mean over tasks with at least 5; ratio: the
    median factor between predicted and measured time.
    """

    overall: float
    within: float
    ratio: float
    tasks: int
    samples: int


def features_from(microseconds: float, detail: Sequence[Mapping[str, Any]]) -> tuple[float, ...]:
    """FEATURES from an estimate's own microseconds and its rows, as a record stores them."""
    detail = [row for row in detail if row["kind"] != FITTED]
    own = [row for row in detail if row["kind"] == "kernel"]
    library = sum(row["seconds"] for row in detail if row["kind"] != "kernel")
    whole = max(sum(row["seconds"] for row in detail), 1e-12)
    memory, issue = (sum(row[name] for row in own) for name in ("memory_seconds", "issue_seconds"))
    moved = sum(row["bytes"] for row in own)
    again = sum(row["reread_bytes"] for row in own)
    weights = [row["seconds"] for row in own] or [1.0]
    efficiency = np.average([max(row["bandwidth_efficiency"], 1e-4) for row in own] or [1.0], weights=weights)
    resident = np.average([max(row["resident_waves_per_cu"], 1) for row in own] or [1], weights=weights)
    return (
        log(max(microseconds, 1e-3)),
        log(memory + 1e-7),
        log(issue + 1e-7),
        log((moved + 1.0) / max(len(own), 1)),
        log(1.0 + again / (moved + 1.0)),
        log(float(efficiency)),
        log(float(resident)),
        float(len(detail)),
        library / whole,
    )


def refined(estimate: Estimate, model: CostModel) -> Estimate:
    """The estimate with the fitted time in place of its own, which remains in a row of its detail."""
    raw = estimate.microseconds
    predicted = round(model.microseconds(features_from(raw, estimate.detail), raw), 4)
    row = {
        "kind": FITTED,
        "name": f"fitted to {model.samples} programs on {model.device}",
        "seconds": 0.0,
        "bytes": 0.0,
        "estimated_us": raw,
        "bound": estimate.bound,
    }
    share = min(1.0, estimate.roofline_fraction * raw / predicted) if predicted else 0.0
    return msgspec.structs.replace(
        estimate, microseconds=predicted, roofline_fraction=round(share, 4), detail=(*estimate.detail, row)
    )


def own_estimate(microseconds: float, detail: Sequence[Mapping[str, Any]]) -> float:
    """The static estimate before a model refined it."""
    return next((float(row["estimated_us"]) for row in detail if row["kind"] == FITTED), microseconds)


def save(model: CostModel, architecture: str, folder: Path) -> Path:
    """Stores the model of an architecture beside the build cache; estimates of that architecture are refined by it."""
    folder.mkdir(parents=True, exist_ok=True)
    path, part = _place(architecture, folder), folder / f".cost-{architecture}.part"
    part.write_text(model.to_json())
    return part.replace(path)


def load(architecture: str, folder: Path) -> CostModel | None:
    """The architecture's model; None where there is none, or one of another version."""
    try:
        found = CostModel.from_json(_place(architecture, folder).read_bytes())
    except (OSError, msgspec.MsgspecError):
        return None
    return found if len(found.weights) == len(FEATURES) else None


def _place(architecture: str, folder: Path) -> Path:
    return folder / f"cost-{architecture}.json"


def fit(samples: Sequence[TimedProgram], device: str) -> CostModel:
    """The model of all samples. ValueError for fewer than 3."""
    if len(samples) < 3:
        raise ValueError(f"{len(samples)} samples fit nothing")
    rows = np.array([one.features for one in samples])
    wanted = np.log([one.measured_us / one.estimated_us for one in samples])
    mean, scale = rows.mean(axis=0), rows.std(axis=0)
    scale[scale < 1e-9] = 1.0
    standard, bias = (rows - mean) / scale, float(wanted.mean())
    left = standard.T @ standard + RIDGE * np.eye(rows.shape[1])
    weights = np.linalg.solve(left, standard.T @ (wanted - bias))
    return CostModel(
        device=device,
        samples=len(samples),
        bias=bias,
        weights=tuple(map(float, weights)),
        mean=tuple(map(float, mean)),
        scale=tuple(map(float, scale)),
    )


def cross_validated(samples: Sequence[TimedProgram], device: str, *, seed: int = 0) -> list[float]:
    """Each sample's time by a model fitted without its task. Raises ValueError for fewer than 2 tasks."""
    groups = sorted({one.group for one in samples})
    if len(groups) < 2:
        raise ValueError("cross-validation needs at least two tasks")
    shuffled = [str(name) for name in np.random.default_rng(seed).permutation(groups)]
    fold = {name: place % min(FOLDS, len(groups)) for place, name in enumerate(shuffled)}
    predicted = [0.0] * len(samples)
    for held in set(fold.values()):
        model = fit([one for one in samples if fold[one.group] != held], device)
        for place, one in enumerate(samples):
            if fold[one.group] == held:
                predicted[place] = model.microseconds(one.features, one.estimated_us)
    return predicted


def quality(samples: Sequence[TimedProgram], predicted: Sequence[float]) -> Quality:
    """How well `predicted` (microseconds, in the samples' order) agrees with the measured times."""
    measured = [one.measured_us for one in samples]
    groups: dict[str, list[int]] = {}
    for place, one in enumerate(samples):
        groups.setdefault(one.group, []).append(place)
    inner = [
        spearman([predicted[k] for k in places], [measured[k] for k in places])
        for places in groups.values()
        if len(places) >= FEWEST
    ]
    missed = np.abs(np.log(np.array(predicted) / np.array(measured))) if samples else np.zeros(1)
    return Quality(
        overall=spearman(predicted, measured),
        within=float(np.mean(inner)) if inner else 0.0,
        ratio=float(np.exp(np.median(missed))),
        tasks=len(groups),
        samples=len(samples),
    )


def spearman(x: Sequence[float], y: Sequence[float]) -> float:
    """Spearman's rank correlation, ties at their mean rank; 0 where one of the two never varies."""
    a, b = _ranks(x), _ranks(y)
    if a.size < 2 or a.std() == 0 or b.std() == 0:
        return 0.0
    return float(np.corrcoef(a, b)[0, 1])


def _ranks(values: Sequence[float]) -> np.ndarray:
    unique, places, counts = np.unique(np.asarray(values, dtype=np.float64), return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return np.asarray((last - (counts - 1) / 2)[places] if unique.size else np.zeros(0))
