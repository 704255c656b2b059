"""A training's figures as tables for a terminal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.table import Table

from hipwright.report import formatting
from hipwright.report.train_data import TrainingFolder, ends, rates, read
from hipwright.report.train_views import by_split, clock_words, columns_of, describe_interval, differences


def tables(folder: Path) -> list[Table]:
    """Tables of a training's folder: trainings, evaluation by split, differences between arms."""
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


def _training_table(data: TrainingFolder) -> Table:
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
        shares = [formatting.percent(rates(one)[name]) if stage == "rl" else "–" for name in rates(one)]
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
    figure, interval = describe_interval(value, metric)
    return f"{figure} ({interval})" if interval else figure
