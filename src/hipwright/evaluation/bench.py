"""A benchmark's rows: one judged candidate of one task each, in an append-only file.

A row's key hashes the task, the program, the targets, the settings and hipwright's version. So an interrupted benchmark
continues where it stopped, and a changed file is judged again.
"""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Iterable
from pathlib import Path
from statistics import median
from typing import Any

import msgspec

from hipwright.device.fingerprint import NodeFingerprint
from hipwright.disk import naming
from hipwright.errors import HipwrightError, InfrastructureError
from hipwright.evaluation.faults import MACHINE_FAULTS
from hipwright.evaluation.left_out import left_out
from hipwright.records import Evaluation, Record, Timing, Verdict
from hipwright.targets import TARGETS

ROWS = "rows.jsonl"


class Speedup(Record, frozen=True, kw_only=True):
    """Speedup over one baseline with its 95 % interval; at_roofline: what the roofline time would give."""

    speedup: float
    interval: tuple[float, float]
    baseline_ms: float | None = None
    at_roofline: float | None = None


class ModelSample(Record, frozen=True, kw_only=True):
    """How a model wrote a row's candidate.

    answer: "program" or "modelnew", else why the answer had none, e.g. "truncated", "no_code"; "" where there was no
    answer. mended: what was repaired in it without asking again. cost_usd: of all calls, a lost answer at the most that
    it may have cost; 0 and priced=False where no price is known.
    """

    model: str
    agent: str = "single-shot"
    answer: str = ""
    mended: tuple[str, ...] = ()
    calls: int = 0
    lost: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float = 0.0
    priced: bool = False


class BenchRow(Record, frozen=True, kw_only=True):
    """One candidate of one task. status "missing": the task has no candidate; "malformed": a model's answer had none.

    category: the group of the task's format, "" without one. correct: by the rule of the benchmark's mode; strict: the
    strict rule's status, in KernelBench's mode; by_format: the status by the tolerance of the task's own format, None
    where that has no numbers or was not applied. targets: the status on each. timed_on: the target of `speedups`, ""
    where nothing was timed and `not_timed` says why. left_out: what was not judged, a sentence each. given_up:
    operators left to the library, kernels for them refused or slower.
    workspace_bytes, memory_mb, written: what the plan allocates (measure/memory.py), None where it was not traced.
    missing_baselines: what the program was not compared with, and why.
    seconds: of work; waited: seconds beside them for the GPU's memory, or for another task's timing on it.
    asked: only in a model's rows. node: of a row that a fleet made, where that was.
    """

    key: str
    task: str
    candidate: str
    level: int | None = None
    category: str = ""
    sample: int = 0
    program: str = ""
    form: str = msgspec.field(name="lane", default="")
    status: str
    fault: str | None = None
    stage: str = ""
    message: str = ""
    compiled: bool = False
    correct: bool = False
    strict: str | None = None
    by_format: str | None = None
    coverage: float | None = None
    workspace_bytes: int | None = None
    memory_mb: float | None = None
    written: float | None = None
    own_time: float | None = None
    targets: dict[str, str] = msgspec.field(default_factory=dict)
    estimates_us: dict[str, float] = msgspec.field(default_factory=dict)
    timed_on: str = ""
    device: str = ""
    median_ms: float | None = None
    floor_ms: float | None = None
    roofline_fraction: float | None = None
    bound: str = ""
    speedups: dict[str, Speedup] = msgspec.field(default_factory=dict)
    missing_baselines: dict[str, str] = msgspec.field(default_factory=dict)
    not_timed: str = ""
    left_out: tuple[str, ...] = ()
    given_up: tuple[str, ...] = ()
    evaluations: int = 0
    attempts: int = 1
    seconds: float = 0.0
    waited: float = 0.0
    asked: ModelSample | None = None
    node: NodeFingerprint | None = None

    @property
    def judged(self) -> bool:
        """False where the machine or the task itself failed: the candidate was not judged."""
        return self.fault not in MACHINE_FAULTS and self.fault != "task"


