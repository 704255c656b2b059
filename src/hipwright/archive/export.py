"""Exports a run as JSON lines. The canonical form is byte-identical for all runs with the same task, seed and settings.

Canonical: only what decides the outcome, in proposal order, without data of clocks, machines and paths. `STRIPPED` and
`MASKS` list all that is left out (docs/search.md gives the reasons).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from hipwright.archive.log import Evaluated, RunLog, read_log
from hipwright.archive.store import Archive
from hipwright.records import Event, Record

STRIPPED = frozenset(
    {
        # clocks
        "clock",
        "seconds",
        "wall_s",
        "cpu_s",
        "own_time",
        "timing",
        "samples_ms",
        "baseline_ms",
        # caches and retries
        "cached",
        "attempts",
        # the machine and its files
        "environment",
        "log",
        "blob",
        "isa_blob",
        "provenance",
        "pid",
        "host",
        "path",
        "traceback",
        "stderr",
    }
)

MASKS = (
    (
        re.compile(r"(?<![\w./>])/(?:[\w.+@~-]+/)+[\w.+@~-]*"),
        "<path>",
    ),  # two or more components, so that a division sign stays
    (re.compile(r"\b0x[0-9a-fA-F]{6,}\b"), "<address>"),
)

_KINDS = ("proposed", "evaluated", "decided")


def export(archive: Archive, run: str, *, canonical: bool = False) -> str:
    """Returns a run as JSON lines, programs included. BadInput when there is no such run.

    Not canonical: every event as stored, `proposed` with the program, and `run_started` with the programs that
    the run's settings name (of earlier runs, the start), so that the file suffices to replay the run.
    """
    name = archive.run(run).id
    events = archive.events(name)
    lines = _canonical(archive, read_log(events)) if canonical else (_full(archive, event) for event in events)
    return "".join(json.dumps(line, sort_keys=True, separators=(",", ":"), ensure_ascii=False) + "\n" for line in lines)


def strip(value: Any) -> Any:
    """Returns plain JSON without the fields in STRIPPED, at any depth, and with paths and addresses masked."""
    if isinstance(value, dict):
        return {key: strip(item) for key, item in value.items() if key not in STRIPPED}
    if isinstance(value, (list, tuple)):
        return [strip(item) for item in value]
    if isinstance(value, str):
        for pattern, mask in MASKS:
            value = pattern.sub(mask, value)
    return value


def _full(archive: Archive, event: Event) -> dict[str, Any]:
    line = event.to_dict()
    if program := event.data.get("program") if event.kind == "proposed" else None:
        line["program"] = archive.program(program).to_dict()
    if event.kind == "run_started" and (shown := _programs_of_settings(event)):
        line["programs"] = [archive.program(key).to_dict() for key in shown]
    return line


def _programs_of_settings(event: Event) -> list[str]:
    """Keys of the programs that a run's settings name: of earlier runs, and the start."""
    settings = event.data.get("run", {}).get("settings", {})
    agents, start = settings.get("agents") or {}, settings.get("start") or {}
    return sorted({*agents.get("known", ()), *agents.get("neighbours", ()), start.get("program", "")} - {""})


TIMED_EVIDENCE = ("checks", "workloads", "skipped", "worst_error")
"""What a verdict was judged on: cases that a loaded machine has no time for are left out."""


def _canonical(archive: Archive, log: RunLog) -> Iterator[dict[str, Any]]:
    run = {key: value for key, value in log.started.get("run", {}).items() if key != "id"}
    yield {"kind": "run_started", "run": strip(run)}
    for called in sorted(log.called.values(), key=lambda c: (c.number, c.role, c.index, c.request)):
        yield {"kind": "called", **called.to_dict()}  # not masked: answers are replayed bit for bit
    for number in sorted(log.proposed):
        for kind in _KINDS:
            record = getattr(log, kind).get(number)
            if record is not None:
                yield {"kind": kind, "number": number, **_event(archive, kind, record)}
    for number, confirmed in log.confirmed.items():
        # the second verification draws secret seeds: its figures differ, so only the verdict is kept
        yield {"kind": "confirmed", "number": number, "program": confirmed.program, "passed": confirmed.passed}
    if log.finished is not None:
        yield {"kind": "finished", **strip(log.finished.to_dict())}


def _event(archive: Archive, kind: str, record: Record) -> dict[str, Any]:
    plain: dict[str, Any] = strip(record.to_dict())
    if isinstance(record, Evaluated) and record.evaluation.score_kind == "measured":
        plain["evaluation"]["score"] = None  # measured by a clock
    if isinstance(record, Evaluated):
        for result in plain["evaluation"].get("targets", {}).values():
            for key in TIMED_EVIDENCE if result.get("verdict") else ():
                result["verdict"].pop(key, None)
    if kind == "proposed" and plain["program"]:
        plain["program"] = {"key": plain["program"], **archive.program(plain["program"]).to_dict()}
    return plain
