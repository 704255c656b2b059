"""Faults of the engine as a run keeps them: what was refused, what was given up for it, and a file that shows it.

A run's log holds them as `fault` events, and `fault_checked` once a file was run alone. The files are stored under
their content key, as programs are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from hipwright.archive.store import Archive, LogEntry
from hipwright.records import Record

ENGINE_ERROR = "engine_error"
"""The status of a fault that is an exception of the engine; others have the refused program's."""
FAULT, CHECKED = "fault", "fault_checked"
FaultFile = Literal["operators", "task"]
"""What a fault's file holds: the guilty operators alone, or the whole task."""


class Reproducer(Record, frozen=True, kw_only=True):
    """A task file that shows a fault."""

    text: str


class EngineFault(Record, frozen=True, kw_only=True):
    """One fault of the engine.

    run, task: the run's id, the task's name. proposal: the one that was refused; -1 where the engine raised an
    exception before it had a program. clock: Unix time. version: of hipwright, "" where the run kept none. target,
    status, message, kernel: of the verdict; kernel is "" where the evidence names none. given_up: operators. file,
    reproducer: what the file holds, and its key, "" for the whole task's own source. shown: the status that the file
    ended with when it was run alone, "" while it was not. why: why the file holds the whole task.
    """

    run: str
    task: str
    proposal: int = -1
    clock: float = 0.0
    version: str = ""
    target: str = ""
    status: str
    message: str = ""
    kernel: str = ""
    given_up: tuple[str, ...] = ()
    file: FaultFile = "task"
    reproducer: str = ""
    shown: str = ""
    why: str = ""


class FaultCheck(Record, frozen=True, kw_only=True):
    """A fault's file was run alone. fault: its place among the run's faults."""

    fault: int
    shown: str
    file: FaultFile
    why: str = ""


def keep_faults(archive: Archive, faults: Sequence[tuple[EngineFault, Reproducer | None]]) -> None:
    """Appends faults to their run's log, with their files, in one transaction. All are of one run."""
    if not faults:
        return
    files = [file for _, file in faults if file is not None]
    entries = [LogEntry(FAULT, fault.proposal, fault.to_dict()) for fault, _ in faults]
    archive.append_all(faults[0][0].run, entries, files)


def keep_check(archive: Archive, run: str, check: FaultCheck) -> None:
    """Appends what became of a fault's file when it was run alone."""
    archive.append(run, CHECKED, -1, check.to_dict())


def add_fault(faults: list[EngineFault], kind: str, data: dict[str, Any], clock: float) -> None:
    """Takes in one event of a run. Raises msgspec.MsgspecError for one that cannot be read."""
    if kind == FAULT:
        faults.append(msgspec.structs.replace(EngineFault.from_dict(data), clock=clock))
    elif kind == CHECKED:
        check = FaultCheck.from_dict(data)
        if check.fault >= len(faults):  # of an event that cannot be read
            return
        kept = msgspec.structs.replace(faults[check.fault], shown=check.shown, file=check.file, why=check.why)
        faults[check.fault] = kept
