"""Results of archived runs, as their searches gave them, by a run's name or a program's key."""

from __future__ import annotations

import re

from hipwright.api.result import Result, written
from hipwright.api.runs.queries import open_archive
from hipwright.archive import Archive, RunDetail, show
from hipwright.errors import BadInput
from hipwright.records import Program
from hipwright.search import SearchResult

_KEY = re.compile(r"[0-9a-f]{8,20}\Z")


def result_of(archive: Archive, detail: RunDetail, path: str) -> Result:
    """The result of an archived run, as its search gave it."""
    summary = detail.summary
    search = SearchResult(
        run=summary.id,
        reason=summary.reason or summary.status,
        program=detail.program,
        evaluation=detail.best,
        number=summary.best_number,
        evaluations=summary.evaluations,
        confirmed=summary.confirmed,
    )
    return Result(path=path, task=archive.task(detail.run.task), search=search, detail=detail)


def named(what: str) -> Result:
    """The result of a run (its id, the start of it, or `latest`), or of a program's key or the start of one.

    A key is that of program.py, which every export and the result name too, or the archive's own of the winner.
    Raises BadInput where there is none, and where the run has no verified program.
    """
    with open_archive() as archive:
        if _KEY.match(what):
            for run in reversed(archive.runs()):
                found = result_of(archive, show(archive, run.id), f"{run.id}.py")
                if found.passed and what in (found.program_key[: len(what)], found.search.best[: len(what)]):
                    return found
        found = result_of(archive, show(archive, what), what)
    if not found.passed:
        raise BadInput(f"run {found.run} has no verified program", hint="`hipwright show` says why")
    return found


def key_of(detail: RunDetail) -> str:
    """The key of a run's winner as program.py; "" without one."""
    return Program(text=written(detail.program, detail.best)).key if detail.program is not None else ""
