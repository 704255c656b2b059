"""Results as tables and lines on a rich console."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from hipwright.api.plain import OWNERS, clean
from hipwright.measure.memory import much_written
from hipwright.records import Evaluation, Timing, Verdict
from hipwright.report.evidence import evidence_sentence, evidence_table
from hipwright.report.formatting import byte_count, number, percent, seconds, tone
from hipwright.report.run_views import in_order, timing_view, verdict_of
from hipwright.targets import TARGETS

if TYPE_CHECKING:
    from rich.console import Console

STYLES = {"good": "bold green", "bad": "bold red", "unsure": "bold yellow"}
FIRST_EVIDENCE = ("output", "index", "expected", "got", "tolerance", "wrong_elements", "elements")
PRINTED_BEFORE = ("family", "workload", "seed")
EVIDENCE_LIMIT = 400  # characters of one piece of evidence; --json carries all of it


def print_evaluation(out: Console, name: str, evaluation: Evaluation, notes: Sequence[str]) -> None:
    """The verdict, why, the resource table and what was not measured."""
    style = STYLES[tone(evaluation.status)]
    out.print(
        Text.assemble((evaluation.status, style), "  ", (clean(name), "bold"), f"  {seconds(evaluation.seconds)}")
    )
    if evaluation.passed:
        out.print(_proof(evaluation))
        print_evidence(out, verdict_of(evaluation))
    else:
        print_rejection(out, evaluation)
    if any(result.build and result.build.ok for result in evaluation.targets.values()):
        out.print(resource_table(evaluation))
    for result in in_order(evaluation):
        if result.timing is not None:
            print_timing(out, result.target, result.timing)
    print_notes(out, notes)


def _proof(evaluation: Evaluation) -> str:
    verdict = verdict_of(evaluation)
    parts = [f"coverage {percent(evaluation.coverage)}"]
    memory = verdict.checks.get("memory") if verdict is not None else None
    if memory:
        parts.append(", ".join(filter(None, [f"{memory['memory_mb']:g} MB of memory", much_written(memory)])))
    if verdict is not None and verdict.passed:
        parts.insert(0, f"right on {', '.join(map(clean, verdict.workloads)) or 'no workload'}")
        if verdict.worst_error is not None:
            parts.append(f"worst error {number(verdict.worst_error)} of its tolerance")
    return "; ".join(parts)


def print_evidence(out: Console, verdict: Verdict | None) -> None:
    """What a pass rests on: the shapes and input families that would reject a trivial answer."""
    table = evidence_table(verdict)
    if table is None:
        return
    out.print(evidence_sentence(table), style="dim")
    rows = [(row["workload"], row["cases"], row["families"]) for row in table["rows"]]
    out.print(plain_table(("shape", "cases", "inputs drawn"), rows, right=("cases",)))


def print_rejection(out: Console, evaluation: Evaluation) -> None:
    """Whose fault, at which stage, on which inputs, and the evidence a line each."""
    verdict = verdict_of(evaluation) or Verdict(status=evaluation.status, fault=evaluation.fault)
    owner = OWNERS.get(verdict.fault or "candidate", "program")
    out.print(f"{owner} at fault, found at {verdict.stage}: {clean(evaluation.message or verdict.message)}")
    if verdict.workload or verdict.family:
        out.print(f"  workload {clean(verdict.workload or '-')}, inputs {clean(verdict.family or '-')}")
    for key, value in ordered(verdict.evidence):
        if key in PRINTED_BEFORE or value in ({}, [], ""):
            continue
        text = clean(value if isinstance(value, str) else str(value), keep_lines=True)[:EVIDENCE_LIMIT]
        lines = text.splitlines() or [""]
        out.print(f"  {clean(key).replace('_', ' ')}: {lines[0]}")
        for line in lines[1:]:
            out.print(f"    {line}")


def ordered(evidence: Mapping[str, Any]) -> Iterable[tuple[str, Any]]:
    """Evidence with the element, expectation and value found first."""
    rank = {key: place for place, key in enumerate(FIRST_EVIDENCE)}
    return sorted(evidence.items(), key=lambda item: rank.get(item[0], len(rank)))


def resource_table(evaluation: Evaluation) -> Table:
    """Registers, LDS, scratch and occupancy of each kernel by target, its verdict and estimate."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    for head in ("target", "kernel"):
        table.add_column(head, overflow="fold")
    for head in ("VGPR", "SGPR", "LDS", "scratch", "waves/SIMD"):
        table.add_column(head, justify="right")
    for head in ("verdict", "time (ESTIMATE)"):
        table.add_column(head)
    for result in in_order(evaluation):
        name = result.target
        verdict = result.verdict.status if result.verdict else ("compiles" if result.build and result.build.ok else "-")
        estimate = f"{number(result.estimate.microseconds)} µs, {result.estimate.bound}" if result.estimate else "-"
        kernels = result.build.kernels if result.build and not TARGETS.is_host(name) else ()
        if not kernels:
            table.add_row(name, "-", "-", "-", "-", "-", "-", verdict, estimate)
        for index, kernel in enumerate(kernels):
            shown = (name, verdict, estimate) if index == 0 else ("", "", "")
            figures = (
                str(kernel.vgpr),
                str(kernel.sgpr),
                byte_count(kernel.lds_bytes),
                byte_count(kernel.scratch_bytes),
            )
            table.add_row(shown[0], clean(kernel.name), *figures, str(kernel.occupancy), *shown[1:])
    return table


