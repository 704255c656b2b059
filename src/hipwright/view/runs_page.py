"""The first page: all runs with status and sparkline, the newest first."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hipwright.archive import RunSummary
from hipwright.view.query import count
from hipwright.view.reader import ArchiveReader, RunLine

PAGE = 40
"""Runs on one page."""


@dataclass(frozen=True)
class RunRow:
    """One run, and when it started, in local time."""

    line: RunLine
    started: str

    @property
    def summary(self) -> RunSummary:
        """The run's summary."""
        return self.line.summary


def runs_page(reader: ArchiveReader, query: Mapping[str, str]) -> dict[str, Any]:
    """What the page shows. query: page, and q, a part of a run's id or of its task's name."""
    state = json.dumps(reader.archive_state())
    wanted = query.get("q", "").strip()
    runs = reader.runs()
    if wanted:
        runs = [run for run in runs if wanted.lower() in f"{run.id} {reader.line(run).summary.task}".lower()]
    pages = max(1, -(-len(runs) // PAGE))
    page = min(count(query.get("page", ""), 1, 10**6), pages)
    rows = []
    for run in runs[(page - 1) * PAGE : page * PAGE]:
        line = reader.line(run)
        clock = line.summary.started
        rows.append(RunRow(line, time.strftime("%Y-%m-%d %H:%M", time.localtime(clock)) if clock else ""))
    pages_shown = {"page": page, "pages": pages, "of": len(runs)}
    return {"rows": rows, **pages_shown, "wanted": wanted, "state": state, "damaged": reader.damaged}
