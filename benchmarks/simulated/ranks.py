"""How well the simulator's cycle model orders variants of a task, against times on a GPU: rank correlations.

    python -m benchmarks ranks --count COUNTED [TASK...]                  here: counts and estimates of the variants
    python -m benchmarks ranks --time COUNTED --target cuda --out FILE    on a GPU: their times, then the report
    python -m benchmarks ranks --report FILE                              the figures again
    python -m benchmarks ranks --published                                ten published times on AMD GPUs

Tasks are those of benchmarks/ranks without TASK. --count executes the first blocks of each variant's AMD machine code
in software (gfx1100: waves of 32 lanes, as warps have) with the caches of an NVIDIA GPU, and estimates a time by the
model's table for it; --time runs the same programs there in turn, without torch.compile. Nothing is judged, and the
tasks' code runs in this process: for your own tasks. Exit code 1 where a task failed or time ran out.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.common import ROOT, add_target, append_json, json_rows, positive, require_files, require_gpu
from hipwright.api.files import prepare_folder

TASKS = ROOT / "benchmarks/ranks"
VARIANTS = 9


def add_options(options: argparse.ArgumentParser) -> None:
    """Adds the command's options."""
    options.add_argument("tasks", nargs="*", type=Path, metavar="TASK")
    what = options.add_mutually_exclusive_group(required=True)
    what.add_argument(
        "--count",
        type=Path,
        metavar="COUNTED",
        help="JSON lines, one a task (.xz: compressed); known tasks are left out",
    )
    what.add_argument("--time", type=Path, metavar="COUNTED", help="the programs to time")
    what.add_argument("--report", type=Path, metavar="FILE", help="times, as --out")
    what.add_argument("--published", action="store_true", help="published times against estimates of the same tasks")
    options.add_argument("--variants", type=positive, default=VARIANTS, help="programs a task beside the default")
    options.add_argument("--seconds", type=float, default=540.0, help="begin no task later")
    options.add_argument("--rounds", type=positive, default=11)
    options.add_argument("--out", type=Path, metavar="FILE", help="JSON lines, one a task")
    add_target(options, "cuda", "cpu")


def run(options: argparse.Namespace) -> int:
    """0 when all that was asked for is there."""
    end = time.monotonic() + options.seconds
    if options.report:
        require_files([options.report], hint="--time writes one to --out")
        return _report(json_rows(options.report, ("task", "programs")))
    if options.published:
        from benchmarks.simulated.published import report

        return report(options.out)
    if options.count:
        from benchmarks.simulated.rank_programs import count, task_name

        prepare_folder(options.count.parent)
        done = {row["task"] for row in json_rows(options.count)} if options.count.is_file() else set()
        tasks = options.tasks or sorted(TASKS.glob("*.py"))
        require_files(tasks)
        return count([path for path in tasks if task_name(path) not in done], options.count, options.variants, end)
    require_files([options.time], hint="--count writes one")
    require_gpu(options.target)
    return _time(options, end)


def _time(options: argparse.Namespace, end: float) -> int:
    """Times the counted programs; prints the report of what there is."""
    from benchmarks.simulated.rank_programs import task_name
    from benchmarks.simulated.rank_times import times

    counted = json_rows(options.time, ("task", "programs"))
    named = {task_name(path) for path in options.tasks}
    chosen = [row for row in counted if not named or row["task"] in named]
    found = []
    for row in times(chosen, options.target, options.rounds, end):
        append_json(options.out, row)
        found.append(row)
    code = _report(found)
    return code or (0 if len(found) == len(chosen) and not any("failed" in row for row in found) else 1)


def _report(rows: Sequence[dict[str, Any]]) -> int:
    from benchmarks.simulated.rank_figures import text

    print(text(rows), end="")
    return 0 if rows else 1