def row_of(evaluation: Evaluation, *, strict: Evaluation | None = None, **names: Any) -> BenchRow:
    """The row of an evaluation. strict: the evaluation by the strict rule, beside one by KernelBench's rule."""
    timed = next((t.name for t in TARGETS.gpus if (r := evaluation.targets.get(t.name)) and r.timing), "")
    timing = evaluation.targets[timed].timing if timed else None
    results = evaluation.targets.values()
    verdicts = [result.verdict for result in results if result.verdict is not None]
    failed = next((verdict for verdict in verdicts if not verdict.passed), None)
    return BenchRow(
        status=evaluation.status,
        fault=evaluation.fault,
        stage=failed.stage if failed else "",
        message=evaluation.message[:500],
        compiled=compiled(evaluation),
        correct=evaluation.passed,
        strict=strict.status if strict is not None else None,
        coverage=evaluation.coverage if evaluation.passed else None,
        **_memory(verdicts),
        own_time=evaluation.own_time,
        targets={name: _word(evaluation, name) for name in evaluation.targets},
        estimates_us={name: r.estimate.microseconds for name, r in evaluation.targets.items() if r.estimate},
        timed_on=timed,
        not_timed="" if timed else _why_not_timed(evaluation),
        left_out=tuple(left_out(evaluation)),
        seconds=evaluation.seconds,
        **(_timed(timing) if timing else {}),
        **names,
    )


def failed_row(error: Exception, **names: Any) -> BenchRow:
    """The row of a candidate that an error ended: a task that does not load, a machine that failed."""
    known = error if isinstance(error, HipwrightError) else InfrastructureError(f"{type(error).__name__}: {error}")
    return BenchRow(
        status=known.status,
        fault=known.fault,
        stage=known.stage,
        message=known.message[:500],
        not_timed="nothing was evaluated",
        **names,
    )


def missing_row(**names: Any) -> BenchRow:
    """The row of a task without a candidate: it counts in every denominator."""
    return BenchRow(
        status="missing", candidate="", message="no candidate for this task", not_timed="there is no candidate", **names
    )


def malformed_row(message: str, **names: Any) -> BenchRow:
    """The row of a model's answer that holds no program: judged, and not compiled."""
    return BenchRow(
        status="malformed",
        fault="candidate",
        stage="parse",
        message=message[:500],
        not_timed="the answer holds no program",
        **names,
    )


def compiled(evaluation: Evaluation) -> bool:
    """Whether something was built and every build succeeded; False for a program that does not parse."""
    builds = [result.build for result in evaluation.targets.values() if result.build is not None]
    if evaluation.status in ("parse_error", "compile_error"):
        return False
    return evaluation.passed or (bool(builds) and all(build.ok for build in builds))


def _timed(timing: Timing) -> dict[str, Any]:
    speedups = {}
    for name, versus in timing.versus.items():
        base = median(versus.baseline_ms) if versus.baseline_ms else None
        roof = base / timing.floor_ms if base and timing.floor_ms else None
        speedups[name] = Speedup(speedup=versus.speedup, interval=versus.interval, baseline_ms=base, at_roofline=roof)
    return {
        "device": timing.device,
        "median_ms": timing.median_ms,
        "floor_ms": timing.floor_ms,
        "speedups": speedups,
        "missing_baselines": timing.missing,
        "roofline_fraction": timing.roofline_fraction,
        "bound": timing.bound,
    }


def _word(evaluation: Evaluation, name: str) -> str:
    result = evaluation.targets[name]
    if result.verdict is not None:
        return result.verdict.status
    return "not built" if result.build is None else "compiles" if result.build.ok else "compile_error"


