"""The training report's figures for a terminal and for --json."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.table import Table

from hipwright.report import views
from hipwright.report.train_data import Folder, ends, rates, read, seconds_of
from hipwright.report.train_views import by_split, clock_words, columns_of, differences, interval_words


def tables(folder: Path) -> list[Table]:
    """The report's figures for a terminal: trainings, evaluation, comparisons."""
    data = read(folder)
    found = [_training_table(data)]
    rows = data.evaluation.get("arms") or []
    columns = columns_of(rows)
    for split, arms in by_split(rows):
        table = _table(f"{split}, {clock_words(data)['badge']}", "arm", *columns)
        for row, _ in arms:
            table.add_row(str(row.get("arm")), *(_cell(row.get(name), name) for name in columns))
        found.append(table)
    compared = differences(data.evaluation.get("comparisons") or [])
    for split, arms_ in compared["splits"]:
        table = _table(f"{split}, differences", "arms", *compared["metrics"])
        for name, cells in arms_.items():
            shown = [f"{c['text']} ({c['interval']})" if (c := cells.get(m)) else "–" for m in compared["metrics"]]
            table.add_row(name, *shown)
        found.append(table)
    return found


def _training_table(data: Folder) -> Table:
    table = _table(
        "", "training", "steps", "minutes", "loss", "reward", "correct", "hack", "infrastructure", "no variance"
    )
    for one in data.trainings:
        stage = "rl" if "rl" in one.curves else "sft"
        last = [
            found and f"{found[1]:.3f}"
            for name in ("loss", "reward", "correct")
            for found in [ends(one.values(stage, name))]
        ]
        shares = [views.percent(rates(one)[name]) if stage == "rl" else "–" for name in rates(one)]
        minutes = "–" if one.minutes is None else f"{one.minutes:.1f}"
        table.add_row(one.name, str(one.steps), minutes, *(text or "–" for text in last), *shares)
    return table


def _table(title: str, first: str, *columns: str) -> Table:
    table = Table(
        title=title or None, title_justify="left", title_style="bold", box=None, pad_edge=False, header_style="dim"
    )
    table.add_column(first)
    for name in columns:
        table.add_column(name, justify="right")
    return table


def _cell(value: Any, metric: str) -> str:
    figure, interval = interval_words(value, metric)
    return f"{figure} ({interval})" if interval else figure


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
