"""A log of model calls as events of one run in the archive."""

from __future__ import annotations

from typing import Any

from hipwright.archive.store import Archive, LogEntry
from hipwright.llm.call_log import MemoryCallLog
from hipwright.llm.records import Request


class ArchiveCallLog(MemoryCallLog):
    """The calls of one run as events in its archive. The run's lock excludes other processes."""

    def __init__(self, archive: Archive, run: str) -> None:
        super().__init__()
        self._archive, self._run = archive, run
        for event in archive.events(run):
            self.add(event.kind, event.data, f"event {event.seq} of run {run}")

    def _write(self, kind: str, request: Request, data: dict[str, Any]) -> None:
        self._archive.append_all(self._run, [LogEntry(kind, request.number, data)])
