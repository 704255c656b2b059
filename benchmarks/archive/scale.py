"""Seconds to open, list, resume and search an archive of many events, in SQLite and in PostgreSQL; needs no GPU.

    python -m benchmarks archive-scale --events 1000000 [--database sqlite|postgresql|both] [--folder DIR]

Both databases are on this machine's disk, and wait for it. The PostgreSQL server is the benchmark's own, as its
defaults are (docs/archive.md). Every figure is the median and the worst of --repeats, after one more as a start.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from benchmarks.archive.filling import EVENTS, made_runs, made_task, write
from benchmarks.archive.server import Server, missing
from hipwright.archive import Archive, Place, list_runs, read_log, show
from hipwright.archive.similar import similar
from hipwright.errors import BadInput

TARGETS = ("gfx942", "cpu")


@dataclass(frozen=True)
class Figure:
    """What one operation takes, in seconds. processor: of this process, which other load changes less."""

    median: float
    worst: float
    processor: float

    @classmethod
    def of(cls, work: Callable[[], object], repeats: int) -> Figure:
        """Measures `work`."""
        took, processor = [], []
        for _ in range(repeats + 1):
            begun, begun_processor = time.perf_counter(), time.process_time()
            work()
            took.append(time.perf_counter() - begun)
            processor.append(time.process_time() - begun_processor)
        return cls(statistics.median(took[1:]), max(took[1:]), statistics.median(processor[1:]))

    def __str__(self) -> str:
        ms = [f"{1000 * value:.1f}" for value in (self.median, self.worst, self.processor)]
        return f"{ms[0]} ms (worst {ms[1]}; processor {ms[2]})"


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options."""
    parser.add_argument("--events", type=int, default=100_000, help="events of the archive, at least (100000)")
    parser.add_argument("--tasks", type=int, default=250, help="tasks that the runs are of (250)")
    parser.add_argument("--database", choices=("sqlite", "postgresql", "both"), default="both")
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--folder", type=Path, help="where the archives are made; a temporary folder without it")
    parser.add_argument("--json", action="store_true", help="one object instead of lines")


def run(options: argparse.Namespace) -> int:
    """Measures, and prints a line for each figure."""
    chosen = ("sqlite", "postgresql") if options.database == "both" else (options.database,)
    if "postgresql" in chosen and (why := missing()):
        raise BadInput(why)
    found = {}
    for name in chosen:
        folder = Path(tempfile.mkdtemp(prefix="hw-scale-", dir=options.folder))
        folder.chmod(0o755)
        try:
            with ExitStack() as stack:
                found[name] = _measured(_place(name, folder, stack), options)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        if not options.json:
            for what, value in found[name].items():
                print(f"{name:11} {what:36} {value}", flush=True)
    if options.json:
        print(json.dumps(found, indent=2))
    return 0


def _place(name: str, folder: Path, stack: ExitStack) -> Place:
    if name == "sqlite":
        return folder / "archive"
    server = Server(folder / "server")
    stack.callback(server.stop)
    server.start()
    return server.url()


def _measured(place: Place, options: argparse.Namespace) -> dict[str, object]:
    begun = time.perf_counter()
    with Archive(place) as archive:
        for made in made_runs(options.events, options.tasks):
            write(archive, made)
        filled = time.perf_counter() - begun
        names = [one.id for one in archive.runs()]
        begun = time.perf_counter()
        listed = list_runs(archive)
        first_list = time.perf_counter() - begun
    assert len(listed) == len(names) and all(one.status == "finished" for one in listed)
    figures = {what: Figure.of(work, options.repeats) for what, work in _operations(place, names).items()}
    lines: dict[str, object] = {"events": EVENTS * len(names), "runs": len(names), "filling, s": round(filled, 1)}
    lines["first list, without digests, s"] = round(first_list, 1)
    return lines | {what: str(one) for what, one in figures.items()}


def _operations(place: Place, names: list[str]) -> dict[str, Callable[[], object]]:
    """What is measured. Each opens the archive, as a command does."""
    query = made_task(7, random.Random(123)).source

    def opened(work: Callable[[Archive], object]) -> Callable[[], object]:
        def whole() -> object:
            with Archive(place, create=False) as archive:
                return work(archive)

        return whole

    def resumed(archive: Archive) -> object:
        run = archive.run(names[len(names) // 2])
        with archive.lock(run.id):
            log = read_log(archive.events(run.id))
            archive.append(run.id, "resumed")
        return log

    def appended(archive: Archive) -> object:
        return archive.append(names[-1], "note", 1, {"text": "x" * 3600})

    return {
        "open": opened(lambda archive: None),
        "open and list all runs": opened(list_runs),
        "open and read a run to resume it": opened(resumed),
        "open and show a run": opened(lambda archive: show(archive, "latest")),
        "open and find 3 similar kernels": opened(lambda archive: similar(archive, query, targets=TARGETS, k=3)),
        "open and find 16 similar kernels": opened(lambda archive: similar(archive, query, targets=TARGETS, k=16)),
        "open and append an event of 3.6 kB": opened(appended),
    }
