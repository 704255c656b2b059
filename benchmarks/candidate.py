"""How long one candidate takes, warm: lint, builds for two AMD targets, verification on the CPU, trace and estimate.

    .venv/bin/python benchmarks/candidate.py [TASK...] [--candidates N]

Every candidate is new to the build cache (its knobs differ), as in a search. Prints the median per task and over all.
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

from hipwright.api.workbench import open_workbench
from hipwright.capture.graph import Graph
from hipwright.engine import space, write
from hipwright.events import silent

EXAMPLES = Path(__file__).parents[1] / "examples"
DEFAULT = ["rmsnorm_swiglu", "bias_gelu", "layernorm_residual", "softmax_temperature_mask", "mlp_gelu", "small_cnn"]
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


def main() -> None:
    """Print the table."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("tasks", nargs="*", type=Path)
    options.add_argument("--candidates", type=int, default=8)
    chosen = options.parse_args()
    tasks = chosen.tasks or [EXAMPLES / f"{name}.py" for name in DEFAULT]
    table = Table("task", "candidates", "median s", "worst s", title=f"one candidate, warm, {os.cpu_count()} cores")
    everything: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        os.environ["HIPWRIGHT_CACHE"] = folder
        for task in tasks:
            seconds = candidate_seconds(task, chosen.candidates)
            everything += seconds
            table.add_row(task.stem, str(len(seconds)), f"{statistics.median(seconds):.2f}", f"{max(seconds):.2f}")
    table.add_row("all", str(len(everything)), f"{statistics.median(everything):.2f}", f"{max(everything):.2f}")
    Console().print(table)


if __name__ == "__main__":
    main()
