"""Two runs or two programs side by side: figures, the search of both on one axis, and how the texts differ."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hipwright.archive import TrialDetail
from hipwright.errors import BadInput
from hipwright.records import Evaluation, Program, Run
from hipwright.report.formatting import number, percent
from hipwright.view.plots.pair import PairCurves, pair_curves
from hipwright.view.program_page import Resources, resources
from hipwright.view.reader import ArchiveReader, RunLine
from hipwright.view.sources import difference


@dataclass(frozen=True)
class Side:
    """One side: a program of a run; trial, evaluation and program are None where the run has no verified program."""

    run: Run
    line: RunLine
    trial: TrialDetail | None
    evaluation: Evaluation | None
    program: Program | None
    resources: list[Resources]

    @property
    def name(self) -> str:
        """Its address in a query: RUN, or RUN/N for a proposal."""
        return self.run.id if self.trial is None else f"{self.run.id}/{self.trial.number}"


def compare_page(reader: ArchiveReader, query: Mapping[str, str]) -> dict[str, Any]:
    """What the page shows. query: a and b, each RUN (its best program) or RUN/N (a proposal). BadInput for others."""
    names = [query.get("a", "").strip(), query.get("b", "").strip()]
    offered = [reader.line(run).summary for run in reader.runs()[:40]]
    if not all(names):
        return {"sides": [], "names": names, "offered": offered}
    a, b = (side(reader, name) for name in names)
    return {
        "sides": [a, b],
        "names": names,
        "offered": offered,
        "rows": rows(a, b),
        "verdict": verdict(a, b),
        "curves": _curves(reader, a, b),
        "difference": difference(a.program, b.program),
    }


def side(reader: ArchiveReader, name: str) -> Side:
    """The side that a query names."""
    run_name, _, text = name.partition("/")
    run = reader.run(run_name)
    line = reader.line(run)
    if text and not (text.isascii() and text.isdigit() and len(text) < 10):
        raise BadInput(f"{name!r} names no proposal", hint="RUN or RUN/N, N a proposal's number")
    chosen = int(text) if text else line.summary.best_number
    if chosen < 0:
        return Side(run, line, None, None, None, [])
    trial, found = reader.trial(run, chosen)
    evaluation = found.evaluation if found else None
    return Side(run, line, trial, evaluation, reader.program(trial.program), resources(evaluation))


def verdict(a: Side, b: Side) -> str:
    """One sentence: which is faster, or why that cannot be said."""
    if a.run.task != b.run.task:
        return "The two are of different tasks: their times cannot be compared."
    if a.trial is None or b.trial is None or not a.trial.score or not b.trial.score:
        return "At least one of the two has no time."
    if a.trial.score_kind != b.trial.score_kind:
        return f"One time is {a.trial.score_kind}, the other {b.trial.score_kind}: they cannot be compared."
    ratio = b.trial.score / a.trial.score
    kind = "ESTIMATE" if a.trial.score_kind == "estimate" else a.trial.score_kind
    return f"B needs {number(ratio)}× the time of A ({kind})."


def rows(a: Side, b: Side) -> list[tuple[str, str, str]]:
    """The table: what, of A, of B."""
    first, second = _facts(a), _facts(b)
    return [(name, first.get(name, "–"), second.get(name, "–")) for name in {**first, **second}]


def _facts(one: Side) -> dict[str, str]:
    summary = one.line.summary
    found = {"task": summary.task, "policy": f"{summary.policy}, seed {summary.seed}", "run": summary.status}
    found["evaluations"] = f"{summary.evaluations} of {summary.budget}"
    if one.trial is None:
        return {**found, "program": "none is verified"}
    found["program"] = f"#{one.trial.number}, {one.trial.operator}, {one.trial.status}"
    if one.trial.score is not None:
        found["time"] = f"{number(one.trial.score)} µs ({one.trial.score_kind})"
    found["coverage"] = percent(one.trial.coverage)
    for target, result in one.evaluation.targets.items() if one.evaluation else ():
        for versus in result.timing.versus.values() if result.timing else ():
            low, high = versus.interval
            found[f"{target} against {versus.baseline}"] = f"{versus.speedup:.3f}× [{low:.3f}, {high:.3f}]"
    for name, value in sorted(one.program.knobs.items()) if one.program else ():
        found[f"knob {name}"] = str(value)
    return found


def _curves(reader: ArchiveReader, a: Side, b: Side) -> PairCurves | None:
    if a.run.id == b.run.id or a.run.task != b.run.task:
        return None
    return pair_curves(reader.kept(a.run).trials, reader.kept(b.run).trials)
