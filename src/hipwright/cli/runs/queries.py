"""`hipwright runs`, `show`, `compare` and `export`: queries on the archive. RUN is an id, its start, or "latest"."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hipwright import config
from hipwright.api.plain import clean
from hipwright.cli import exit_codes
from hipwright.cli.options import Json, RunName
from hipwright.cli.output import CommandOutput
from hipwright.cli.runs.damaged import plain_rows, say_damaged
from hipwright.cli.runs.faults import faults
from hipwright.cli.shell.command import HelpfulCommand, WholeSummaries
from hipwright.errors import BadInput

if TYPE_CHECKING:
    from hipwright.archive import RunSummary, TrialDetail


WIDE = 100
"""Columns of a terminal below which a list of runs is without policy and start, which a run's id begins with."""
app = typer.Typer(invoke_without_command=True, cls=WholeSummaries, rich_markup_mode=None)
app.command("faults", cls=HelpfulCommand)(faults)


@app.callback()
def runs(
    context: typer.Context,
    check: Annotated[bool, typer.Option("--check", help="Read every row of the archive; exit 3 for a damaged one.")] = (
        False
    ),
    json_mode: Json = False,
) -> int:
    """List all runs, newest first."""
    if context.invoked_subcommand is not None:
        if check or json_mode:
            raise BadInput("options of `hipwright runs faults` follow its name")
        return 0
    from hipwright.api.runs.queries import check_archive, list_runs
    from hipwright.archive import shown

    output, home = CommandOutput(json_mode=json_mode), shown(config.archive())
    if check:
        damaged = check_archive()
        if json_mode:
            output.result({"home": home, "ok": not damaged, "damaged": plain_rows(damaged)})
        else:
            output.console().print(f"{len(damaged)} damaged rows" if damaged else "every row can be read")
            say_damaged(output, damaged, limit=len(damaged))
        return exit_codes.INFRASTRUCTURE if damaged else 0
    found, damaged = list_runs()
    if json_mode:
        rows = [summary.to_dict() for summary in found]
        output.result({"home": home, "runs": rows, "damaged": plain_rows(damaged)})
    elif not found:
        output.say(f"no runs in {home}")
    else:
        _print_runs(output, found)
    say_damaged(output, damaged)
    return 0


def show(run: RunName, json_mode: Json = False) -> int:
    """One run: its winner, how the search came to it, and what it cost."""
    from hipwright.api.outcome import not_measured
    from hipwright.api.runs.queries import run_detail
    from hipwright.api.runs.results import key_of
    from hipwright.api.start.comparison import start_comparison

    output = CommandOutput(json_mode=json_mode)
    detail, models, damaged = run_detail(run)
    key = key_of(detail)
    say_damaged(output, damaged)
    notes = not_measured(detail.run.targets, detail.best)
    begun = start_comparison(detail)
    if json_mode:
        more = {"program_key": key or None, "models": models, "not_measured": notes, "damaged": plain_rows(damaged)}
        more |= {"start": begun.to_dict()} if begun is not None else {}
        output.result({**detail.to_dict(), **more})
        return 0
    from hipwright.cli.display.fitted import plain_table
    from hipwright.cli.display.tables import models_line, print_evaluation

    out = output.console()
    _print_runs(output, [detail.summary])
    out.print()
    if detail.best is not None:
        print_evaluation(out, detail.summary.task, detail.best, notes)
        out.print(f"program {key}: `hipwright export {detail.run.id} --format torch-op|modelnew --out DIR`")
        out.print()
    if begun is not None:
        out.print(begun.sentence)
        out.print()
    heads = ("#", "operator", "program", "status", "µs", "", "decision", "reason")
    out.print(plain_table(heads, [_trial_row(trial) for trial in detail.trials], right=("#", "µs")))
    out.print()
    out.print("  ".join(f"{name.replace('_', ' ')} {value:g}" for name, value in detail.costs.items()), style="dim")
    if models is not None:
        out.print(models_line(models), style="dim")
    return 0


def compare(
    first: RunName,
    second: RunName,
    json_mode: Json = False,
) -> int:
    """Two runs side by side, and how their winners' sources differ."""
    from hipwright.api.runs.queries import compare_runs

    output, (found, damaged) = CommandOutput(json_mode=json_mode), compare_runs(first, second)
    say_damaged(output, damaged)
    if json_mode:
        output.result({**found.to_dict(), "damaged": plain_rows(damaged)})
        return 0
    out = output.console()
    _print_runs(output, [found.a, found.b])
    out.print()
    if not found.same_task:
        out.print("the runs are of different tasks: their figures cannot be compared", style="yellow")
    elif found.ratio is not None:
        out.print(f"{found.b.id} needs {found.ratio:.3g}× the time of {found.a.id} ({found.a.score_kind.upper()})")
    out.print(f"programs in common: {found.common_programs}")
    for line in found.diff:
        out.print(clean(line), style={"+": "green", "-": "red", "@": "cyan"}.get(line[:1]))
    return 0


def export(
    run: RunName,
    canonical: Annotated[
        bool,
        typer.Option("--canonical", help="Only what decides the outcome: the same bytes for the same task and seed."),
    ] = False,
    records: Annotated[
        str | None,
        typer.Option("--records", metavar="KIND", help="Instead of events, rows for training: sft, rl or labels."),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Write to this file instead of stdout.", metavar="FILE")] = None,
    json_mode: Json = False,
) -> int:
    """Write a run as JSON lines, programs included."""
    import json

    from hipwright.api.files import prepare_folder, write_file
    from hipwright.api.runs.queries import export_run

    output = CommandOutput(json_mode=json_mode)
    if records and canonical:
        raise BadInput("--records and --canonical are two different exports")
    name, text = export_run(run, canonical=canonical, records=records)
    lines = text.splitlines()
    if out is not None:
        prepare_folder(out.absolute().parent)
        write_file(out, text)
        output.say(f"wrote {out}: {len(lines)} {'rows' if records else 'events'} of run {name}")
    if json_mode:
        events = {} if out is not None else {"rows" if records else "events": [json.loads(line) for line in lines]}
        output.result({"run": name, "canonical": canonical, "out": str(out) if out else None, **events})
    elif out is None:
        print(text, end="", flush=True)
    return 0


def _print_runs(output: CommandOutput, found: list[RunSummary]) -> None:
    from hipwright.cli.display.fitted import plain_table
    from hipwright.report.formatting import number, percent

    heads: tuple[str, ...] = ("run", "task", "status", "policy", "evaluations", "best", "coverage", "started")
    rows: list[tuple[str, ...]] = []
    for s in found:
        best = "-" if not s.best else f"{number(s.score)} µs {s.score_kind.upper()}" if s.score else "passed"
        started = time.strftime("%Y-%m-%d %H:%M", time.localtime(s.started))
        done = f"{s.evaluations}/{s.budget}"
        rows.append((s.id, s.task, s.status, s.policy, done, best, percent(s.coverage), started))
    out = output.console()
    if out.width < WIDE:
        heads, rows = heads[:3] + heads[4:7], [row[:3] + row[4:7] for row in rows]
    out.print(plain_table(heads, rows, right=("evaluations", "coverage")))


def _trial_row(trial: TrialDetail) -> tuple[object, ...]:
    from hipwright.report.formatting import number

    decision = "best" if trial.best else "kept" if trial.kept else "-"
    why = trial.reason or trial.message
    kind = "" if trial.score is None else trial.score_kind.upper()
    return (trial.number, trial.operator, trial.program[:8], trial.status, number(trial.score), kind, decision, why)
