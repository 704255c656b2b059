"""What is kept of each task: one JSON line a measurement, appended; the latest of a task and stage holds."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

import msgspec

from hipwright.records import Record

Stage = Literal["opened", "first", "search"]
"""opened: the engine's first answer, verified and not timed; first: timed too; search: the best after a search."""
MACHINE_FAULTS = ("toolchain", "device", "provider", "service")


class Against(Record, frozen=True, kw_only=True):
    """One side beside the program, in turn with it: other / own time, its 95 % interval, its own milliseconds."""

    speedup: float
    interval: tuple[float, float]
    ms: float
    latency_speedup: float | None = None


class Trial(Record, frozen=True, kw_only=True):
    """One evaluation of a search, in order. microseconds: None for a program that failed.

    choices: the engine's settings. speedup, interval: against eager, measured shortly. estimated_us, detail: the
    static estimate for the same device.
    """

    number: int
    choices: dict[str, Any] = msgspec.field(default_factory=dict)
    microseconds: float | None = None
    speedup: float | None = None
    interval: tuple[float, float] | None = None
    estimated_us: float | None = None
    detail: tuple[dict[str, Any], ...] = ()


class Measured(Record, frozen=True, kw_only=True):
    """One task at one stage: the engine's first answer, or the best after a search.

    key: of the task's file. bytes, operations: counted (hipwright.measure.traffic). sides: "eager", "compile",
    "max-autotune", "copy". first_s: opening the task to its first verified program; lanes: tasks that shared the
    machine meanwhile. trials: of the search; evaluations: how many. missing: why a side is not there.
    """

    task: str
    family: str
    key: str
    stage: Stage
    status: str
    fault: str | None = None
    message: str = ""
    device: str = ""
    architecture: str = ""
    torch: str = ""
    version: str = ""
    program: str = ""
    choices: dict[str, Any] = msgspec.field(default_factory=dict)
    coverage: float | None = None
    own_time: float | None = None
    policy: str = ""
    median_ms: float | None = None
    latency_ms: float | None = None
    floor_ms: float | None = None
    bytes: int | None = None
    operations: float | None = None
    sides: dict[str, Against] = msgspec.field(default_factory=dict)
    missing: tuple[str, ...] = ()
    estimated_us: float | None = None
    detail: tuple[dict[str, Any], ...] = ()
    first_s: float | None = None
    lanes: int = 1
    trials: tuple[Trial, ...] = ()
    evaluations: int = 0
    seconds: float = 0.0
    clock: float = 0.0

    @property
    def passed(self) -> bool:
        """Verified and timed."""
        return self.status == "pass" and self.median_ms is not None

    @property
    def settled(self) -> bool:
        """False where only the machine failed: such a task is measured again."""
        return self.fault not in MACHINE_FAULTS


class Records:
    """A file of records. One process appends; a line that was torn by a kill is left behind."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rows = read([path])

    def add(self, row: Measured) -> None:
        """Durable when this returns."""
        self.rows.append(row)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("ab") as stream:
            if stream.tell() and not _ends_whole(self.path):
                stream.write(b"\n")
            stream.write(row.to_json().encode() + b"\n")
            stream.flush()
            os.fsync(stream.fileno())

    def done(self, task: str, key: str, stage: Stage) -> bool:
        """Whether there is a measurement of this very file at this stage that need not be made again."""
        return any((r.task, r.key, r.stage) == (task, key, stage) and r.settled for r in self.rows)


def read(paths: Iterable[Path]) -> list[Measured]:
    """Every whole line of the files, in order; a file that is not there has none."""
    rows = []
    for path in paths:
        with contextlib.suppress(FileNotFoundError):
            for line in path.read_bytes().splitlines():
                with contextlib.suppress(msgspec.MsgspecError):
                    rows.append(Measured.from_json(line))
    return rows


def merge(rows: Iterable[Measured]) -> list[Measured]:
    """The row that holds for each task and stage: the latest by its clock, a settled one before one that is not.

    Only rows of the latest version of a task's file are kept.
    """
    ordered = sorted(rows, key=lambda row: row.clock)
    current = {row.task: row.key for row in ordered}
    held: dict[tuple[str, str], Measured] = {}
    for row in ordered:
        place = (row.task, row.stage)
        if row.key == current[row.task] and (row.settled or place not in held or not held[place].settled):
            held[place] = row
    return [held[place] for place in sorted(held)]


def _ends_whole(path: Path) -> bool:
    with path.open("rb") as stream:
        stream.seek(-1, os.SEEK_END)
        return stream.read(1) == b"\n"
