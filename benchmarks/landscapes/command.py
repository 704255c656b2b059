"""The command that measures landscapes: every program of a closed part of each task's space, timed side by side.

    python -m benchmarks landscape TASK... --out FILE [--programs N] [--task-seconds S] [--seconds S] [--target cuda]

One change of each choice and knob at a time is timed first, in few rounds; then every program of the product of the
keys with the largest spread of times, in turn with eager and a copy of as many bytes (benchmarks/timing/sides.py).
FILE gets a JSON line a task; tasks that are in FILE are skipped, so the same command continues. The times are raw:
nothing is judged, and the task's code runs in this process. `python -m benchmarks policies FILE` replays searches on
the landscapes. Exit code 1 when time ran out or a task failed.
"""

from __future__ import annotations

import argparse
import gc
import sys
import time
from pathlib import Path
from typing import Any

import torch

from benchmarks.common import (
    add_target,
    append_json,
    first_graph,
    json_rows,
    positive,
    relative,
    require_files,
    require_gpu,
    task_host,
)
from benchmarks.landscapes.measure import Limits, landscape, lost
from benchmarks.timing.runner import open_runner
from benchmarks.timing.sides import ROUNDS
from hipwright.api.files import prepare_folder
from hipwright.errors import HipwrightError
from hipwright.torchio import full_precision


def add_options(options: argparse.ArgumentParser) -> None:
    """Adds the command's options."""
    options.add_argument("tasks", nargs="+", type=Path)
    options.add_argument("--programs", type=positive, default=96, help="distinct programs of a task, at most")
    options.add_argument("--options", type=positive, default=4, help="options of a key, at most: the default, the best")
    options.add_argument("--rounds", type=positive, default=ROUNDS)
    options.add_argument("--task-seconds", type=float, default=20.0)
    options.add_argument("--seconds", type=float, default=500.0)
    options.add_argument("--compiled", action="store_true", help="time torch.compile too")
    options.add_argument("--out", type=Path, required=True)
    add_target(options, "cuda", "cpu")


def run(options: argparse.Namespace) -> int:
    """0 when every task is measured, 1 when time ran out or one failed."""
    end = time.monotonic() + options.seconds
    require_files(options.tasks)
    require_gpu(options.target)
    prepare_folder(options.out.absolute().parent)
    full_precision()  # as the suite measures
    done = measured(options.out)
    tasks = [task for task in options.tasks if relative(task) not in done]
    limits = Limits(options.programs, options.options, options.rounds, options.task_seconds, options.compiled)
    code = 0
    with open_runner(options.target) as runner, task_host() as host:
        for number, task in enumerate(tasks):
            if time.monotonic() > end:
                print(f"the time is over: {len(tasks) - number} tasks left", file=sys.stderr)
                return 1
            try:
                row = landscape(runner, task, first_graph(task, host), limits)
            except (HipwrightError, RuntimeError) as error:  # torch's own: no memory, a fault of the device
                print(f"{task}: {str(error).splitlines()[0]}", file=sys.stderr)
                code = 1
                if lost(runner):
                    append_json(options.out, {"task": relative(task), "failed": str(error)[:300]})
                    print("the GPU's context is lost: the same command goes on with the next task", file=sys.stderr)
                    return 1
            else:
                append_json(options.out, row)
                print(describe(row), flush=True)
            gc.collect()
            if options.target != "cpu":
                torch.cuda.empty_cache()
    return code


def measured(path: Path) -> set[str]:
    """The tasks that a file of landscapes holds, also those at which the GPU's context was lost. Raises BadInput for a
    file of something else."""
    return {row["task"] for row in json_rows(path)} if path.is_file() else set()


def describe(row: dict[str, Any]) -> str:
    """A landscape in one line."""
    times = [one["us"] for one in row["rows"] if "us" in one and "off" not in one]
    default = next(
        one["us"] for one in row["rows"] if all(v == row["keys"][k]["default"] for k, v in one["settings"].items())
    )
    refused, off = (sum(kind in one for one in row["rows"]) for kind in ("refused", "off"))
    sizes = " x ".join(f"{key} {len(choice['options'])}" for key, choice in row["keys"].items())
    return (
        f"{row['task']}: {len(row['rows'])} settings, {row['programs']} programs, default {default:.1f} us, best "
        f"{min(times):.1f}, worst {max(times):.1f}, copy {row['baselines']['copy']:.1f}; {refused} refused, {off} off; "
        f"{sizes}; {row['seconds']:.0f} s"
    )
