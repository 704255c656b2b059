"""Raw times of many settings of the engine's knobs, side by side: which are fastest for a task.

    python -m benchmarks knobs TASK... [--set KEY=V,V...]... [--alone] [--seconds S] [--out FILE] [--target cuda]
    python -m benchmarks knobs --ties benchmarks/records/h200.jsonl --out FILE

Every choice and knob of the engine's space is varied one at a time from the default; then the best settings are joined
one after the other, each kept where it helps. --set tries all combinations of what it names instead, and --alone none.
All variants of a task are timed in turn with torch.compile, eager and a copy of as many bytes
(benchmarks/timing/sides.py), eleven blocks of about a millisecond each. Nothing is judged, and the task's code runs in
this process: for your own tasks, not for a candidate. FILE gets a JSON line a task. Exit code 1 when time ran out or a
task failed.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.common import add_target, append_json, first_graph, require_files, require_gpu, task_host
from benchmarks.suite import figures
from benchmarks.suite.records import merge, read
from benchmarks.suite.tasks import find
from benchmarks.timing.runner import ProgramRunner, open_runner
from benchmarks.timing.sides import OFF, ROUNDS, TimedSides, Times, describe_row
from benchmarks.timing.variants import (
    Settings,
    helpful_settings,
    idle_keys,
    settings_name,
    variant_programs,
    varied_settings,
)
from hipwright.capture.graph import Graph
from hipwright.errors import BadInput, HipwrightError
from hipwright.sandbox import Zygote
from hipwright.torchio import full_precision

JOINED = 4
"""Settings that are tried together with the best one."""


def add_options(options: argparse.ArgumentParser) -> None:
    """Adds the command's options."""
    options.add_argument("tasks", nargs="*", type=Path)
    options.add_argument("--ties", type=Path, metavar="FILE", help="the tasks that are not faster than the compiler")
    options.add_argument("--set", action="append", default=[], metavar="KEY=V,V", help="try all combinations of these")
    options.add_argument("--alone", action="store_true", help="the default alone, beside eager and torch.compile")
    options.add_argument("--seconds", type=float, default=600.0)
    options.add_argument("--rounds", type=int, default=ROUNDS)
    options.add_argument("--out", type=Path)
    add_target(options, "cuda", "cpu")


def run(options: argparse.Namespace) -> int:
    """0 when every task was measured, 1 when time ran out or one failed."""
    end = time.monotonic() + options.seconds
    grid = _grid(options.set)
    if grid and options.alone:
        raise BadInput("--alone takes no --set: the default is timed without settings")
    tasks = [*options.tasks, *(tied_tasks(options.ties) if options.ties else [])]
    if not tasks:
        raise BadInput("no task to measure", hint="name files, or records with --ties")
    require_files(tasks)
    require_gpu(options.target)
    full_precision()  # as the suite measures
    code = 0
    with open_runner(options.target) as runner, task_host() as host:
        for number, task in enumerate(tasks):
            if time.monotonic() > end:
                print(f"the time is over: {len(tasks) - number} tasks left", file=sys.stderr)
                return 1
            try:
                row = measure(runner, task, host, grid, options.rounds, alone=options.alone)
            except (HipwrightError, RuntimeError) as error:  # torch's own: no memory, a fault of the device
                print(f"{task}: {str(error).splitlines()[0]}", file=sys.stderr)
                code = 1
                continue
            print(describe_row(row), flush=True)
            append_json(options.out, row)
    return code


def tied_tasks(records: Path) -> list[Path]:
    """The files of the suite's tasks that are not certainly faster than torch.compile or max-autotune in records."""
    require_files([records])
    names = figures.not_faster(figures.tasks_of(merge(read([records]))))
    return [task.path for task in find(names=names)] if names else []


def measure(
    runner: ProgramRunner,
    path: Path,
    host: Zygote,
    grid: Mapping[str, Sequence[Any]],
    rounds: int,
    *,
    alone: bool = False,
) -> dict[str, Any]:
    """One task, as `TimedSides.row`. Raises BadInput where the default program does not run.

    alone: no setting but the default. Settings that are joined are timed later, beside the default and the baselines
    alone.
    """
    graph, base = first_graph(path, host), runner.base_choices()
    settings = {settings_name({}): {}} if alone else varied_settings(graph, grid, base)
    idle = idle_keys(graph, settings.values(), base) if grid else []
    if grid and len(idle) == len(grid):
        raise BadInput(f"--set changes no program of this task: {', '.join(idle)}")
    for key in idle:
        print(f"{path}: --set {key} changes no program of this task", file=sys.stderr)
    timed = TimedSides(runner, path)
    baselines = list(timed.sides)
    timed.build_all(variant_programs(graph, settings, base))
    times = timed.times(list(timed.sides), rounds)
    right = {name: ratio for name, (_, ratio) in times.items() if timed.off.get(name, 0.0) <= OFF}
    several = [] if grid or alone else helpful_settings(settings, right)
    if len(several) > 1:
        times |= join(graph, timed, baselines, several, rounds)
    return timed.row(path, times)


def join(graph: Graph, timed: TimedSides, baselines: Sequence[str], several: Sequence[Settings], rounds: int) -> Times:
    """Times of settings that are tried together: one more at a time, at most JOINED, kept where it is faster beside
    what is kept already. Knobs that are each good alone are often not so together."""
    found: Times = {}
    kept = dict(several[0])
    for more in several[1 : JOINED + 1]:
        tried = {**kept, **more}
        name = settings_name(tried)
        program = variant_programs(graph, {name: tried}, timed.runner.base_choices())[name]
        timed.add(name, program, timed.runner.build(program))
        if name not in timed.sides or timed.off[name] > OFF:
            continue
        now = timed.times([*baselines, "default", settings_name(kept), name], rounds)
        found[name] = now[name]
        kept = tried if now[name][1] > now[settings_name(kept)][1] else kept
    return found


def _grid(texts: Sequence[str]) -> dict[str, list[Any]]:
    """Values by key, from texts KEY=V,V. Raises BadInput for a text without "="."""
    words: dict[str, Any] = {"True": True, "False": False}
    found: dict[str, list[Any]] = {}
    for text in texts:
        if "=" not in text:
            raise BadInput(f"--set {text}: write it as KEY=V,V")
        key, _, values = text.rpartition("=")
        found[key] = [int(v) if v.isdigit() else words.get(v, v) for v in values.split(",")]
    return found
