"""Reads a training folder for its report: curves, samples, evaluation, settings; any of them may be missing.

A training is a folder with metrics.jsonl (train/log.py); a run has one (a recipe's stage) or several (the miniature's
arms, seed-0/work/grpo). Unreadable lines are skipped: a killed run leaves at most one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from pathlib import Path
from typing import Any

from hipwright.errors import BadInput

METRICS, SAMPLES, EVALUATION = "metrics.jsonl", "samples.jsonl", "evaluation.json"
RUNS = ("run.json", "work.json")
"""The settings files of the miniature and of a recipe."""
ACCOUNT = "account.json"
"""A judge's time by stage: {"wall_s", "stages": {name: {"count", "sum_s", "busy_s", "busy_share"}}}."""

HOLE = "hole.json"
"""What `python -m benchmarks planted-hole` writes: {"along": {name: shares}, "after": {name: {...}}}."""

MODEL = "model"
"""What the stage of a recipe leaves in its folder when it is finished."""

STAGES = ("rl", "sft", "dpo")
"""The stages of a log whose steps are updates."""

Points = list[tuple[int, float]]
"""(step, value), by step."""

_SEED = re.compile(r"seed-(\d+)")


@dataclass(frozen=True)
class TrainingLog:
    """One training's log. curves: {stage: {metric: points}}; samples: the records of samples.jsonl with their step."""

    name: str
    arm: str
    seed: int | None
    curves: Mapping[str, Mapping[str, Points]]
    samples: Sequence[Mapping[str, Any]] = ()
    account: Mapping[str, Any] | None = None

    def values(self, stage: str, metric: str) -> list[float]:
        """The values of a curve; [] if it was not logged."""
        return [value for _, value in self.curves.get(stage, {}).get(metric, ())]

    @property
    def steps(self) -> int:
        """The last logged step of any stage."""
        ends = [curve[-1][0] for stage in STAGES for curve in self.curves.get(stage, {}).values()]
        return max(ends, default=0)

    @property
    def minutes(self) -> float | None:
        """The wall time, if logged."""
        known = next((found for stage in STAGES if (found := self.values(stage, "minutes"))), [])
        return known[-1] if known else None


@dataclass(frozen=True)
class TrainingFolder:
    """The contents of a training folder. device: what timed programs, or ""; clock: "device", "estimate" or ""."""

    path: Path
    trainings: Sequence[TrainingLog]
    evaluation: Mapping[str, Any] = field(default_factory=dict)
    run: Mapping[str, Any] = field(default_factory=dict)
    hole: Mapping[str, Any] = field(default_factory=dict)
    device: str = ""
    clock: str = ""

    @property
    def unfinished(self) -> bool:
        """Whether this is a recipe's stage that left no model: it runs still, or was interrupted."""
        return bool(self.run.get("recipe")) and not (self.path / MODEL).exists()

    @property
    def state(self) -> str:
        """A sentence for an unfinished training; "" for others."""
        if not self.unfinished:
            return ""
        step = max((one.steps for one in self.trainings), default=0)
        return f"Not finished: step {step} is the last that was logged. It runs still, or --resume goes on."


def read(folder: Path) -> TrainingFolder:
    """Reads a folder. BadInput if it holds no training."""
    found = [_training(folder, path) for path in folder.rglob(METRICS)]
    trainings = sorted((one for one in found if one.curves), key=lambda one: (rank(one.arm), one.arm, one.seed or 0))
    evaluation = _object(folder / EVALUATION)
    if not trainings and not evaluation:
        if any((folder / name).is_file() for name in RUNS):
            raise BadInput(
                f"{folder} holds a training of which no step was logged yet",
                hint="report it later; the same command with --resume goes on if it was interrupted",
            )
        raise BadInput(
            f"{folder} holds no training", hint=f"name what --out named: a folder with {METRICS} or {EVALUATION}"
        )
    run = next((one for name in RUNS if (one := _object(folder / name))), {})
    device, clock = (str(evaluation.get(name) or "") for name in ("device", "clock"))
    if not clock:
        device, clock = _judged_by(trainings)
    hole = next((one for path in sorted(folder.rglob(HOLE)) if (one := _object(path))), {})
    return TrainingFolder(folder, trainings, evaluation, run, hole, device, clock)


