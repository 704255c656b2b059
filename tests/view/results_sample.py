"""Folders of results for the tests of their pages: two benchmarks, two audits, two trainings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hipwright.evaluation.bench import BenchRow
from hipwright.evaluation.figures import figures
from tests.report import train_sample
from tests.report.bench_sample import timed_row

CASES = {"a": "right", "b": "right", "c": "accepted"}


def sample_results(root: Path, text: str = "") -> Path:
    """Writes all six below the root."""
    write_bench(root / "bench-a", [0.8, 1.5, 2.5, None, 1.1], text)
    write_bench(root / "bench-b", [0.8, 3.5, None, None, 1.1], text)
    write_audit(root / "audit-a", CASES, text)
    write_audit(root / "audit-b", {**CASES, "c": "right"}, text)
    train_sample.write(root / "train-a", text=text)
    train_sample.write(root / "train-b", text=text, evaluation=False, seeds=1)
    return root


def rows_of(speedups: list[float | None], text: str = "") -> list[BenchRow]:
    """A row a speedup; None is a failure."""
    return [timed_row(number, speedup, text=text) for number, speedup in enumerate(speedups)]


def write_bench(folder: Path, speedups: list[float | None], text: str = "", *, finished: bool = True) -> None:
    """A benchmark as `bench --out` leaves it; unfinished, its rows alone, the last one cut off."""
    folder.mkdir(parents=True)
    rows = rows_of(speedups, text)
    lines = "".join(row.to_json() + "\n" for row in rows)
    (folder / "rows.jsonl").write_text(lines if finished else lines + '{"key": "cut', encoding="utf-8")
    if finished:
        summary = {
            "suite": "/tasks/some" + text,
            "mode": "strict",
            "source": "engine" + text,
            "targets": ["cuda", "gfx942"],
            "complete": True,
            "expected_rows": len(rows),
            **figures(rows),
            "model": None,
            "not_measured": ["nothing was measured on AMD" + text],
            "rows": [row.to_dict() for row in rows],
        }
        (folder / "result.json").write_text(json.dumps(summary), encoding="utf-8")


def write_audit(folder: Path, cases: dict[str, str], text: str = "") -> None:
    """An audit of the corpus in the form of audit.json."""
    folder.mkdir(parents=True)
    found: dict[str, Any] = {
        "verifiers": [
            {
                "verifier": "full on cpu" + text,
                "counts": {"hostile": {"right": 2, "accepted": list(cases.values()).count("accepted")}},
                "accepted": list(cases.values()).count("accepted"),
                "rejected": 0,
                "seconds": 12.5,
                "cases": [
                    {"case": name + text, "task": "t", "row": 1, "outcome": outcome, "why": text, "found": "pass"}
                    for name, outcome in cases.items()
                ],
            }
        ],
        "confusion": [{"verifier": "full", "form": "program", "right_accepted": 3, "false_accepts": [0.01, 0.2]}],
        "screener": None,
        "dropped_element": {"sum" + text: [{"workload": "given", "of": 64, "found": 3, "tried": 4}]},
    }
    (folder / "audit.json").write_text(json.dumps(found), encoding="utf-8")
