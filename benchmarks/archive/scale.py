"""Seconds to open, list, resume and search an archive of many events, in SQLite and in PostgreSQL; needs no GPU.

    python -m benchmarks archive-scale --events 1000000 [--database sqlite|postgresql|both] [--kept DIR] [--cold]
                                       [--whole]

Both databases are on this machine's disk, and wait for it. The PostgreSQL server is the benchmark's own, as its
defaults are (docs/archive.md) once it is filled. Every figure is the median and the worst of --repeats, after one more,
whose time is given as the first: the archive may be on the disk only. With --cold the archive is dropped from memory
before each (benchmarks/archive/cold.py), and a server starts anew; the first, which is not counted, is from memory, so
that this process has loaded what it needs. With --whole it is also checked, and the screener calibrated by it, once
each, which reads all of it (benchmarks/archive/whole.py).
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

from benchmarks.archive import cold, whole
from benchmarks.archive.bulk import SETTINGS, fill
from benchmarks.archive.filling import made_runs, made_task
from benchmarks.archive.server import Server, missing
from benchmarks.common import positive
from hipwright.archive import Archive, Place, list_runs, read_log, show
from hipwright.archive.similar import similar
from hipwright.errors import BadInput

TARGETS = ("gfx942", "cpu")


@dataclass(frozen=True)
class Figure:
    """What one operation takes, in seconds. processor: of this process, which other load changes less.

    calls, fetched: read calls of this process, and bytes that it fetched from disks; medians.
    """

    first: float
    median: float
    worst: float
    processor: float
    calls: int
    fetched: int

    @classmethod
    def of(cls, work: Callable[[], object], repeats: int, before: Callable[[], None] = lambda: None) -> Figure:
        """Measures `work`. before: is called before each repeat, not before the first one."""
        rows = []
        for number in range(repeats + 1):
            if number:
                before()
            calls, fetched = cold.reads()
            begun, begun_processor = time.perf_counter(), time.process_time()
            work()
            took, processor = time.perf_counter() - begun, time.process_time() - begun_processor
            now_calls, now_fetched = cold.reads()
            rows.append((took, processor, now_calls - calls, now_fetched - fetched))
        took_all, *others = zip(*rows[1:], strict=True)
        processor, calls, fetched = (statistics.median_low(column) for column in others)
        median, worst = statistics.median(took_all), max(took_all)
        return cls(rows[0][0], median, worst, processor, int(calls), int(fetched))

    def __str__(self) -> str:
        ms = [f"{1000 * value:.1f}" for value in (self.median, self.worst, self.first, self.processor)]
        read = f"; {self.calls} reads, {self.fetched / 1e6:.2f} MB from the disk"
        return f"{ms[0]} ms (worst {ms[1]}; first {ms[2]}; processor {ms[3]}{read})"


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options."""
    parser.add_argument("--events", type=positive, default=100_000, help="events of the archive, at least (100000)")
    parser.add_argument("--tasks", type=positive, default=250, help="tasks that the runs are of (250)")
    parser.add_argument("--database", choices=("sqlite", "postgresql", "both"), default="both")
    parser.add_argument("--repeats", type=positive, default=9)
    parser.add_argument(
        "--kept", type=Path, metavar="DIR", help="where the archives are made and stay: they are used again"
    )
    parser.add_argument("--cold", action="store_true", help="drop the archive from memory before each measurement")
    parser.add_argument("--whole", action="store_true", help="also measure what reads all of it, and its memory")
    parser.add_argument("--json", action="store_true", help="one object instead of lines")


def run(options: argparse.Namespace) -> int:
    """Measures, and prints a line for each figure."""
    chosen = ("sqlite", "postgresql") if options.database == "both" else (options.database,)
    if "postgresql" in chosen and (why := missing()):
        raise BadInput(why)
    found = {}
    for name in chosen:
        with ExitStack() as stack:
            folder = options.kept / f"{name}-{options.events}-{options.tasks}" if options.kept else _temporary(stack)
            found[name] = _measured(_filled(name, folder, options, stack), options)
        if not options.json:
            for what, value in found[name].items():
                print(f"{name:11} {what:36} {value}", flush=True)
    if options.json:
        print(json.dumps(found, indent=2))
    return 0


def _temporary(stack: ExitStack) -> Path:
    folder = Path(tempfile.mkdtemp(prefix="hw-scale-"))
    stack.callback(shutil.rmtree, folder, ignore_errors=True)
    return folder


@dataclass(frozen=True)
class _Filled:
    """An archive that was filled. folder: where its files are; took: how long filling did, s; server: of PostgreSQL."""

    folder: Path
    place: Place
    took: float
    server: Server | None

    def forget(self) -> None:
        """Drops it from memory; a server is stopped for it, and started."""
        if self.server:
            self.server.stop()
        cold.drop(self.folder)
        if self.server:
            self.server.start()


def _filled(name: str, folder: Path, options: argparse.Namespace, stack: ExitStack) -> _Filled:
    """The archive in a folder, made where there is none."""
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o755)
    told, begun = folder / "filled", time.perf_counter()
    if not told.exists():
        with ExitStack() as filling:
            place, _ = _place(name, folder, filling, **SETTINGS)
            fill(place, made_runs(options.events, options.tasks))
        told.write_text(f"{time.perf_counter() - begun:.1f}")
    place, server = _place(name, folder, stack)
    return _Filled(folder, place, float(told.read_text()), server)


def _place(name: str, folder: Path, stack: ExitStack, **settings: str) -> tuple[Place, Server | None]:
    if name == "sqlite":
        return folder / "archive", None
    server = Server(folder / "server", **settings)
    stack.callback(server.stop)
    server.start()
    return server.url(), server


def _measured(filled: _Filled, options: argparse.Namespace) -> dict[str, object]:
    with Archive(filled.place) as archive:
        seqs = archive.database.digests.last_seqs()
    lines: dict[str, object] = {"events": sum(seqs.values()) + len(seqs), "runs": len(seqs)}
    lines |= {"filling, s": filled.took, "dropped from memory": cold.way() if options.cold else "no"}
    before = filled.forget if options.cold else lambda: None
    operations = _operations(filled.place, sorted(seqs))
    lines |= {what: str(Figure.of(work, options.repeats, before)) for what, work in operations.items()}
    return lines | {work: whole.measured(filled.place, work) for work in whole.WORKS if options.whole}


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
