"""Programs to measure with: a few that the built-in engine writes for each task file, as JSON lines.

    python -m benchmarks programs OUT.jsonl [TASK...] [--each N]

A line holds {"task": path from the repository's root, "text": ..., "knobs": {...}}. Without tasks: all of examples/
and benchmarks/tasks/. Needs no GPU.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Iterator
from pathlib import Path

from benchmarks.common import ROOT, first_graph, task_host
from benchmarks.suite.tasks import suite_named
from hipwright.engine import space, write
from hipwright.errors import HipwrightError
from hipwright.records import Program
from hipwright.sandbox import Zygote

SEED = 3


def programs(task: Path, host: Zygote, count: int) -> Iterator[Program]:
    """At most `count` different programs: the engine's default first, then random settings. Each kernel is there once,
    without a twin for the captured sizes, as a model writes it."""
    graph = first_graph(task, host)
    options, rng, seen = space(graph), random.Random(SEED), set()
    for number in range(20 * count):
        chosen = {key: rng.choice(choice.options) for key, choice in options.items()} if number else {}
        program = write(graph, {**chosen, "exact": False})
        if program.key not in seen:
            seen.add(program.key)
            yield program
        if len(seen) == count:
            return


def add_options(options: argparse.ArgumentParser) -> None:
    """Adds the command's options."""
    options.add_argument("out", type=Path)
    options.add_argument("tasks", nargs="*", type=Path)
    options.add_argument("--each", type=int, default=8)


def run(options: argparse.Namespace) -> int:
    """Writes the file; a task that cannot be opened is named and left out."""
    tasks = options.tasks or sorted(suite_named("small").paths)
    with task_host() as host, options.out.open("w") as out:
        for task in tasks:
            path = str(task.absolute().relative_to(ROOT))
            try:
                for program in programs(task, host, options.each):
                    out.write(json.dumps({"task": path, "text": program.text, "knobs": program.knobs}) + "\n")
            except HipwrightError as error:
                print(f"{path}: {error.message}", file=sys.stderr)
    return 0
