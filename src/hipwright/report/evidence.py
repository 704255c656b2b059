"""What a pass rests on: the cases by shape that would reject a trivial answer, for the page and the terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hipwright.records import Verdict


def evidence_table(verdict: Verdict | None) -> dict[str, Any] | None:
    """The table of checks["evidence"]; None for a verdict that is no pass, or is of an earlier version.

    rows: {workload, inputs, cases, families} of each shape, the task's own names as they are; answers: (trivial answer,
    cases that reject it); minimum: of such cases that a pass needs.
    """
    found = verdict.checks.get("evidence") if verdict is not None and verdict.passed else None
    if verdict is None or not isinstance(found, Mapping) or not isinstance(found.get("cases"), Mapping):
        return None
    rejecting = found.get("rejecting")
    answers = {str(k).replace("_", " "): v for k, v in rejecting.items()} if isinstance(rejecting, Mapping) else {}
    shapes = verdict.checks.get("shapes")
    inputs = shapes if isinstance(shapes, Mapping) else {}
    rows = [
        {
            "workload": str(workload),
            "inputs": ", ".join(map(str, inputs.get(workload, ()))),
            "cases": len(families),
            "families": ", ".join(map(str, families)),
        }
        for workload, families in found["cases"].items()
    ]
    return {"rows": rows, "answers": list(answers.items()), "minimum": found.get("minimum", 0)} if rows else None


def evidence_sentence(table: Mapping[str, Any]) -> str:
    """One line: how many cases reject each trivial answer, and how many a pass needs."""
    told = ", ".join(f"{name} {count}" for name, count in table["answers"])
    return f"judged cases that reject a trivial answer ({table['minimum']} of each needed): {told}"
