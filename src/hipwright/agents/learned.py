"""What the archive's earlier runs teach a policy: values of choices, and the weights of its planner.

Taken once, when a run begins, and stored in its setting "learned", so that the run depends on its own record only.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hipwright.archive import Archive, RunLog, read_log
from hipwright.records import Run
from hipwright.search.policies.common import LEARNED
from hipwright.search.policies.learned_planner import rows_of, train
from hipwright.search.policies.value_memory import DRAFT, REFINE, values_of
from hipwright.search.view import SearchView, Trial

MOST_RUNS = 60
"""The latest finished runs that are read."""
MOST_WEIGHTS = 400
"""The largest weights, and items, that a run's setting holds."""


def learned_setting(archive: Archive, policy: str) -> dict[str, Any]:
    """The run setting of a policy that learns from the archive; {} for the others and for an empty archive."""
    if policy == "value_memory":
        values: dict[str, dict[str, float]] = {DRAFT: {}, REFINE: {}}
        for view in _views(archive):
            values = values_of(view, values)
        kept = {stage: _largest(found) for stage, found in values.items()}
        return {LEARNED: {"values": kept}} if any(kept.values()) else {}
    if policy == "learned_planner":
        rows = [row for view in _views(archive) for row in rows_of(view)]
        return {LEARNED: {"planner": _largest(train(rows, {})), "rows": len(rows)}} if rows else {}
    return {}


def view_of(run: Run, log: RunLog) -> SearchView:
    """The view at the end of a run: all decided trials, and what limits its parents."""
    trials = []
    for number in sorted(log.decided):
        proposed, evaluated = log.proposed.get(number), log.evaluated.get(number)
        if proposed is not None:
            trials.append(Trial(proposed, evaluated.evaluation if evaluated else None, log.decided[number]))
    counted = {one.program: one for one in log.counted.values()}
    return SearchView(run.seed, run.budget, tuple(trials), settings=run.settings, counted=counted)


def _views(archive: Archive) -> Iterator[SearchView]:
    """The views of the latest finished searches, the oldest first."""
    for run in sorted(archive.runs(), key=lambda one: one.id)[-MOST_RUNS:]:
        log = read_log(archive.events(run.id, skip_damaged=True))
        if log.finished is not None and log.decided:
            yield view_of(run, log)


def _largest(found: dict[str, float]) -> dict[str, float]:
    kept = sorted(found.items(), key=lambda one: (-abs(one[1]), one[0]))[:MOST_WEIGHTS]
    return {name: round(value, 5) for name, value in sorted(kept)}
