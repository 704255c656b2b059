"""The logs of calls: in memory, in a file, in a run's archive (hipwright.llm.ledger says what each one does)."""

from __future__ import annotations

from typing import Any

from hipwright.archive.store import Archive, LogEntry
from hipwright.llm.callfile import FileCalls
from hipwright.llm.ledger import CallLog, MemoryCalls, Recorded, RefusedCall
from hipwright.llm.records import Request

__all__ = ["ArchiveCalls", "CallLog", "FileCalls", "MemoryCalls", "Recorded", "RefusedCall"]


class ArchiveCalls(MemoryCalls):
    """The calls of one run, as events in its archive. The run's lock keeps other processes out."""

    def __init__(self, archive: Archive, run: str) -> None:
        super().__init__()
        self._archive, self._run = archive, run
        for event in archive.events(run):
            self.take(event.kind, event.data, f"event {event.seq} of run {run}")

    def _write(self, kind: str, request: Request, data: dict[str, Any]) -> None:
        self._archive.append_all(self._run, [LogEntry(kind, request.number, data)])
