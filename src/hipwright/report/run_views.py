"""The words, tables and tiles of a run's report, from records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from hipwright.archive import TrialDetail
from hipwright.measure.describe import describe_device, describe_interval
from hipwright.measure.gain import BOUNDS, Gain, describe_factor
from hipwright.measure.memory import much_written
from hipwright.records import Estimate, Evaluation, TargetResult, Timing, Verdict, Versus
from hipwright.report.evidence import evidence_table
from hipwright.report.formatting import BAD, GOOD, UNSURE, number, operators, percent, seconds, tone
from hipwright.report.pair_plot import pair_plot
from hipwright.report.run_data import ReportData
from hipwright.targets import TARGETS


def headline(data: ReportData) -> dict[str, str]:
    """The verdict as one badge and one sentence."""
    evaluation = data.evaluation
    if evaluation is None:
        return {"tone": BAD, "badge": "no program", "text": data.note or "No program passed verification."}
    if not evaluation.passed:
        text = evaluation.message or f"The program was rejected: {evaluation.status}."
        return {"tone": tone(evaluation.status), "badge": evaluation.status, "text": text}
    proof = _proof(evaluation)
    return {"tone": GOOD, "badge": "pass", "text": proof}


def _proof(evaluation: Evaluation) -> str:
    parts = []
    found = _deciding(evaluation)
    if found is not None and found.verdict is not None:
        where = found.target
        count = len(found.verdict.workloads)
        parts.append(
            f"Right on {count} workload{'s' if count != 1 else ''} against an fp64 reference on the {where} target"
        )
    built = [
        name
        for name, result in evaluation.targets.items()
        if not TARGETS.is_host(name) and result.build and result.build.ok
    ]
    if built:
        parts.append(f"compiled to machine code for {', '.join(built)}")
    return "; ".join(parts) + "." if parts else "Passed."


def tiles(data: ReportData) -> list[dict[str, str]]:
    """The tiles with the figures at the top of the page."""
    evaluation, found = data.evaluation, []
    gained: list[dict[str, str]] = []
    if evaluation is not None:
        note = "of the reference's modelled cost runs in this program's own kernels"
        if evaluation.passed:
            found.append({"label": "coverage", "value": percent(evaluation.coverage), "note": note})
        verdict = verdict_of(evaluation)
        memory = verdict.checks.get("memory") if verdict is not None else None
        if memory:
            note = much_written(memory) or "inputs, state, outputs and workspace of one call"
            found.append({"label": "memory", "value": f"{memory['memory_mb']:g} MB", "note": note})
        if verdict is not None and verdict.worst_error is not None:
            found.append(
                {
                    "label": "worst error",
                    "value": number(verdict.worst_error),
                    "note": "of its tolerance; at most 1 passes",
                }
            )
        estimated = {one.target: one for one in data.gains if one.kind == "estimate"}
        for name, result in evaluation.targets.items():
            if result.estimate is not None and result.timing is None:
                gained += _estimate_tiles(name, result.estimate, estimated.get(name))
            if result.timing is not None:
                gained += timing_tiles(name, result.timing)
    if data.run is not None:
        note = f"of a budget of {data.run.budget}, in {seconds(data.seconds)}"
        found.append({"label": "evaluations", "value": str(data.evaluations), "note": note})
    if data.counters:
        limits = [one["limit"] for one in data.counters["limits"] if one["limit"]]
        cost = f"{data.counters['seconds']:g} s, for {data.counters['evaluations']} evaluations"
        last = f"; the last parent is limited by {limits[-1]}" if limits else ""
        found.append({"label": "profiles", "value": str(data.counters["profiles"]), "note": f"{cost}{last}"})
    if data.saved:
        note = f"of {data.saved['of']} evaluations, as the roofline is near"
        found.append({"label": "saved", "value": str(data.saved["evaluations"]), "note": note})
    return gained + found


def _estimate_tiles(name: str, estimate: Estimate, gain: Gain | None) -> list[dict[str, str]]:
    """The tile of an estimated target: the gain over the unfused task where that is known, else the time."""
    took, model = f"{number(estimate.microseconds)} µs", "static model, not a measurement"
    if gain is None:
        return [{"label": f"{name} ESTIMATE", "value": took, "note": model}]
    note = f"{took} a call; unfused {number(gain.baseline_us)} µs by the same {model}"
    return [{"label": f"{name} ESTIMATE", "value": describe_factor(gain.factor), "note": note}]


def verdict_of(evaluation: Evaluation | None) -> Verdict | None:
    """The deciding verdict: the first with the evaluation's status, else the first one."""
    found = _deciding(evaluation)
    return found.verdict if found else None


