"""Trainings: one with its curves and figures, live; two of them on the same charts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from hipwright.report.train_data import TrainingFolder, read
from hipwright.report.train_page import training_views
from hipwright.view.results import ResultFolder


def training_page(folder: ResultFolder) -> dict[str, Any]:
    """What the page of a training shows."""
    return training_views(read(folder.path))


def compare_trainings(a: ResultFolder, b: ResultFolder) -> dict[str, Any]:
    """The page of both, whose arms are named A and B."""
    first, second = _named("A", read(a.path)), _named("B", read(b.path))
    arms = [*(first.evaluation.get("arms") or []), *(second.evaluation.get("arms") or [])]
    clock = first.clock if first.clock == second.clock else ""
    both = TrainingFolder(
        a.path,
        [*first.trainings, *second.trainings],
        {"arms": arms},
        device=first.device if first.device == second.device else "",
        clock=clock,
    )
    return {**training_views(both), "title": "A and B", "differs": first.clock != second.clock}


def _named(label: str, data: TrainingFolder) -> TrainingFolder:
    """The training with the label before the name of each arm."""
    trainings = [replace(one, name=f"{label} {one.name}", arm=f"{label} {one.arm}") for one in data.trainings]
    rows: list[Mapping[str, Any]] = data.evaluation.get("arms") or []
    return replace(
        data,
        trainings=trainings,
        evaluation={**data.evaluation, "arms": [{**row, "arm": f"{label} {row.get('arm')}"} for row in rows]},
    )