def _why_not_timed(evaluation: Evaluation) -> str:
    if not evaluation.passed:
        if evaluation.fault == "candidate":
            return "it was rejected before timing"
        return f"the evaluation ended before timing ({evaluation.status}, {evaluation.fault or 'nobody'} at fault)"
    reasons = [r.why_none["timing"] for r in evaluation.targets.values() if "timing" in r.why_none]
    ran = [
        r.why_none["timing"]
        for name, r in evaluation.targets.items()
        if TARGETS.is_host(name) and "timing" in r.why_none
    ]
    return next(iter(ran + reasons), "no target of this benchmark is timed")


# ---------------------------------------------------------------- kept on disk


class RowStore:
    """The rows of a benchmark in `folder`, or in memory without one. One process writes at a time."""

    def __init__(self, folder: Path | None) -> None:
        self._path = folder / ROWS if folder is not None else None
        self._rows: dict[str, BenchRow] = {}
        if self._path is not None and self._path.exists():
            self._read(self._path)

    @property
    def rows(self) -> dict[str, BenchRow]:
        """The latest row of each key."""
        return dict(self._rows)

    def done(self, key: str) -> BenchRow | None:
        """The row of a key, if the candidate was judged; None where it has to be judged (again)."""
        row = self._rows.get(key)
        return row if row is not None and row.fault not in MACHINE_FAULTS else None

    def add(self, row: BenchRow) -> None:
        """Appends a row; it is durable when this returns."""
        self._rows[row.key] = row
        if self._path is None:
            return
        with naming(self._path), self._path.open("ab") as stream:
            stream.write(row.to_json().encode() + b"\n")
            stream.flush()
            os.fsync(stream.fileno())

    def _read(self, path: Path) -> None:
        """Every complete line.

        An incomplete last line, of a process that was killed, is cut off, so that the next is readable.
        """
        data = path.read_bytes()
        whole = data.rfind(b"\n") + 1
        if whole < len(data):
            with path.open("r+b") as stream:
                stream.truncate(whole)
        for line in data[:whole].splitlines():
            try:
                row = BenchRow.from_json(line)
            except msgspec.DecodeError:  # a row of another version: judged again
                continue
            self._rows[row.key] = row


def _memory(verdicts: Iterable[Verdict]) -> dict[str, Any]:
    """The fields of what a verified program's plan allocates."""
    known = (verdict.checks.get("memory") for verdict in verdicts if verdict.passed)
    return dict(next((memory for memory in known if isinstance(memory, dict)), {}))


CSV_COLUMNS = (
    "task",
    "level",
    "category",
    "candidate",
    "sample",
    "status",
    "fault",
    "compiled",
    "correct",
    "strict",
    "by_format",
    "coverage",
    "workspace_bytes",
    "memory_mb",
    "written",
    "own_time",
    "timed_on",
    "device",
    "median_ms",
    "floor_ms",
    "roofline_fraction",
    "evaluations",
    "attempts",
    "seconds",
    "waited",
    "message",
)
ASKED_COLUMNS = ("model", "agent", "answer", "calls", "input_tokens", "output_tokens", "cost_usd", "priced")


def to_csv(rows: Iterable[BenchRow]) -> str:
    """The rows as CSV, with four columns a baseline; where a model was asked, with what it cost."""
    rows = list(rows)
    baselines = sorted({name for row in rows for name in row.speedups})
    asked = ASKED_COLUMNS if any(row.asked for row in rows) else ()
    heads = [*CSV_COLUMNS, *asked]
    for name in baselines:
        heads += [f"{name}_speedup", f"{name}_low", f"{name}_high", f"{name}_ms"]
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(heads)
    for row in rows:
        plain = row.to_dict()
        cells = [_cell(plain.get(column)) for column in CSV_COLUMNS]
        cells += [_cell((plain["asked"] or {}).get(column)) for column in asked]
        for name in baselines:
            one = row.speedups.get(name)
            cells += [one.speedup, *one.interval, one.baseline_ms] if one else [""] * 4
        writer.writerow(cells)
    return out.getvalue()


def _cell(value: Any) -> Any:
    """A cell that a spreadsheet does not take for a formula: names and messages may come from others."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return json.dumps(value)
    return f"'{value}" if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r") else value