def _training(folder: Path, path: Path) -> TrainingLog:
    inside = path.parent.relative_to(folder)
    seed = next((int(found[1]) for part in inside.parts if (found := _SEED.fullmatch(part))), None)
    arm = inside.name or folder.resolve().name
    curves: dict[str, dict[str, dict[int, float]]] = {}
    for line in _lines(path):
        stage, step, values = line.get("stage"), line.get("step"), line.get("values")
        if isinstance(stage, str) and isinstance(step, int) and isinstance(values, dict):
            for name, value in values.items():
                if isinstance(value, (int, float)) and isfinite(value):
                    curves.setdefault(stage, {}).setdefault(str(name), {})[step] = float(value)
    plain = {stage: {name: sorted(curve.items()) for name, curve in all_.items()} for stage, all_ in curves.items()}
    samples = [
        {**line["record"], "step": line.get("step", 0)}
        for line in _lines(path.with_name(SAMPLES))
        if isinstance(line.get("record"), dict)
    ]
    name = arm if seed is None else f"{arm}, seed {seed}"
    return TrainingLog(name, arm, seed, plain, samples, _object(path.with_name(ACCOUNT)) or None)


ORDER = ("base", "sft", "continued", "rft", "grpo")
"""The miniature's arms in training order."""


def rank(arm: str) -> int:
    """The sort position of an arm; unknown arms come last."""
    return ORDER.index(arm) if arm in ORDER else len(ORDER)


def _judged_by(trainings: Sequence[TrainingLog]) -> tuple[str, str]:
    """(device, clock) of the last judged sample that has them."""
    for training in trainings:
        for sample in reversed(training.samples):
            outcome = sample.get("outcome")
            if isinstance(outcome, dict) and outcome.get("clock"):
                return str(outcome.get("device", "")), str(outcome["clock"])
    return "", ""


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    if not path.is_file():
        return
    with path.open(encoding="utf-8", errors="replace") as stream:
        for line in stream:
            try:
                found = json.loads(line)
            except (ValueError, RecursionError):
                continue
            if isinstance(found, dict):
                yield found


def _object(path: Path) -> dict[str, Any]:
    """Reads a JSON object; {} if the file does not exist. BadInput if it cannot be read."""
    if not path.is_file():
        return {}
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise BadInput(f"{path} cannot be read: {error}", hint="run the stage that writes it again") from error
    return found if isinstance(found, dict) else {}


# ---------------------------------------------------------------- figures

RATES = {
    "hack": ("hack",),
    "infrastructure": ("infra", "infrastructure"),
    "zero variance": ("zero_variance", "frac_reward_zero_std"),
}
"""Failure rates of RL (shares of answers or groups) by the names that our loop and TRL log."""
TAIL = 10
"""The first and the last tenth of a curve are averaged, to reduce noise."""


def rates(training: TrainingLog) -> dict[str, float | None]:
    """Mean rates over all of RL; None if not logged."""
    found: dict[str, float | None] = {}
    for rate, names in RATES.items():
        known = next((values for name in names if (values := training.values("rl", name))), [])
        found[rate] = mean(known)
    return found


def ends(values: Sequence[float]) -> tuple[float, float] | None:
    """(mean of the first tenth, mean of the last tenth); None without values."""
    if not values:
        return None
    count = max(1, len(values) // TAIL)
    return sum(values[:count]) / count, sum(values[-count:]) / count


def mean(values: Sequence[float]) -> float | None:
    """The mean; None without values."""
    return sum(values) / len(values) if values else None


def seconds_of(training: TrainingLog) -> dict[str, float]:
    """Seconds of RL by phase, summed over steps; "step" is the total."""
    curves = training.curves.get("rl", {})
    return {
        name.removeprefix("seconds_"): sum(value for _, value in curve)
        for name, curve in curves.items()
        if name.startswith("seconds_")
    }


def fast_names(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """The fast_p columns of an evaluation, by p."""
    names = {name for row in rows for name in row if re.fullmatch(r"fast_[0-9.]+", name)}
    return sorted(names, key=lambda name: float(name.removeprefix("fast_")))


def pooled(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """One row per arm and split: of all seeds together if there is one, else of the only seed."""
    best: dict[tuple[Any, Any], Mapping[str, Any]] = {}
    for row in rows:
        key = (row.get("arm"), row.get("split"))
        if key not in best or row.get("seed") is None:
            best[key] = row
    return list(best.values())
