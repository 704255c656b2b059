"""Raw times of programs written by hand beside the engine's own for a task.

    python -m benchmarks compare TASK PROGRAM... [--out FILE] [--target cuda]

Programs (files as `hipwright optimize --out DIR` writes them, DIR/program.py) are timed in turn with the engine's
default, torch.compile, eager and a copy of as many bytes (benchmarks/timing/sides.py): the way to learn what a change
of a template would bring before it is written. Begin with the engine's own text (`hipwright optimize TASK --target cpu
--budget 1 --out DIR`) and change it. Nothing is judged, and the files' kernels run in this process: for your own
programs, not for a candidate. FILE gets a JSON line. Exit code 1 when a program was refused or the task failed.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.common import add_target, append_json, first_graph, require_files, require_gpu, task_host
from benchmarks.timing.runner import ProgramRunner, open_runner
from benchmarks.timing.sides import ROUNDS, TimedSides, describe_row
from hipwright.engine import write
from hipwright.errors import BadInput, HipwrightError
from hipwright.program import parse
from hipwright.records import Program
from hipwright.sandbox import Zygote
from hipwright.torchio import full_precision


def add_options(options: argparse.ArgumentParser) -> None:
    """Adds the command's options."""
    options.add_argument("task", type=Path)
    options.add_argument("programs", nargs="+", type=Path)
    options.add_argument("--rounds", type=int, default=ROUNDS)
    options.add_argument("--out", type=Path)
    add_target(options, "cuda", "cpu")


def run(options: argparse.Namespace) -> int:
    """0 when all programs were timed, 1 when one was refused or the task cannot be measured."""
    require_files([options.task, *options.programs])
    require_gpu(options.target)
    full_precision()  # as the suite measures
    try:
        given = {str(path): read_program(path) for path in options.programs}
        with open_runner(options.target) as runner, task_host() as host:
            row = measure(runner, options.task, host, given, options.rounds)
    except (HipwrightError, RuntimeError) as error:  # torch's own: no memory, a fault of the device
        print(str(error).splitlines()[0], file=sys.stderr)
        return 1
    print(describe_row(row, len(given) + 1))
    for name, why in row["refused"].items():
        print(f"  {name}: refused: {why}")
    append_json(options.out, row)
    return 1 if row["refused"] else 0


def read_program(path: Path) -> Program:
    """A program with its knobs' defaults. Raises BadInput."""
    text = path.read_text()
    try:
        return Program(text=text, knobs={name: knob.default for name, knob in parse(text).knobs.items()})
    except HipwrightError as error:
        raise BadInput(f"{path}: {error.message}") from None


def measure(
    runner: ProgramRunner, task: Path, host: Zygote, programs: Mapping[str, Program], rounds: int
) -> dict[str, Any]:
    """Programs by name beside the default, as `TimedSides.row`. Raises BadInput where the default does not run."""
    default = write(first_graph(task, host), runner.base_choices())
    timed = TimedSides(runner, task)
    timed.build_all({"default": default, **programs})
    return timed.row(task, timed.times(list(timed.sides), rounds))
