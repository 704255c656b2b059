"""Programs of a suite on the GPU, by `hipwright bench` as a process: verdicts, and times against PyTorch's."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hipwright.api.contact.steps import StepFailed
from hipwright.errors import BadInput
from hipwright.evaluation.bench import BenchRow, RowStore
from hipwright.evaluation.formats.base import BenchTask
from hipwright.evaluation.suite import find_tasks
from hipwright.evaluation.task_suite import list_suites
from hipwright.sandbox import python_paths
from hipwright.targets import ROCM

SUITE = "kernels"
CORPUS = Path(__file__).parents[2] / "audit/corpus/tasks"
"""Tasks of the package, where the suite is not there."""
ENDING_S = 20.0
"""For a benchmark to end after it was interrupted."""


def choose(count: int, suite: Path | None = None, *, small: bool = False) -> list[BenchTask]:
    """`count` tasks, of each family in turn. suite: a folder, or a suite's file or name; None for the suite `kernels`,
    or the package's own tasks where that is not found, or where `small` ones are asked for.
    """
    default = Path(SUITE) if SUITE in list_suites() and not small else CORPUS
    families: dict[str, list[BenchTask]] = defaultdict(list)
    for task in find_tasks(suite or default):
        if not task.problem:
            families[task.name.rpartition("/")[0]].append(task)
    turns = max(map(len, families.values()))
    chosen = [tasks[turn] for turn in range(turns) for tasks in families.values() if turn < len(tasks)]
    return chosen[:count]


def run_programs(
    tasks: Sequence[BenchTask], folder: Path, gpu: int, *, limit_s: float, unsafe: bool
) -> tuple[dict[str, Any], list[BenchRow]]:
    """(facts, rows) of the engine's first program for each task. folder: is filled. After limit_s seconds what is
    judged by then counts. Raises StepFailed, with the benchmark's messages, where no row was made.
    """
    given, out = folder / "tasks", folder / "bench"
    given.mkdir(parents=True)
    for task in tasks:
        (given / f"{task.name.replace('/', '__')}.py").write_text(task.read(), encoding="utf-8")
    log, ended = _bench(given, out, gpu, limit_s, unsafe)
    rows = list(RowStore(out).rows.values()) if out.is_dir() else []
    if not rows:
        lines = [line for line in log.splitlines() if line.startswith("error")]
        message = lines[0] if lines else "the benchmark ended without a row"
        raise StepFailed(message, output=log, hint="`hipwright doctor` says what is missing")
    facts = _counts(rows, len(tasks), ended) | {"output": log}
    refused = [row for row in rows if not row.correct]
    if refused:
        names = ", ".join(f"{row.task} ({row.status})" for row in refused[:3])
        output = str(facts.pop("output"))
        message = f"{len(refused)} of {len(rows)} programs were not found right: {names}"
        raise ProgramsRefused(message, rows, output=output, facts=facts)
    return facts, rows


class ProgramsRefused(StepFailed):
    """Some programs were refused; rows: all that were judged."""

    def __init__(self, message: str, rows: list[BenchRow], *, output: str, facts: dict[str, Any]) -> None:
        super().__init__(message, output=output, facts=facts)
        self.rows = rows


def _bench(given: Path, out: Path, gpu: int, limit_s: float, unsafe: bool) -> tuple[str, bool]:
    """(the benchmark's log, whether it judged all)."""
    argv = [sys.executable, "-B", "-m", "hipwright", "bench", str(given), "--target", ROCM.name, "--gpus", str(gpu)]
    argv += ["--budget", "1", "--out", str(out), "--workers", "1", *(["--unsafe"] if unsafe else [])]
    env = {**os.environ, "PYTHONPATH": ":".join(map(str, python_paths())), "NO_COLOR": "1"}
    if limit_s <= 0:
        raise BadInput("no time is left for programs", hint="more --minutes")
    process = subprocess.Popen(
        argv, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    )
    try:
        return process.communicate(timeout=limit_s)[0], True
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)
        try:
            return process.communicate(timeout=ENDING_S)[0], False
        except subprocess.TimeoutExpired:
            process.kill()
            return process.communicate()[0], False
    except BaseException:
        process.send_signal(signal.SIGINT)
        raise


def _counts(rows: Sequence[BenchRow], asked: int, ended: bool) -> dict[str, Any]:
    timed = [row for row in rows if row.speedups]
    facts = {"tasks": asked, "judged": len(rows), "right": sum(row.correct for row in rows), "timed": len(timed)}
    for name in ("eager", "compile"):
        ratios = sorted(row.speedups[name].speedup for row in timed if name in row.speedups)
        if ratios:
            facts[f"faster_than_{name}"] = sum(ratio > 1 for ratio in ratios)
            facts[f"against_{name}"] = len(ratios)
    return facts if ended else {**facts, "stopped": "the time was up"}
