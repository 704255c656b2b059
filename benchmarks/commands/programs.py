"""Programs to measure with: a few that the built-in engine writes for each task file, as JSON lines.

    python -m benchmarks programs OUT.jsonl [TASK...] [--each N]

A line holds {"task": path from the repository's root, "text": ..., "knobs": {...}}. Without tasks: all of examples/
and benchmarks/tasks/. An OUT that does not end in .jsonl is a folder for `hipwright bench OUT/tasks --candidates
OUT/candidates`. Needs no GPU.
"""

from __future__ import annotations

import argparse
import random
import re
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.common import append_json, first_graph, positive, relative, require_files, task_host
from benchmarks.suite.tasks import suite_named
from hipwright.api.files import prepare_folder
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
    options.add_argument("--each", type=positive, default=8)


def run(options: argparse.Namespace) -> int:
    """Writes the file or the folder; a task that cannot be opened is named and left out."""
    tasks = options.tasks or sorted(suite_named("small").paths)
    require_files(tasks)
    lines = options.out.suffix == ".jsonl"
    prepare_folder(options.out.absolute().parent if lines else options.out)
    if lines:
        options.out.write_text("")
    number = 0
    with task_host() as host:
        for task in tasks:
            try:
                made = list(programs(task, host, options.each))
            except HipwrightError as error:
                print(f"{task}: {error.message}", file=sys.stderr)
                continue
            number += 1
            if lines:
                for program in made:
                    append_json(options.out, {"task": relative(task), "text": program.text, "knobs": program.knobs})
            else:
                write_candidates(options.out, number, task, made)
    return 0


def write_candidates(out: Path, number: int, task: Path, made: Sequence[Program]) -> None:
    """A task and its programs under the names by which `hipwright bench` finds them."""
    level, candidates = out / "tasks/level1", out / "candidates"
    for folder in (level, candidates):
        folder.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(task, level / f"{number}_{task.stem}.py")
    for sample, program in enumerate(made):
        name = f"level_1_problem_{number}_sample_{sample}_kernel.py"
        (candidates / name).write_text(with_defaults(program))


def with_defaults(program: Program) -> str:
    """The program's text with its chosen values as its knobs' defaults."""
    text = program.text
    for name, value in program.knobs.items():
        text = re.sub(rf"(?m)^({name} = knob\()[^,]+,", rf"\g<1>{value},", text)
    return text
