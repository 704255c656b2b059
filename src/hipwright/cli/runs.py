"""What the archive holds: `runs`, `show`, `compare`, `export`. Readers only; RUN is an id, its start, or "latest"."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hipwright import config
from hipwright.cli.options import Json, RunName
from hipwright.cli.output import Face, clean
from hipwright.errors import BadInput

if TYPE_CHECKING:
    from hipwright.archive import Archive, RunSummary, TrialDetail


def open_archive() -> Archive:
    """The archive of this folder; BadInput where there is none."""
    from hipwright.archive import Archive

    return Archive(config.home(), create=False)


def runs(json_mode: Json = False) -> int:
    """List all runs, newest first."""
    from hipwright.archive import list_runs

    face = Face(json_mode=json_mode)
    if not (config.home() / "archive.sqlite").exists():  # an empty list is an answer, not a mistake
        found = []
    else:
        with open_archive() as archive:
            found = list_runs(archive)
    if json_mode:
        face.result({"home": str(config.home()), "runs": [summary.to_dict() for summary in found]})
        return 0
    if not found:
        face.say(f"no runs in {config.home()}")
        return 0
    _print_runs(face, found)
    return 0


def show(run: RunName, json_mode: Json = False) -> int:
    """One run: its winner, how the search came to it, and what it cost."""
    from hipwright.archive import show as query
    from hipwright.cli.minds import models_of
    from hipwright.cli.results import spent

    face = Face(json_mode=json_mode)
    with open_archive() as archive:
        detail = query(archive, run)
        models = models_of(archive, detail.run)
    if json_mode:
        face.result({**detail.to_dict(), "models": models})
        return 0
    from hipwright.cli.outcome import not_measured
    from hipwright.cli.tables import plain_table, print_evaluation

    out = face.tables()
    _print_runs(face, [detail.summary])
    out.print()
    if detail.best is not None:
        print_evaluation(out, detail.summary.task, detail.best, not_measured(detail.run.targets, detail.best))
        out.print()
    heads = ("#", "operator", "program", "status", "µs", "", "decision", "reason")
    out.print(plain_table(heads, [_trial_row(trial) for trial in detail.trials], right=("#", "µs")))
    out.print()
    out.print("  ".join(f"{name.replace('_', ' ')} {value:g}" for name, value in detail.costs.items()), style="dim")
    if models is not None:
        out.print(spent(models), style="dim")
    return 0


def compare(
    first: RunName,
    second: RunName,
    json_mode: Json = False,
) -> int:
    """Two runs side by side, and how their winners' sources differ."""
    from hipwright.archive import compare as query

    face = Face(json_mode=json_mode)
    with open_archive() as archive:
        found = query(archive, first, second)
    if json_mode:
        face.result(found.to_dict())
        return 0
    out = face.tables()
    _print_runs(face, [found.a, found.b])
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
    face = Face(json_mode=json_mode)
    if records and canonical:
        raise BadInput("--records and --canonical are two different exports")
    with open_archive() as archive:
        name = archive.run(run).id
        text = _rows(archive, name, records) if records else _events(archive, name, canonical)
    lines = text.splitlines()
    if out is not None:
        from hipwright.cli.outdir import prepare, write_file

        prepare(out.absolute().parent)
        write_file(out, text)
        face.say(f"wrote {out}: {len(lines)} {'rows' if records else 'events'} of run {name}")
    if json_mode:
        import json

        events = {} if out is not None else {"rows" if records else "events": [json.loads(line) for line in lines]}
        face.result({"run": name, "canonical": canonical, "out": str(out) if out else None, **events})
    elif out is None:
        print(text, end="", flush=True)
    return 0


def _events(archive: Archive, run: str, canonical: bool) -> str:
    from hipwright.archive import export as query

    return query(archive, run, canonical=canonical)


def _rows(archive: Archive, run: str, kind: str) -> str:
    import json

    from hipwright.agents.archivist import records

    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in records(archive, run, kind))


def _print_runs(face: Face, found: list[RunSummary]) -> None:
    from hipwright.cli.tables import plain_table
    from hipwright.report.views import number, percent

    heads = ("run", "task", "status", "policy", "evaluations", "best", "coverage", "started")
    rows = []
    for s in found:
        best = "-" if not s.best else f"{number(s.score)} µs {s.score_kind.upper()}" if s.score else "passed"
        started = time.strftime("%Y-%m-%d %H:%M", time.localtime(s.started))
        done = f"{s.evaluations}/{s.budget}"
        rows.append((s.id, s.task, s.status, s.policy, done, best, percent(s.coverage), started))
    face.tables().print(plain_table(heads, rows, right=("evaluations", "coverage")))


def _trial_row(trial: TrialDetail) -> tuple[object, ...]:
    from hipwright.report.views import number

    decision = "best" if trial.best else "kept" if trial.kept else "-"
    why = trial.reason or trial.message
    kind = "" if trial.score is None else trial.score_kind.upper()
    return (trial.number, trial.operator, trial.program[:8], trial.status, number(trial.score), kind, decision, why)
