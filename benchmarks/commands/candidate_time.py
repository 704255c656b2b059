"""Seconds of one candidate, warm: lint, builds for two AMD targets, verification on the CPU, trace and estimate.

    python -m benchmarks candidate-time [TASK...] [--candidates N] [--target T]... [--large]

Every candidate is new to the build cache (its knobs differ), as in a search. Prints medians for each task, of the
builds, the verification and the timing among them, and over all. Without --target it needs no GPU; on one, the task is
open with its baselines compiled, and candidates are timed too. --large: products of 8192 and a tensor of 4 GB in and
one out.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.common import ROOT, positive, require_gpu
from hipwright.api.workbench import open_workbench
from hipwright.capture.graph import Graph
from hipwright.engine import space, write
from hipwright.errors import WorkerError
from hipwright.events import silent
from hipwright.records import Evaluation
from hipwright.targets import TARGETS as KNOWN

EXAMPLES = ROOT / "examples"
TASKS = ["rmsnorm_swiglu", "bias_gelu", "layernorm_residual", "softmax_temperature_mask", "mlp_gelu", "small_cnn"]
LARGE = ROOT / "benchmarks" / "large"
LARGE_TASKS = ("product_8192_bf16", "product_8192_fp32", "tensor_8gb_fp32")
TARGETS = ("gfx942", "gfx950", "cpu")


@dataclass(frozen=True)
class CandidateSeconds:
    """Seconds of one evaluation, and what of them were builds, verifications and timings. status: of its verdict."""

    total: float
    build: float
    verify: float
    timing: float
    status: str


def candidate_seconds(task: Path, count: int, targets: tuple[str, ...] = TARGETS) -> list[CandidateSeconds]:
    """The seconds of each of `count` evaluations of different programs, after one that prepares the task's cases.

    Raises WorkerError where one does not pass: its time says nothing.
    """
    seconds = []
    with open_workbench(task, targets, seed=1, unsafe=False, listener=silent) as bench:
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
            seconds.append(_parts(result, time.perf_counter() - start))
            if not result.passed:
                raise WorkerError(f"a candidate of {task.stem} ends as {result.status}: {result.message[:200]}")
            if len(seconds) > count:
                break
    return seconds[1:]


def _parts(result: Evaluation, total: float) -> CandidateSeconds:
    found = result.targets.values()
    checks = [one.verdict.checks.get("seconds", {}) for one in found if one.verdict is not None]
    return CandidateSeconds(
        total,
        sum(one.build.seconds for one in found if one.build is not None),
        sum(sum(spent.values()) for spent in checks),
        sum(one.timing.seconds for one in found if one.timing is not None),
        result.status,
    )


def add_options(options: argparse.ArgumentParser) -> None:
    """Adds the command's options."""
    options.add_argument("tasks", nargs="*", type=Path)
    options.add_argument("--candidates", type=positive, default=8)
    options.add_argument("--target", action="append", metavar="T", help="default: gfx942, gfx950, cpu; may be repeated")
    options.add_argument("--large", action="store_true", help="the tasks of benchmarks/large of one call's size")


def run(options: argparse.Namespace) -> int:
    """Prints the table."""
    large = [LARGE / f"{name}.py" for name in LARGE_TASKS] if options.large else []
    tasks = [*options.tasks, *large] or [EXAMPLES / f"{name}.py" for name in TASKS]
    targets = tuple(options.target or TARGETS)
    for name in filter(KNOWN.is_gpu, targets):
        require_gpu(name)
    title = f"one candidate, warm, {', '.join(targets)}, {os.cpu_count()} cores"
    table = Table("task", "candidates", "median s", "worst s", "builds", "verified", "timed", title=title)
    everything: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        os.environ["HIPWRIGHT_CACHE"] = folder
        for task in tasks:
            found = candidate_seconds(task, options.candidates, targets)
            seconds = [one.total for one in found]
            everything += seconds
            parts = [[one.build for one in found], [one.verify for one in found], [one.timing for one in found]]
            figures = [statistics.median(seconds), max(seconds), *map(statistics.median, parts)]
            table.add_row(task.stem, str(len(seconds)), *(f"{figure:.2f}" for figure in figures))
    table.add_row("all", str(len(everything)), f"{statistics.median(everything):.2f}", f"{max(everything):.2f}")
    Console().print(table)
    return 0