def _deciding(evaluation: Evaluation | None) -> TargetResult | None:
    judged = [result for result in evaluation.targets.values() if result.verdict] if evaluation else []
    same = (r for r in judged if evaluation and r.verdict and r.verdict.status == evaluation.status)
    return next(same, judged[0] if judged else None)


# ---------------------------------------------------------------- resources


def resources(evaluation: Evaluation | None) -> list[dict[str, Any]]:
    """One entry per target: build, kernels, estimate rows, and reasons for what is missing."""
    return [_target_view(result) for result in in_order(evaluation)]


def timing_tiles(target: str, timing: Timing) -> list[dict[str, str]]:
    """One tile per baseline: the measured speedup, the device and the interval."""
    where = describe_device(target, timing)
    return [
        {
            "label": f"{target} speedup",
            "value": f"{versus.speedup:.2f}×",
            "note": f"{where} against {versus.baseline}, 95 % interval "
            f"{versus.interval[0]:.2f} to {versus.interval[1]:.2f}",
        }
        for versus in timing.versus.values()
    ]


def timing_view(target: str, timing: Timing) -> dict[str, Any]:
    """A measured target: facts in words, a row and a plot per baseline, and notes."""
    facts = [
        ("device time", f"{number(timing.median_ms)} ms a call, median"),
        ("launched as", POLICIES[timing.policy]),
    ]
    if timing.latency_ms is not None:
        facts.append(("latency", f"{number(timing.latency_ms)} ms a call end to end, by the host's clock"))
    if timing.floor_ms is not None and timing.roofline_fraction is not None:
        bound = f", bound by {timing.bound}" if timing.bound else ""
        text = f"{percent(timing.roofline_fraction)} of {number(timing.floor_ms)} ms{bound}"
        facts.append(("roofline", text))
    if timing.clock_gap is not None:
        facts.append(("clocks", f"device and host differ by {100 * timing.clock_gap:.1f} %"))
    if timing.own_time is not None:
        facts.append(("own kernels", f"{percent(timing.own_time)} of the device time"))
    if timing.prepare_ms is not None:
        facts.append(("packing weights", f"{number(timing.prepare_ms)} ms, once"))
    rows = [_versus_row(versus) for versus in timing.versus.values()]
    return {
        "where": describe_device(target, timing),
        "kind": "simulated" if timing.simulated else "measured",
        "architecture": timing.architecture,
        "facts": facts,
        "rows": rows,
        "notes": list(timing.notes),
        "seconds": timing.seconds,
    }


POLICIES = {"graph": "a captured graph, on both sides", "stream": "calls on the stream, on both sides"}


def _versus_row(versus: Versus) -> dict[str, Any]:
    low, high = versus.interval
    latency = "–" if versus.latency_speedup is None else f"{versus.latency_speedup:.2f}×"
    return {
        "baseline": versus.baseline,
        "speedup": describe_interval(versus.speedup, versus.interval),
        "tone": GOOD if low > 1 else (BAD if high < 1 else UNSURE),
        "base_ms": number(median(versus.baseline_ms) if versus.baseline_ms else None),
        "latency": latency,
        "pairs": versus.pairs,
        "stopped": STOPPED.get(versus.stopped, versus.stopped),
        "plot": pair_plot(versus),
    }


STOPPED = {"precise": "precise enough", "budget": "time was up", "loser": "clearly slower: dropped early"}
"""Why sampling ended, in words (hipwright.measure.paired_timing)."""


def in_order(evaluation: Evaluation | None) -> list[TargetResult]:
    """The results by target name, the CPU last."""
    return sorted(
        evaluation.targets.values() if evaluation else (), key=lambda r: (TARGETS.is_host(r.target), r.target)
    )


def _target_view(result: TargetResult) -> dict[str, Any]:
    build, estimate = result.build, result.estimate
    rows = [dict(row) for row in estimate.detail] if estimate else []
    return {
        "name": result.target,
        "build": build,
        "kernels": list(build.kernels) if build and not TARGETS.is_host(result.target) else [],
        "built": "not built" if build is None else ("compiles" if build.ok else "does not compile"),
        "tone": GOOD if build and build.ok else BAD,
        "estimate": estimate,
        "estimate_rows": rows,
        "bound": BOUNDS[estimate.bound] if estimate else "",
        "timing": timing_view(result.target, result.timing) if result.timing else None,
        "why_none": dict(result.why_none),
    }


