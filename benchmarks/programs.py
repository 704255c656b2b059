"""Programs to measure with: for each task file, a few that the built-in engine writes, as JSON lines.

    python benchmarks/programs.py OUT.jsonl [TASK...] [--each N]

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

from hipwright.capture.graph import Graph
from hipwright.engine import space, write
from hipwright.errors import HipwrightError
from hipwright.records import Program
from hipwright.sandbox import Zygote
from hipwright.task import open_task

ROOT = Path(__file__).parents[1]
SEED = 3


def programs(task: Path, host: Zygote, count: int) -> Iterator[Program]:
    """At most `count` different programs: the engine's own choice first, then random ones; each kernel once, as a model
    writes it, without a twin for the captured sizes."""
    with open_task(task, host) as handle:
        graph = Graph.from_dict(handle.capture(handle.task.workloads[0].name))
    options, rng, seen = space(graph), random.Random(SEED), set()
    for number in range(20 * count):
        chosen = {key: rng.choice(choice.options) for key, choice in options.items()} if number else {}
        program = write(graph, {**chosen, "exact": False})
        if program.key not in seen:
            seen.add(program.key)
            yield program
        if len(seen) == count:
            return


def main() -> None:
    """Write the file."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("out", type=Path)
    options.add_argument("tasks", nargs="*", type=Path)
    options.add_argument("--each", type=int, default=8)
    chosen = options.parse_args()
    tasks = chosen.tasks or sorted([*(ROOT / "examples").glob("*.py"), *(ROOT / "benchmarks/tasks").glob("*.py")])
    with Zygote(("torch", "hipwright.task.host.warm"), name="task host") as host, chosen.out.open("w") as out:
        for task in tasks:
            path = str(task.absolute().relative_to(ROOT))
            try:
                for program in programs(task, host, chosen.each):
                    out.write(json.dumps({"task": path, "text": program.text, "knobs": program.knobs}) + "\n")
            except HipwrightError as error:
                print(f"{path}: {error.message}", file=sys.stderr)


if __name__ == "__main__":
    main()
