"""Seconds of one candidate, warm: lint, builds for two AMD targets, verification on the CPU, trace and estimate.

    python -m benchmarks candidate-time [TASK...] [--candidates N]

Every candidate is new to the build cache (its knobs differ), as in a search. Prints the median for each task and over
all. Needs no GPU.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.common import ROOT
from hipwright.api.workbench import open_workbench
from hipwright.capture.graph import Graph
from hipwright.engine import space, write
from hipwright.events import silent

EXAMPLES = ROOT / "examples"
TASKS = ["rmsnorm_swiglu", "bias_gelu", "layernorm_residual", "softmax_temperature_mask", "mlp_gelu", "small_cnn"]
TARGETS = ("gfx942", "gfx950", "cpu")


def candidate_seconds(task: Path, count: int) -> list[float]:
    """Seconds of each of `count` evaluations of different programs, after one that prepares the task's cases."""
    seconds = []
    with open_workbench(task, TARGETS, seed=1, unsafe=False, listener=silent) as bench:
        graph = Graph.from_dict(bench.handle.capture("given"))
        choices, rng, seen = space(graph), random.Random(3), set()
        drawn = ({key: rng.choice(choice.options) for key, choice in choices.items()} for _ in range(50 * count))
        for settings in drawn:
            program = write(graph, settings)
            if program.key in seen:
                continue
            seen.add(program.key)
            start = time.perf_counter()
            result = bench.evaluator.evaluate(program)
            seconds.append(time.perf_counter() - start)
            assert result.passed, result.message
            if len(seconds) > count:
                break
    return seconds[1:]


def add_options(options: argparse.ArgumentParser) -> None:
    """Adds the command's options."""
    options.add_argument("tasks", nargs="*", type=Path)
    options.add_argument("--candidates", type=int, default=8)


def run(options: argparse.Namespace) -> int:
    """Prints the table."""
    tasks = options.tasks or [EXAMPLES / f"{name}.py" for name in TASKS]
    table = Table("task", "candidates", "median s", "worst s", title=f"one candidate, warm, {os.cpu_count()} cores")
    everything: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        os.environ["HIPWRIGHT_CACHE"] = folder
        for task in tasks:
            seconds = candidate_seconds(task, options.candidates)
            everything += seconds
            table.add_row(task.stem, str(len(seconds)), f"{statistics.median(seconds):.2f}", f"{max(seconds):.2f}")
    table.add_row("all", str(len(everything)), f"{statistics.median(everything):.2f}", f"{max(everything):.2f}")
    Console().print(table)
    return 0
