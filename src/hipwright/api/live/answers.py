"""Answers for the text of a task: a confirmed program of an archived run, else a search. Imports no torch."""

from __future__ import annotations

from collections.abc import Sequence

from hipwright import config
from hipwright.api.optimize import TEXT_KEY, SearchRequest, run_search, text_key
from hipwright.api.result import Result
from hipwright.api.runs.results import result_of
from hipwright.archive import Archive, RunDetail, show
from hipwright.errors import BadInput
from hipwright.evaluation.results import environment
from hipwright.events import Listener, silent
from hipwright.machine import Machine


def answer(
    request: SearchRequest, *, on: Machine | None = None, fresh: bool = False, listener: Listener = silent
) -> Result:
    """The archive's answer where there is one that the request would not improve on, else a search's.

    An archived run answers where its winner was verified twice, on all of the request's targets, in this environment,
    with at least the request's budget. fresh: always a search.
    """
    found = None if fresh else archived(request)
    return found if found is not None else run_search(request, on=on, listener=listener)


def archived(request: SearchRequest) -> Result | None:
    """The best confirmed answer in the archive to a request, or None."""
    wanted = text_key(request.task.read())
    try:
        with Archive(config.archive(), create=False) as archive:
            runs = [run for run in archive.runs() if run.settings.get(TEXT_KEY) == wanted]
            found = [show(archive, run.id) for run in runs if set(request.targets or ()) <= set(run.targets)]
            usable = [one for one in found if _answers(one, request)]
            if not usable:
                return None
            best = min(usable, key=lambda one: (one.summary.score or 0.0, one.run.id))
            return result_of(archive, best, request.task.shown)
    except BadInput:  # there is no archive yet
        return None


def _answers(detail: RunDetail, request: SearchRequest) -> bool:
    summary, best = detail.summary, detail.best
    if best is None or not best.passed or summary.status != "finished" or summary.confirmed is False:
        return False
    return (
        best.environment == environment() and detail.run.budget >= (request.budget or 0) and _verified(detail, request)
    )


def _verified(detail: RunDetail, request: SearchRequest) -> bool:
    """Whether the winner passed on every target of the request that runs programs."""
    assert detail.best is not None
    results = [detail.best.targets.get(name) for name in request.targets or ()]
    return all(one is not None and (one.verdict is None or one.verdict.passed) for one in results)


def names(targets: str | Sequence[str] | None) -> tuple[str, ...] | None:
    """A `target` option as names, None for the default ones."""
    if targets is None:
        return None
    return (targets,) if isinstance(targets, str) else tuple(targets)
