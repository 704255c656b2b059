"""The page of one run: its best program, how the search came to it, and what it cost. Live while the run goes on."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hipwright.archive import RunSummary, TrialDetail, costs_of
from hipwright.records import Evaluation, Event, Run, Task
from hipwright.report import run_plots, run_views
from hipwright.report.formatting import number, percent, seconds
from hipwright.view.plots.best import best_plot
from hipwright.view.plots.grid import map_grid
from hipwright.view.query import count
from hipwright.view.reader import ArchiveReader, KeptLog, models_of

ROWS = 50
"""Proposals on one page of the table."""
EVENTS, MOST_EVENTS = 20, 1000
ORDERS = ("newest", "fastest", "oldest")


@dataclass(frozen=True)
class RunChoices:
    """What the reader of the page chose. axis: proposal or time; order: of ORDERS; status: "" for all."""

    axis: str = "proposal"
    order: str = "newest"
    status: str = ""
    page: int = 1
    events: int = EVENTS

    @classmethod
    def read(cls, query: Mapping[str, str]) -> RunChoices:
        """From an address's query; what is not understood takes its default."""
        order = query.get("order", "")
        return cls(
            axis="time" if query.get("axis") == "time" else "proposal",
            order=order if order in ORDERS else ORDERS[0],
            status=query.get("status", ""),
            page=count(query.get("page", ""), 1, 10**6),
            events=count(query.get("events", ""), EVENTS, MOST_EVENTS),
        )


def run_page(reader: ArchiveReader, run: Run, choices: RunChoices) -> dict[str, Any]:
    """What the page shows."""
    working = reader.archive.is_locked(run.id)
    kept, summary = reader.kept(run), reader.line(run).summary
    best = reader.evaluation(run, summary.best_number)
    costs = costs_of(kept.log)
    task = reader.task(run.task) or Task(name=summary.task, source="", workloads=())
    clocks = kept.clocks if choices.axis == "time" else None
    return {
        "run": run,
        "task": task,
        "summary": summary,
        "state": json.dumps((kept.following - 1, working)),
        "choices": choices,
        "tiles": tiles(summary, kept.trials, best.evaluation if best else None, costs),
        "models": reader.spent(run),
        "limits": limits(run),
        "costs": costs,
        "plot": best_plot(kept.trials, kept.log.evaluated, clocks, kept.log.clock_started),
        "lineage": run_plots.lineage(kept.trials),
        "grid": map_grid(kept.trials, kept.log.evaluated),
        "statuses": run_views.statuses(kept.trials),
        "table": table(kept.trials, choices),
        "events": [event_line(event, kept) for event in reader.last_events(run, choices.events)],
        "event_count": kept.following,
        "kind_of": run_plots.kind_of,
    }


def tiles(
    summary: RunSummary, trials: Sequence[TrialDetail], best: Evaluation | None, costs: Mapping[str, float]
) -> list[dict[str, str]]:
    """The figures at the top: the best program, its gain, and what is left of the budget."""
    found = []
    if summary.score is not None:
        kind = summary.score_kind.upper() if summary.score_kind == "estimate" else summary.score_kind
        found.append({"label": "best", "value": f"{number(summary.score)} µs", "note": f"a call, {kind}"})
    first = next((t.score for t in trials if t.status == "pass" and t.score_kind == summary.score_kind), None)
    if first and summary.score and first > summary.score:
        note = f"over the first verified program ({number(first)} µs)"
        found.append({"label": "gain of the search", "value": f"{first / summary.score:.2f}×", "note": note})
    if best is not None:
        for name, result in best.targets.items():
            if result.timing is not None:
                found += run_views.timing_tiles(name, result.timing)
        found.append({"label": "coverage", "value": percent(summary.coverage), "note": "of the cost in own kernels"})
    left = f"of a budget of {summary.budget}, in {seconds(costs['wall_seconds'])}"
    found.append({"label": "evaluations", "value": str(summary.evaluations), "note": left})
    return found


def limits(run: Run) -> str:
    """What the run's models may spend, in words; "" without limits."""
    kept = models_of(run)
    usd, tokens = kept.get("usd"), kept.get("tokens")
    words = [f"${usd:g}"] if isinstance(usd, (int, float)) else []
    return " and ".join([*words, f"{tokens:,} tokens"] if isinstance(tokens, int) else words)


# ---------------------------------------------------------------- the table of proposals


@dataclass(frozen=True)
class TrialTable:
    """One page of the proposals. pages: how many there are; of: proposals that fit the choice."""

    rows: list[TrialDetail]
    page: int
    pages: int
    of: int
    statuses: list[str]


def table(trials: Sequence[TrialDetail], choices: RunChoices) -> TrialTable:
    """The chosen page of the proposals in the chosen order."""
    found = [t for t in trials if not choices.status or t.status == choices.status]
    if choices.order == "fastest":
        found.sort(key=lambda t: (t.status != "pass", t.score is None, t.score or 0.0, t.number))
    elif choices.order == "newest":
        found.reverse()
    pages = max(1, -(-len(found) // ROWS))
    page = min(choices.page, pages)
    rows = found[(page - 1) * ROWS : page * ROWS]
    return TrialTable(rows, page, pages, len(found), sorted({t.status for t in trials}))


# ---------------------------------------------------------------- events


def event_line(event: Event, kept: KeptLog) -> dict[str, Any]:
    """One event in words: when, what, of which proposal."""
    text = {"proposed": _proposed, "evaluated": _evaluated, "decided": _decided}.get(event.kind, _other)(event, kept)
    return {
        "seq": event.seq,
        "kind": event.kind.replace("_", " "),
        "number": event.number,
        "clock": time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(event.clock)),
        "text": text,
    }


def _proposed(event: Event, kept: KeptLog) -> str:
    found = kept.log.proposed.get(event.number)
    if found is None:
        return ""
    what = found.error or found.program[:8]
    again = f", the program of #{found.duplicate_of} again" if found.duplicate_of is not None else ""
    return f"{found.expansion.operator}: {what}{again}"


def _evaluated(event: Event, kept: KeptLog) -> str:
    found = kept.log.evaluated.get(event.number)
    if found is None:
        return ""
    e = found.evaluation
    score = f" {number(e.score)} µs ({e.score_kind})" if e.score is not None else ""
    return f"{e.status}{score}{', from an earlier run' if found.cached else ''}{f': {e.message}' if e.message else ''}"


def _decided(event: Event, kept: KeptLog) -> str:
    found = kept.log.decided.get(event.number)
    if found is None:
        return ""
    return f"{'new best' if found.best else 'kept' if found.kept else 'not kept'}: {found.reason}"


def _other(event: Event, kept: KeptLog) -> str:
    if event.kind == "confirmed":
        return "right again on fresh inputs" if event.data.get("passed") else "refused on fresh inputs"
    return " ".join(str(event.data[key]) for key in ("role", "model", "reason", "why") if key in event.data)
