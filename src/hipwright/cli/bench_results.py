"""What a benchmark leaves: result.json, rows.csv and bench.html, and the object or the tables on stdout."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hipwright.api.files import write_files
from hipwright.api.plain import finite
from hipwright.cli import bench_model
from hipwright.cli.output import CommandOutput
from hipwright.cli.tables import plain_table
from hipwright.evaluation.bench import BenchRow, to_csv
from hipwright.evaluation.figures import figures, worst
from hipwright.evaluation.model_figures import model_figures
from hipwright.report.bench_page import BenchPage, render_bench
from hipwright.report.views import number, percent, seconds
from hipwright.targets import OFFLINE, TARGETS

if TYPE_CHECKING:
    from rich.console import Console

    from hipwright.cli.benching import BenchmarkRun


def hand_over(output: CommandOutput, bench: BenchmarkRun) -> None:
    """Write the files and print the result."""
    wanted, rows = bench.wanted, bench.rows
    found = figures(rows, kernelbench=wanted.mode == "kernelbench")
    model = model_figures(rows, wanted.models.samples) if wanted.models else None
    value = _object(bench, found, model)
    if wanted.out is not None:
        page = BenchPage(
            title=wanted.suite.resolve().name,
            mode=wanted.mode,
            source=value["source"],
            targets=wanted.targets,
            complete=value["complete"],
            expected=len(bench.entries),
            figures=found,
            rows=tuple(rows),
            not_measured=tuple(value["not_measured"]),
            command=command(bench),
            model=model,
        )
        files = {"result.json": json.dumps(finite(value), indent=2) + "\n", "rows.csv": to_csv(rows)}
        write_files(wanted.out, files | {"bench.html": render_bench(page)})
    if output.json_mode:
        output.result(value)
    else:
        _print(output.console(), bench, found, value["not_measured"])
        if model is not None:
            bench_model.show(output.console(), model)


def _object(bench: BenchmarkRun, found: Mapping[str, Any], model: Mapping[str, Any] | None) -> dict[str, Any]:
    wanted, rows = bench.wanted, bench.rows
    searched = wanted.candidates is None and (wanted.models is None or wanted.models.agent == "pipeline")
    return {
        "suite": str(wanted.suite),
        "mode": wanted.mode,
        "source": _source(bench),
        "budget": wanted.budget if searched else None,
        "seed": wanted.seed,
        "targets": list(wanted.targets),
        "complete": len(rows) == len(bench.entries) and not bench.interrupted,
        "expected_rows": len(bench.entries),
        "left_out": [str(path) for path in bench.strangers],
        "out": str(wanted.out) if wanted.out else None,
        **found,
        "model": None if model is None else {**bench_model.settings(bench), **model},
        "worst": [_brief(row) for row in worst(rows)],
        "not_measured": not_measured(wanted.targets, rows),
        "rows": [row.to_dict() for row in rows],
    }


def _source(bench: BenchmarkRun) -> str:
    wanted = bench.wanted
    if wanted.models is not None:
        return " ".join(wanted.models.lineup.specs())
    return "engine" if wanted.candidates is None else str(wanted.candidates)


def _brief(row: BenchRow) -> dict[str, Any]:
    return {
        "task": row.task,
        "candidate": row.candidate,
        "status": row.status,
        "message": row.message,
        "coverage": row.coverage,
        "speedups": {name: one.speedup for name, one in row.speedups.items()},
    }


def not_measured(targets: Sequence[str], rows: Sequence[BenchRow]) -> list[str]:
    """What this benchmark cannot know, a line each."""
    lines = []
    if not any(row.timed_on for row in rows):
        lines.append("nothing was timed: no GPU target ran, so fast_p, speedups and roofline fractions are null")
    if not any(TARGETS.is_amd(row.timed_on) for row in rows):
        offline = [name for name in targets if name in OFFLINE]
        lines += [
            f"no AMD GPU was used: speed on {OFFLINE[name].product} ({name}) was not measured" for name in offline
        ]
    if not any(TARGETS.runs(name) for name in targets):
        lines.append("no target that runs was chosen: nothing ran, so no value was checked")
    return lines


def command(bench: BenchmarkRun) -> str:
    """The command line that repeats the benchmark."""
    wanted = bench.wanted
    words = ["hipwright", "bench", str(wanted.suite)]
    if wanted.candidates is not None:
        words += ["--candidates", str(wanted.candidates)]
    elif wanted.models is not None:
        words += bench_model.option_words(wanted.models, wanted.budget)
    else:
        words += ["--budget", str(wanted.budget)]
    if wanted.level is not None:
        words += ["--level", str(wanted.level)]
    words += ["--mode", wanted.mode, *(word for name in wanted.targets for word in ("--target", name))]
    return shlex.join(words + (["--seed", str(wanted.seed)] if wanted.seed is not None else []))


# ---------------------------------------------------------------- for people


def _print(console: Console, bench: BenchmarkRun, found: Mapping[str, Any], notes: Sequence[str]) -> None:
    rows = bench.rows
    source = "the engine's own programs" if bench.wanted.candidates is None else "candidates"
    source = f"samples of {_source(bench)}" if bench.wanted.models else source
    spent = seconds(sum(row.seconds for row in rows))
    console.print(
        f"{bench.wanted.suite.name}: {len(rows)} of {len(bench.entries)} rows, {source}, {bench.wanted.mode} "
        f"rule, {spent} of evaluation",
        style="bold",
    )
    lines = [("compiled", found["compiled"]), ("correct", found["correct"])]
    if "strict_correct" in found:
        lines.append(("correct by the strict rule", found["strict_correct"]))
    for baseline, levels in (found["fast_p"] or {}).items():
        lines += [(f"fast_{p} against {baseline}", share) for p, share in levels.items()]
    console.print(
        plain_table(
            ("", "rows", "share", "95 % interval"),
            [_share_cells(*line) for line in lines],
            right=("rows", "share", "95 % interval"),
        )
    )
    for baseline, means in (found["geometric_mean"] or {}).items():
        console.print(f"geometric mean against {baseline}: {_mean_words(means)}")
    if found["coverage"]["rows"]:
        console.print(
            f"coverage {percent(found['coverage']['mean'])} on average of {found['coverage']['rows']} correct"
        )
    if found["not_judged"]:
        counts = ", ".join(f"{count} by the {fault}'s fault" for fault, count in found["not_judged"].items())
        console.print(f"not judged, and in no denominator: {counts}", style="yellow")
    listed = worst(rows)
    cells = [
        (row.task, row.candidate, row.status, _speeds(row), percent(row.coverage), row.message[:90]) for row in listed
    ]
    console.print(f"the worst {len(listed)}:")
    console.print(
        plain_table(("task", "candidate", "status", "speedup", "coverage", "why"), cells, right=("coverage",))
    )
    for line in notes:
        console.print(f"not measured: {line}", style="yellow")
    if bench.wanted.out is not None:
        console.print(f"in {bench.wanted.out}: bench.html, result.json, rows.csv, rows.jsonl")


def _share_cells(name: str, share: Mapping[str, Any]) -> tuple[str, str, str, str]:
    low, high = share["interval"]
    return name, f"{share['count']} of {share['total']}", percent(share["share"]), f"{100 * low:.0f}-{100 * high:.0f} %"


def _mean_words(means: Mapping[str, Any]) -> str:
    parts = []
    for key, what in (("of_correct", "correct rows"), ("of_all", f"all, a failure as {means['failures_count_as']}")):
        if (mean := means[key]) is not None:
            low, high = mean["interval"]
            parts.append(f"{mean['value']:.2f}x ({low:.2f}-{high:.2f}) of {mean['rows']} {what}")
    return "; ".join(parts) or "none"


def _speeds(row: BenchRow) -> str:
    return ", ".join(f"{number(one.speedup)}x {name}" for name, one in row.speedups.items()) or "-"
