"""One host's GPUs, 1, 2, 4 and so on at a time: `hipwright bench`, `hipwright score`, and the fleet with kills.

    python -m benchmarks gpus --gpus 1 2 4 --tasks benchmarks/real --out FILE.jsonl
    python -m benchmarks gpus --gpus 4 --parts bench fleet --out FILE.jsonl --kill-every 10

A part that is over writes its line to FILE at once, so that what follows cannot lose it; a part that fails is a line
that says why. `bench` runs the engine's first answers for `--bench-s` seconds at each number of GPUs, on the same
tasks in the same order. Its efficiency is that of the tasks that both runs ended: with the same workers a GPU, and
none idle, throughput goes by the seconds of a worker that a task takes. `score` runs variants of one program of
`bench`, and is measured from the moment at which the task is open on all GPUs. `fleet` starts Ray on this host, judges
tasks of `bench` again while a seat's process is killed every `--kill-every` seconds, and compares the verdicts.
Exit code 1 where a row is lost, double or wrong, or a part failed.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.common import ROOT, append_json, positive, require_gpu
from benchmarks.fleet import gpus_parts, gpus_rows
from benchmarks.fleet.gpus_parts import PartSettings

PARTS = ("bench", "score", "fleet")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options."""
    parser.add_argument("--gpus", type=positive, nargs="+", default=[1, 2, 4], help="numbers of GPUs")
    parser.add_argument("--target", default="cuda", choices=("cuda", "rocm"))
    parser.add_argument("--tasks", type=Path, default=ROOT / "benchmarks/real", help="folder of task files")
    parser.add_argument("--limit", type=int, default=0, help="tasks of the folder, a random sample; 0 for all")
    parser.add_argument("--parts", nargs="+", default=list(PARTS), choices=PARTS)
    parser.add_argument("--workers", type=positive, default=8, help="of bench, on each GPU")
    parser.add_argument("--bench-s", type=float, default=100.0, help="seconds of each run of bench, its start included")
    parser.add_argument("--score-s", type=float, default=60.0, help="limit of each run of score, its start included")
    parser.add_argument("--fleet-s", type=float, default=120.0, help="limit of the fleet's run")
    parser.add_argument("--fleet-tasks", type=int, default=0, help="tasks of the fleet; 0 for what its limit allows")
    parser.add_argument("--programs", type=positive, default=128, help="of score")
    parser.add_argument("--kill-every", type=float, default=10.0, help="seconds between two kills in the fleet")
    parser.add_argument("--seed", type=int, default=1, help="of the order of tasks, the programs and the inputs")
    parser.add_argument("--work", type=Path, default=Path("/tmp/hipwright-gpus"), help="folder of the runs; made anew")
    parser.add_argument("--out", type=Path, required=True, help="file of JSON lines")


def sampled(tasks: Path, limit: int, seed: int, into: Path) -> list[str]:
    """Copies task files, in a random order that their new names keep; returns the names."""
    found = sorted(path for path in tasks.rglob("*.py") if not path.name.startswith("_"))
    random.Random(seed).shuffle(found)
    into.mkdir(parents=True)
    names = []
    for number, path in enumerate(found[: limit or None]):
        name = f"t{number:03}_{path.stem}"
        shutil.copyfile(path, into / f"{name}.py")
        names.append(name)
    return names


class Recorder:
    """Runs parts one after the other; each one's line is written as it ends."""

    def __init__(self, out: Path) -> None:
        self.out, self.failed = out, False

    def run(self, part: str, gpus: int, work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """The part's figures; where it raises, {"failed": why}."""
        print(f"{part} on {gpus} GPUs", file=sys.stderr, flush=True)
        try:
            figures = work()
        except Exception as error:  # the other parts go on, whatever met this one
            figures = {"failed": f"{type(error).__name__}: {error}"[:2000]}
        self.failed = self.failed or "failed" in figures
        row = {"part": part, "gpus": gpus, **figures}
        append_json(self.out, row)
        print(json.dumps(row), flush=True)
        return figures


def run(options: argparse.Namespace) -> int:
    """Runs the parts."""
    require_gpu(options.target)
    shutil.rmtree(options.work, ignore_errors=True)
    options.work.mkdir(parents=True)
    names = sampled(options.tasks, options.limit, options.seed, options.work / "tasks")
    settings = PartSettings.of(options)
    recorder = Recorder(options.out)
    wrong = 0
    if "bench" in options.parts:
        for gpus in options.gpus:
            recorder.run("bench", gpus, partial(gpus_parts.bench, settings, gpus))
        recorder.run("bench efficiency", max(options.gpus), lambda: gpus_rows.efficiencies(settings.work, options.gpus))
    if "score" in options.parts:
        found = [recorder.run("score", gpus, partial(gpus_parts.score, settings, gpus)) for gpus in options.gpus]
        figures = recorder.run("score efficiency", max(options.gpus), lambda: gpus_rows.score_efficiencies(found))
        wrong += figures.get("wrong", 0)
    if "fleet" in options.parts:
        most = max(options.gpus)
        figures = recorder.run("fleet", most, lambda: gpus_parts.fleet(settings, most, names))
        wrong += sum(figures.get(kind, 0) for kind in ("lost", "double", "wrong"))
    return 1 if wrong or recorder.failed else 0
