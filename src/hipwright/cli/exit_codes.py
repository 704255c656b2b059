"""Exit codes: 0 pass, 1 the candidate or the run failed, 2 bad input, 3 infrastructure, 130 or 143 interrupted."""

from __future__ import annotations

from hipwright.records import Evaluation

FAILED = 1
BAD_INPUT = 2
INFRASTRUCTURE = 3
INTERRUPTED = 130


def of_evaluation(evaluation: Evaluation | None) -> int:
    """0 for a pass, 1 for a rejected program or none at all, 2 for a task at fault, 3 for anything else's fault."""
    if evaluation is None:
        return FAILED
    if evaluation.passed:
        return 0
    return {"candidate": FAILED, None: FAILED, "task": BAD_INPUT}.get(evaluation.fault, INFRASTRUCTURE)
