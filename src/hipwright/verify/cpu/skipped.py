"""Why a shape of the task's own was not run on the cpu target, and which shapes nobody ran at all."""

from __future__ import annotations

from collections.abc import Iterable

from hipwright.records import Verdict

CPU = "the cpu target"


def too_many(count: str) -> str:
    """The reason, of elements or operations."""
    return f"{count} are too many for {CPU}"


def too_long(seconds: str) -> str:
    """The reason, of processor time."""
    return f"{seconds} s on {CPU}; verified at smaller shapes"


def unseen(verdicts: Iterable[Verdict]) -> dict[str, str]:
    """{workload: why} of the task's own workloads that cost too much where they might have run, and that no verdict
    rests on. A program may be wrong there alone (docs/verification.md)."""
    known = list(verdicts)
    seen = {name for verdict in known for name in verdict.workloads}
    left = {name: why for verdict in known for name, why in verdict.skipped.items() if CPU in why}
    return {name: why for name, why in left.items() if name not in seen and "/" not in name}
