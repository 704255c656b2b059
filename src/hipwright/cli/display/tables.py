"""Results as tables and lines on a rich console."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.text import Text

from hipwright.api.plain import OWNERS, clean
from hipwright.cli.display.fitted import FittedTable, plain_table
from hipwright.cli.display.verbosity import Verbosity, verbosity
from hipwright.measure.gain import BOUNDS, Gain, describe_factor
from hipwright.measure.memory import much_written
from hipwright.records import Evaluation, KernelResources, TargetResult, Timing, Verdict
from hipwright.report.evidence import evidence_sentence, evidence_table
from hipwright.report.formatting import byte_count, number, operators, percent, seconds, tone
from hipwright.report.run_views import in_order, timing_view, verdict_of
from hipwright.targets import TARGETS

if TYPE_CHECKING:
    from rich.console import Console

STYLES = {"good": "bold green", "bad": "bold red", "unsure": "bold yellow"}
FIRST_EVIDENCE = ("output", "index", "expected", "got", "tolerance", "wrong_elements", "elements")
PRINTED_BEFORE = ("family", "workload", "seed")
NAMED = 4  # shapes that a pass names one by one
EVIDENCE_LIMIT = 400  # characters of one piece of evidence; --json carries all of it


def print_evaluation(
    out: Console,
    name: str,
    evaluation: Evaluation,
    notes: Sequence[str],
    gains: Sequence[Gain] = (),
    fused: Sequence[Mapping[str, Any]] = (),
) -> None:
    """The verdict, what is gained and what was fused, why it is right, the resource table and what was not measured.

    gains, fused: of `Result`. The table of shapes is printed with --verbose.
    """
    style = STYLES[tone(evaluation.status)]
    took = f"verification took {seconds(evaluation.seconds)}"
    out.print(Text.assemble((evaluation.status, style), "  ", (clean(name), "bold"), "  ", (took, "dim")))
    if any(r.estimate or r.timing or r.verdict or r.build for r in evaluation.targets.values()):
        print_targets(out, evaluation, gains)
    if evaluation.passed:
        print_fused(out, fused, evaluation)
        out.print(_proof(evaluation))
        print_evidence(out, verdict_of(evaluation))
    else:
        print_rejection(out, evaluation)
    if any(kernel for result in evaluation.targets.values() for kernel in _kernels(result)):
        out.print()
        out.print(resource_table(evaluation))
    for result in in_order(evaluation):
        if result.timing is not None:
            print_timing(out, result.target, result.timing)
    print_notes(out, notes)


def print_targets(out: Console, evaluation: Evaluation, gains: Sequence[Gain]) -> None:
    """A row a target: its verdict, the baseline's time, the kernels' time, the gain, and whose figures they are."""
    first = {one.target: one for one in reversed(gains)}
    rows = [_target_row(result, first.get(result.target)) for result in in_order(evaluation)]
    against = " or ".join(dict.fromkeys(one.baseline for one in first.values())) or "before"
    heads = ("target", "verdict", against, "kernels take", "gain", "figures")
    out.print(plain_table(heads, rows, right=heads[2:4]))
    limits = dict.fromkeys(r.estimate.bound for r in in_order(evaluation) if r.estimate and not r.timing)
    for bound in limits:
        names = ", ".join(r.target for r in in_order(evaluation) if r.estimate and r.estimate.bound == bound)
        out.print(f"{bound} bound on {names}: {BOUNDS[bound]}", style="dim")
    if any(one.kind == "estimate" for one in first.values()):
        out.print("unfused: the task's own operators one by one, by the same model of the GPU", style="dim")


def _target_row(result: TargetResult, gain: Gain | None) -> tuple[str, ...]:
    verdict = result.verdict.status if result.verdict else ("compiles" if result.build and result.build.ok else "-")
    if gain is not None:
        before = f"{number(gain.baseline_us)} µs"
        took, told = f"{number(gain.program_us)} µs", gain.kind.upper()
        return result.target, verdict, before, took, describe_factor(gain.factor), told
    if result.timing is not None:
        kind = "SIMULATED" if result.timing.simulated else "MEASURED"
        return result.target, verdict, "-", f"{number(1e3 * result.timing.median_ms)} µs", "-", kind
    if result.estimate is not None:
        return result.target, verdict, "-", f"{number(result.estimate.microseconds)} µs", "-", "ESTIMATE"
    return result.target, verdict, "-", "-", "-", "-"


def print_fused(out: Console, fused: Sequence[Mapping[str, Any]], evaluation: Evaluation) -> None:
    """A line a kernel with the operators that it stands for, and the operators left to the library."""
    for one in fused:
        told = "fused" if len(one["operators"]) > 1 else "written"
        out.print(f"{told}: {clean(operators(one['operators']))} -> kernel {clean(one['kernel'])}")
    if fused and evaluation.library:
        left = ", ".join(f"{clean(name)} ({percent(share)})" for name, share in evaluation.library.items())
        out.print(f"left to the library, with their share of the task's modelled cost: {left}")


def _proof(evaluation: Evaluation) -> str:
    verdict = verdict_of(evaluation)
    parts = [f"coverage {percent(evaluation.coverage)}"]
    memory = verdict.checks.get("memory") if verdict is not None else None
    if memory:
        parts.append(", ".join(filter(None, [f"{memory['memory_mb']:g} MB of memory", much_written(memory)])))
    if verdict is not None and verdict.passed:
        names = ", ".join(map(clean, verdict.workloads)) or "no workload"
        count = len(verdict.workloads)
        parts.insert(0, f"right on {count} shapes" if _summed(verdict) else f"right on {names}")
        if verdict.worst_error is not None:
            parts.append(f"worst error {number(verdict.worst_error)} of its tolerance")
    return "; ".join(parts)


def _summed(verdict: Verdict) -> bool:
    """Whether the shapes are counted, as --verbose lists them in the table of evidence."""
    return len(verdict.workloads) > NAMED and verbosity() < Verbosity.verbose


def print_evidence(out: Console, verdict: Verdict | None) -> None:
    """What a pass rests on: the shapes and input families that would reject a trivial answer."""
    table = evidence_table(verdict)
    if table is None:
        return
    out.print(evidence_sentence(table), style="dim")
    if verbosity() < Verbosity.verbose:
        return
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


def resource_table(evaluation: Evaluation) -> FittedTable:
    """Registers, LDS, scratch and occupancy of each kernel by target."""
    heads = ("target", "kernel", "VGPR", "SGPR", "LDS", "scratch", "waves/SIMD")
    rows = [
        (
            result.target,
            kernel.name,
            kernel.vgpr,
            kernel.sgpr,
            byte_count(kernel.lds_bytes),
            byte_count(kernel.scratch_bytes),
            kernel.occupancy,
        )
        for result in in_order(evaluation)
        for kernel in _kernels(result)
    ]
    return plain_table(heads, rows, right=heads[2:])


def _kernels(result: TargetResult) -> tuple[KernelResources, ...]:
    return tuple(result.build.kernels) if result.build and not TARGETS.is_host(result.target) else ()


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