def print_timing(out: Console, target: str, timing: Timing) -> None:
    """A timed target: whose machine, the facts in one line, a row for each baseline, and the notes."""
    view = timing_view(target, timing)
    out.print(
        Text.assemble(
            (view["kind"].upper(), "bold"), f"  {target}: {clean(view['where'])} ({clean(view['architecture'])})"
        )
    )
    if timing.simulated:
        out.print("times of a simulation on this machine's processor; they say nothing of an AMD GPU's speed")
    out.print("; ".join(f"{name} {clean(text)}" for name, text in view["facts"]))
    heads = ("against", "speedup (95 % interval)", "baseline ms", "latency speedup", "pairs", "sampling ended")
    rows = [
        (row["baseline"], row["speedup"], row["base_ms"], row["latency"], row["pairs"], row["stopped"])
        for row in view["rows"]
    ]
    if rows:
        out.print(plain_table(heads, rows, right=heads[2:5]))
    for note in view["notes"]:
        out.print(clean(note), style="dim")


def print_notes(out: Console, notes: Sequence[str]) -> None:
    """What was not measured."""
    for line in notes:
        out.print(f"not measured: {clean(line)}", style="yellow")


def plain_table(heads: Sequence[str], rows: Iterable[Sequence[Any]], right: Sequence[str] = ()) -> Table:
    """A table without lines; columns named in `right` are right-aligned."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    for place, head in enumerate(heads):  # the first column names the row: it is never broken
        table.add_column(head, justify="right" if head in right else "left", overflow="fold", no_wrap=place == 0)
    for row in rows:
        table.add_row(*(clean(cell) for cell in row))
    return table


def models_line(models: Mapping[str, Any]) -> str:
    """A line on what a run's models were asked and cost. It says that the dollars of unpriced calls are unknown."""
    dollars = f"${models['usd'] + models['lost_usd']:.4f}"
    if models["unpriced"]:
        dollars = (
            f"{models['unpriced']} of them unpriced"
            if models["unpriced"] == models["calls"]
            else (f"{dollars} and {models['unpriced']} calls without a price")
        )
    lost = f"; {models['lost']} lost attempts are counted at what they had reserved" if models["lost"] else ""
    spent = f"models: {models['calls']} calls, {models['tokens']} tokens, {dollars}{lost}"
    silent = [
        f"{clean(one['why'])} ({one['calls']} {'calls' if one['calls'] > 1 else 'call'} without an answer: the engine "
        f"wrote instead{'; ' if one['hint'] else ''}{clean(one['hint'])})"
        for one in models.get("silent", ())
    ]
    if not (models["calls"] or silent or models["lost"]):
        spent = "models: none was asked, for the run ended before their turn (a larger --budget or --llm-share has one)"
    return "\n".join([spent, *silent])
