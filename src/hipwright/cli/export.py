"""`hipwright export`: a run as JSON lines, or a program in a format of another tool's."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hipwright.cli.options import Json
from hipwright.cli.output import CommandOutput
from hipwright.errors import BadInput

if TYPE_CHECKING:
    from hipwright.api.inputs import TaskSource


def export(
    what: Annotated[
        str,
        typer.Argument(
            help="A run (its id, the start of it, or `latest`), a program's key, or a task.", metavar="RUN|KEY|TASK"
        ),
    ],
    program: Annotated[Path | None, typer.Argument(help="A program for the task.", metavar="PROGRAM")] = None,
    canonical: Annotated[
        bool,
        typer.Option("--canonical", help="Of a run: only what decides the outcome, the same bytes for the same seed."),
    ] = False,
    records: Annotated[
        str | None,
        typer.Option("--records", metavar="KIND", help="Of a run: rows for training (sft, rl or labels), not events."),
    ] = None,
    form: Annotated[
        str | None,
        typer.Option(
            "--format", metavar="F", help="torch-op, hf-kernels, flashinfer-trace, modelnew, popcorn or standalone-hip."
        ),
    ] = None,
    name: Annotated[str | None, typer.Option(help="The package's name. [default: from the task's file]")] = None,
    out: Annotated[
        Path | None, typer.Option(help="A run's file (without it stdout), or the program's folder.", metavar="PATH")
    ] = None,
    unverified: Annotated[
        bool, typer.Option("--unverified", help="Of TASK PROGRAM: write it without verifying it, and say so.")
    ] = False,
    json_mode: Json = False,
) -> int:
    """Write a run as JSON lines, or its program in a format that other tools take (docs/exports.md)."""
    if program is None and form is None:
        from hipwright.cli.runs import queries

        return queries.export(what, canonical=canonical, records=records, out=out, json_mode=json_mode)
    if canonical or records:
        raise BadInput("--canonical and --records are for runs, without --format")
    from hipwright.ship.formats.registry import named

    chosen = named(form).name
    if out is None:
        raise BadInput("--out says where to")
    output = CommandOutput(json_mode=json_mode)
    if program is None:
        if unverified:
            raise BadInput("--unverified is for TASK PROGRAM: a run's program is verified")
        return _archived(output, what, chosen, name, out)
    return _files(output, Path(what), program, chosen, name, out, unverified=unverified)


def _archived(output: CommandOutput, what: str, form: str, name: str | None, out: Path) -> int:
    from hipwright.api.inputs import TaskSource
    from hipwright.api.runs.results import named
    from hipwright.api.ship.verified import passed_on

    found = named(what)
    task = TaskSource(found.task.name, text=found.task.source)
    return _written(output, task, found.source, form, name, out, passed_on(found.evaluation))


def _files(
    output: CommandOutput, task: Path, path: Path, form: str, name: str | None, out: Path, *, unverified: bool
) -> int:
    from hipwright.api.inputs import program_from, task_source
    from hipwright.api.ship.folder import check_own
    from hipwright.api.ship.verified import verified_on
    from hipwright.records import Program

    source = task_source(task)
    text = program_from(path, source).text
    check_own(out, form)
    targets = () if unverified else verified_on(source, Program(text=text))
    return _written(output, source, text, form, name, out, targets)


def _written(
    output: CommandOutput, task: TaskSource, text: str, form: str, name: str | None, out: Path, targets: tuple[str, ...]
) -> int:
    from hipwright.api.ship.package import ship_program

    made = ship_program(task, text, form, out, verified_on=targets, name=name)
    state = f"verified on {', '.join(targets)}" if targets else "NOT verified"
    output.say(f"wrote {len(made.files)} files of program {made.program_key} to {out} ({state})")
    if output.json_mode:
        fields = {"format": form, "program_key": made.program_key, "verified_on": list(targets), "files": made.files}
        output.result({"out": str(out), **fields})
    return 0
