"""The training report's figures in plain JSON types."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hipwright.report.train_data import rates, read, seconds_of


def figures(folder: Path) -> dict[str, Any]:
    """The report's figures in plain JSON types, for --json."""
    data = read(folder)
    trainings = [
        {
            "name": one.name,
            "arm": one.arm,
            "seed": one.seed,
            "steps": one.steps,
            "minutes": one.minutes,
            "last": {stage: {name: curve[-1][1] for name, curve in all_.items()} for stage, all_ in one.curves.items()},
            "rates": rates(one) if "rl" in one.curves else None,
            "seconds": seconds_of(one),
        }
        for one in data.trainings
    ]
    kept = {name: data.evaluation.get(name) or [] for name in ("arms", "comparisons", "regret")}
    return {"device": data.device, "clock": data.clock, "trainings": trainings, **kept}
