"""Reasons why one of the task's own workloads was not run on the cpu target, and which ones no target ran."""

from __future__ import annotations

from collections.abc import Iterable

from hipwright.records import Verdict

CPU = "the cpu target"


def too_many(count: str) -> str:
    """The reason for a workload of so many elements or operations. count: with its unit."""
    return f"{count} are too many for {CPU}"


def too_long(seconds: str) -> str:
    """The reason for a workload that would take so many processor seconds."""
    return f"{seconds} s on {CPU}; verified at smaller shapes"


def budget_spent(seconds: float) -> str:
    """The reason for a family at the task's own shapes after others took what may be spent on them there."""
    return f"{seconds:g} s for families at this shape on {CPU} are spent"


def unseen(verdicts: Iterable[Verdict]) -> dict[str, str]:
    """{workload: why} of the task's own workloads that were too costly for the cpu target and that no verdict includes.

    A program may be wrong at these alone (docs/verification.md).
    """
    known = list(verdicts)
    seen = {name for verdict in known for name in verdict.workloads}
    left = {name: why for verdict in known for name, why in verdict.skipped.items() if CPU in why}
    return {name: why for name, why in left.items() if name not in seen and "/" not in name}
