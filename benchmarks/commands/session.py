"""All benchmarks that a change of the code may move, one after the other in a limited time on a GPU.

    python -m benchmarks programs PROGRAMS.jsonl --each 10        beforehand, anywhere: needs no GPU
    python -m benchmarks session SECONDS OUT PROGRAMS.jsonl [PART...]

PARTs, in the order in which they are named (without any: all, in this order); seconds on an H200:
  judge   score mode, all tasks one batch, each verdict judged again in full        70
  tasks   score mode, a batch a task                                                about 70
  knobs   raw times of the settings of the tasks that tie with the compiler         5 a task
  first   time to the first verified program, alone, of every third task            about 5 a task
  suite   first answers of the tasks that OUT/R.jsonl lacks, eight side by side     8 a task, until the time is over
  search  searches of 60 evaluations, four side by side                             the time that is left
A part is stopped when the time is over. OUT gets a log of each part, and the suite's records: merge those of several
runs.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.common import ROOT, require_files
from benchmarks.suite.tasks import find
from hipwright.errors import BadInput

PARTS = ("judge", "tasks", "knobs", "first", "suite", "search")
LEAST_S = 15
"""A part is not begun with less time."""


def add_options(options: argparse.ArgumentParser) -> None:
    """Adds the command's options."""
    options.add_argument("seconds", type=int)
    options.add_argument("out", type=Path)
    options.add_argument("programs", type=Path)
    options.add_argument("parts", nargs="*", metavar="PART")


def run(options: argparse.Namespace) -> int:
    """Runs the parts, and prints the end of each part's log. Always 0: a part's exit code is printed."""
    end = time.monotonic() + options.seconds
    require_files([options.programs], hint="python -m benchmarks programs writes one")
    if unknown := [part for part in options.parts if part not in PARTS]:
        raise BadInput(f"no part {unknown[0]}", hint=f"known: {', '.join(PARTS)}")
    options.out.mkdir(parents=True, exist_ok=True)
    for part in options.parts or PARTS:
        left = int(end - time.monotonic())
        if left <= LEAST_S:
            print(f"{part}: no time left")
            continue
        command, most = command_of(part, options.out.absolute(), options.programs.absolute(), left)
        run_part(part, command, min(most, left - 5), options.out / f"{part}.log")
    return 0


def command_of(part: str, out: Path, programs: Path, left: int) -> tuple[list[str], int]:
    """(arguments of `python -m benchmarks`, the most seconds that they may take). left: seconds of the session."""
    score = ["score-rate", str(programs), "--tasks", "5", "--skip", "9", "--mutants", "25"]
    suite = ["suite", "--out", str(out / "R.jsonl"), "--only-missing", "--seconds", str(left - 15)]
    if part == "judge":
        return [*score, "--judge"], 150
    if part == "tasks":
        return [*score, "--no-full"], 100
    if part == "knobs":
        ties = ["--ties", "benchmarks/records/h200.jsonl"]
        return ["knobs", *ties, "--out", str(out / "K.jsonl"), "--seconds", str(left - 20)], left
    if part == "first":
        every_third = [task.name for task in find()[::3]]
        first = ["suite", "--out", str(out / "F.jsonl"), "--no-timing", "--only-missing", "--seconds", "185"]
        return [*first, "--task", *every_third], 200
    if part == "suite":
        return [*suite, "--lanes", "8"], left
    return [*suite, "--lanes", "4", "--search", "60"], left


def run_part(name: str, command: Sequence[str], seconds: int, log: Path) -> None:
    """Runs a benchmark in a process group of its own, which is ended after `seconds`; prints the end of its log."""
    paths = [str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")]
    env = {**os.environ, "PYTHONUNBUFFERED": "1", "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    begun = time.monotonic()
    with log.open("w") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks", *command],
            stdout=out,
            stderr=subprocess.STDOUT,
            cwd=ROOT,
            env=env,
            start_new_session=True,
        )
        code = _wait(process, seconds)
    print(f"{name}: exit {code} after {time.monotonic() - begun:.0f} s")
    print("\n".join(log.read_text(errors="replace").splitlines()[-25:]), flush=True)


def _wait(process: subprocess.Popen[bytes], seconds: int) -> int:
    """The exit code of a process; 124 where it was ended after `seconds`."""
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGTERM)
    try:
        process.wait(5)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    return 124