# ---------------------------------------------------------------- verification


def verification(evaluation: Evaluation | None) -> dict[str, Any] | None:
    """The evidence of the verdict: error table, checks, skipped workloads, and the failure if any."""
    verdict = verdict_of(evaluation)
    if verdict is None:
        return None
    return {
        "verdict": verdict,
        "tone": tone(verdict.status),
        "table": error_table(verdict.checks),
        "rests_on": evidence_table(verdict),
        "checks": [(CHECKS.get(name, name.replace("_", " ")), value) for name, value in _checks(verdict).items()],
        "skipped": list(verdict.skipped.items()),
        "evidence": [(name.replace("_", " "), value) for name, value in verdict.evidence.items() if value != {}],
    }


CHECKS = {
    "orders": "blocks and waves in other orders, memory poisoned otherwise",
    "second_call": "a second call, new values at the same places",
    "noop_right": "right with its kernels replaced by no-ops",
    "wave32": "with waves of 32 lanes",
    "waves": "waves the targets have",
    "races": "data races, accesses out of bounds, divergent barriers",
    "traffic": "bytes moved, as a multiple of the arguments' size",
}
"""The checks of a verdict in words."""


def _checks(verdict: Verdict) -> dict[str, str]:
    """The checks to list, without those that have their own table and without their time."""
    own_tables = ("errors", "shapes", "families", "seconds", "evidence")
    shown = {name: value for name, value in verdict.checks.items() if name not in own_tables}
    if verdict.passed and "seconds" in verdict.checks and "races" not in shown:
        shown = {"races": "none found: every access was checked", **shown}
    return {name: _check_text(name, value) for name, value in shown.items()}


def _check_text(name: str, value: Any) -> str:
    if name == "noop_right":
        return "yes, so coverage counts as 0" if value else "no, so the kernels do the work"
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {number(item) if isinstance(item, float) else item}" for key, item in value.items())
    return ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)


def error_table(checks: Mapping[str, Any]) -> dict[str, Any] | None:
    """The table of checks["errors"], {workload: {family: worst error / tolerance}}: families are rows."""
    errors, shapes = checks.get("errors"), checks.get("shapes", {})
    if not isinstance(errors, Mapping) or not all(isinstance(row, Mapping) for row in errors.values()):
        return None
    met = dict.fromkeys(family for row in errors.values() for family in row)
    ran = [family for family in checks.get("families", ()) if family in met]
    families = ran + [family for family in met if family not in ran]
    rows = [{"family": f, "cells": [_cell(row.get(f)) for row in errors.values()]} for f in families]
    heads = [{"workload": name, "inputs": ", ".join(shapes.get(name, ()))} for name in errors]
    return {"heads": heads, "rows": rows} if families else None


def _cell(value: Any) -> dict[str, str]:
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return {"text": "" if value is None else str(value), "tone": ""}
    return {"text": number(float(value), 2), "tone": GOOD if value <= 1 else BAD}


# ---------------------------------------------------------------- fusion and search


def fusion(explanation: Mapping[str, Any]) -> dict[str, Any] | None:
    """The operations of each kernel, and the library calls with reasons, from `engine.explain`."""
    kernels = [
        {
            "name": str(item["name"]),
            "ops": [str(node) for node in item["nodes"]],
            "told": operators(map(str, item["nodes"])),
            "how": str(item.get("mapping", "")),
        }
        for item in explanation.get("kernels", ())
    ]
    library = [
        {"name": str(node), "op": str(item.get("op", "")), "why": str(item.get("reason", ""))}
        for node, item in explanation.get("library", {}).items()
    ]
    return {"kernels": kernels, "library": library} if kernels or library else None


def statuses(proposals: Sequence[TrialDetail]) -> list[dict[str, Any]]:
    """How the proposals ended: count by status, the passes first, then the most frequent failure."""
    counts = Counter(p.status for p in proposals)
    order = sorted(counts, key=lambda status: (status != "pass", -counts[status], status))
    most = max(counts.values(), default=1)
    return [{"status": s, "count": counts[s], "tone": tone(s), "share": counts[s] / most} for s in order]
