"""Queries on the archive of this folder: runs listed, shown, compared and exported.

A run is named by its id, the start of it, or "latest".
"""

from __future__ import annotations

import json
from typing import Any

from hipwright import archive as store
from hipwright import config
from hipwright.api.models import models_spent
from hipwright.archive import Archive, DamagedRow, NoArchive, RunComparison, RunDetail, RunSummary
from hipwright.errors import InfrastructureError
from hipwright.records import Task


def open_archive() -> Archive:
    """The archive of this folder, read-only where it cannot be written; BadInput where there is none."""
    return Archive(config.archive(), create=False)


def list_runs() -> tuple[list[RunSummary], list[DamagedRow]]:
    """All runs, newest first, and the rows that were skipped; empty where there is no archive."""
    try:
        with open_archive() as archive:
            return store.list_runs(archive), archive.damaged
    except NoArchive:
        return [], []


def run_detail(run: str) -> tuple[RunDetail, dict[str, Any] | None, list[DamagedRow]]:
    """One run, what its language models were asked (None for a run without models), and the rows that were skipped."""
    with open_archive() as archive:
        detail = store.show(archive, run)
        try:
            models = models_spent(archive, detail.run)
        except InfrastructureError:  # a damaged row, which `show` has noted
            models = None
        return detail, models, archive.damaged


def run_task(run: str) -> tuple[str, Task]:
    """(the run's id, the task that it searches), as the archive has them."""
    with open_archive() as archive:
        found = archive.run(run)
        return found.id, archive.task(found.task)


def compare_runs(first: str, second: str) -> tuple[RunComparison, list[DamagedRow]]:
    """Two runs side by side with the difference of their winners' sources, and the rows that were skipped."""
    with open_archive() as archive:
        return store.compare(archive, first, second), archive.damaged


def check_archive() -> list[DamagedRow]:
    """Every row of the archive that cannot be read."""
    with open_archive() as archive:
        return store.check(archive)


def export_run(run: str, *, canonical: bool = False, records: str | None = None) -> tuple[str, str]:
    """(the run's id, JSON lines): its events, or with `records` rows for training (sft, rl or labels).

    canonical: only the events that decide the outcome, the same bytes for the same task and seed.
    """
    with open_archive() as archive:
        name = archive.run(run).id
        if not records:
            return name, store.export(archive, name, canonical=canonical)
        from hipwright.agents.archivist import records as training_rows

        rows = training_rows(archive, name, records)
        return name, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
