"""Conversion of a pair to a flat row with fixed columns, and back, without loss.

Maps with arbitrary keys (knobs, provenance) and timings are columns of JSON text, since loaders need one type a column.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from hipwright.dataset.export.format import Columns
from hipwright.dataset.records import BuildSummary, Pair
from hipwright.records import Program, Timing

COLUMNS: Columns = {
    "key": "string",
    "task": "string",
    "task_name": "string",
    "task_source": "string",
    "program": "string",
    "knobs": "string",
    "lane": "string",
    "kind": "string",
    "correct": "bool",
    "status": "string",
    "evidence": "string",
    "before": "string",
    "before_knobs": "string",
    "before_lane": "string",
    "coverage": "float64",
    "builds": [{"target": "string", "ok": "bool", **{n: "int64" for n in BuildSummary.__struct_fields__ if n != "ok"}}],
    "estimate_us": [{"target": "string", "microseconds": "float64"}],
    "timing": "string",
    "operators": ["string"],
    "families": ["string"],
    "dtype": "string",
    "composition": "string",
    "difficulty": "string",
    "split": "string",
    "provenance": "string",
    "licence": "string",
}
_UNCHANGED = (
    "task",
    "task_name",
    "task_source",
    "kind",
    "correct",
    "status",
    "evidence",
    "coverage",
    "operators",
    "families",
    "dtype",
    "composition",
    "difficulty",
    "split",
    "licence",
)


def flat(pair: Pair) -> dict[str, Any]:
    """The row of a pair, with the keys of COLUMNS. An absent predecessor or timing is ""."""
    before = pair.before
    row = {
        "key": pair.key,
        **{name: getattr(pair, name) for name in _UNCHANGED},
        "operators": list(pair.operators),
        "families": list(pair.families),
        "program": pair.program.text,
        "knobs": _json(pair.program.knobs),
        "lane": pair.program.form,
        "before": before.text if before else "",
        "before_knobs": _json(before.knobs) if before else "",
        "before_lane": before.form if before else "",
        "builds": [{"target": name, **build.to_dict()} for name, build in sorted(pair.builds.items())],
        "estimate_us": estimate_rows(pair.estimate_us),
        "timing": pair.timing.to_json() if pair.timing else "",
        "provenance": _json(pair.provenance),
    }
    return {name: row[name] for name in COLUMNS}


def estimate_rows(values: Mapping[str, float]) -> list[dict[str, Any]]:
    """{target: microseconds} as a list of structs, sorted by target."""
    return [{"target": name, "microseconds": float(value)} for name, value in sorted(values.items())]


def unflat(row: Mapping[str, Any]) -> Pair:
    """The pair of a row. Raises KeyError or msgspec.ValidationError for an invalid row."""
    plain = {
        **{name: row[name] for name in _UNCHANGED},
        "builds": {one["target"]: {k: v for k, v in one.items() if k != "target"} for one in row["builds"]},
        "estimate_us": {one["target"]: one["microseconds"] for one in row["estimate_us"]},
        "timing": Timing.from_json(row["timing"]).to_dict() if row["timing"] else None,
        "provenance": msgspec.json.decode(row["provenance"]),
        "program": _program(row["program"], row["knobs"], row["lane"]),
        "before": _program(row["before"], row["before_knobs"], row["before_lane"]) if row["before_lane"] else None,
    }
    return Pair.from_dict(plain)


def _program(text: str, knobs: str, form: str) -> dict[str, Any]:
    return Program.from_dict({"text": text, "knobs": msgspec.json.decode(knobs), "lane": form}).to_dict()


def _json(value: Any) -> str:
    return msgspec.json.encode(value, order="deterministic").decode()
