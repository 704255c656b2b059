"""Trainings on a terminal: stages, the miniature, and the figures of a report."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hipwright.api.plain import clean
from hipwright.cli.display.fitted import FittedTable, plain_table
from hipwright.cli.display.verbosity import says_progress
from hipwright.report import formatting
from hipwright.report.train_data import STAGES, TrainingFolder, ends, rates, read
from hipwright.report.train_views import by_level, by_split, columns_of, describe_clock, describe_interval, differences

if TYPE_CHECKING:
    from rich.console import Console


def tables(folder: Path) -> list[FittedTable]:
    """Tables of a training's folder: trainings, evaluation by split and level, differences between arms."""
    data = read(folder)
    found = [_training_table(data)]
    rows = data.evaluation.get("arms") or []
    columns = columns_of(rows)
    for split, arms in by_split(rows):
        cells = [(str(row.get("arm")), *(_cell(row.get(name), name) for name in columns)) for row, _ in arms]
        found.append(_table(f"{split}, {describe_clock(data)['badge']}", ("arm", *columns), cells))
    levels = data.evaluation.get("levels") or []
    if levels:
        columns = columns_of(levels)
        lines = [
            (level, str(row.get("arm")), *(_cell(row.get(name), name) for name in columns))
            for level, some in by_level(levels)
            for row in some
        ]
        found.append(_table(f"by level, {describe_clock(data)['badge']}", ("level", "arm", *columns), lines))
    compared = differences(data.evaluation.get("comparisons") or [])
    for split, arms_ in compared["splits"]:
        rows_ = [
            (name, *(f"{c['text']} ({c['interval']})" if (c := one.get(m)) else "–" for m in compared["metrics"]))
            for name, one in arms_.items()
        ]
        found.append(_table(f"{split}, differences", ("arms", *compared["metrics"]), rows_))
    return found


def _training_table(data: TrainingFolder) -> FittedTable:
    heads = ("training", "steps", "minutes", "loss", "reward", "correct", "hack", "infrastructure", "no variance")
    rows = []
    for one in data.trainings:
        stage = next((name for name in STAGES if name in one.curves), "sft")
        last = [
            found and f"{found[1]:.3f}"
            for name in ("loss", "reward", "correct")
            for found in [ends(one.values(stage, name))]
        ]
        shares = [formatting.percent(rates(one)[name]) if stage == "rl" else "–" for name in rates(one)]
        minutes = "–" if one.minutes is None else f"{one.minutes:.1f}"
        rows.append((one.name, str(one.steps), minutes, *(text or "–" for text in last), *shares))
    return _table("", heads, rows)


def _table(title: str, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> FittedTable:
    return plain_table(heads, rows, right=heads[1:], title=title)


def _cell(value: Any, metric: str) -> str:
    figure, interval = describe_interval(value, metric)
    return f"{figure} ({interval})" if interval else figure


def print_stage(console: Console, summary: Mapping[str, Any]) -> None:
    """What a stage did: its steps, its command, its figures and its model."""
    if summary["dry_run"]:
        console.print(
            f"dry run of {summary['recipe']} {summary['stage']}: one step of a tiny random model, "
            f"{summary['seconds']} s"
        )
    else:
        console.print(f"{summary['recipe']} {summary['stage']}: {summary.get('steps', '?')} steps; {summary['out']}")
    if summary.get("command"):
        console.print(f"command: {clean(summary['command'])}")
    for name, value in summary.items():
        if isinstance(value, float):
            console.print(f"{name}: {value:.4g}")
        elif isinstance(value, dict) and value:
            console.print(f"{name}: " + ", ".join(f"{key} {figure:.4g}" for key, figure in value.items()))
    if summary.get("model"):
        console.print(f"model: {summary['model']}")
    if summary.get("watch"):
        console.print(f"curves: {clean(summary['watch'])}")


def print_mini(console: Console, summary: Mapping[str, Any], out: Path) -> None:
    """The models of the miniature, and its report or how to go on."""
    for seed, models in summary["models"].items():
        for arm, path in models.items():
            console.print(f"seed {seed}, {arm}: {path}")
    if summary["finished"] and summary["evaluation"]:
        console.print(f"report: {out / 'report.html'}")
    elif summary["finished"]:
        console.print("trained; evaluated by the same command without --seed, once all seeds are")
    else:
        console.print("not finished: the same command with --resume goes on")


class MiniProgress:
    """A listener for `train_mini`: each event as a line, with the seconds since the beginning."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say, self._begun = say, time.monotonic()

    def __call__(self, kind: str, data: dict[str, Any]) -> None:
        """Handles one event."""
        if not says_progress():
            return
        text = data.get("text") or ", ".join(f"{name} {_short(value)}" for name, value in data.items())
        self._say(f"[{time.monotonic() - self._begun:6.1f}s] {text}")


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
