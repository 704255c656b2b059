"""`hipwright export`: a run as JSON lines, or a program as a package of its own."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from hipwright.cli.options import Json
from hipwright.cli.output import CommandOutput
from hipwright.errors import BadInput

if TYPE_CHECKING:
    from hipwright.api.inputs import TaskSource
    from hipwright.api.ship.package import ShipFormat


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
        str | None, typer.Option("--format", metavar="F", help="Of a program: torch-op (a package), modelnew (a file).")
    ] = None,
    name: Annotated[str | None, typer.Option(help="The package's name. [default: from the task's file]")] = None,
    out: Annotated[
        Path | None, typer.Option(help="A run's file (without it stdout), or the package's folder.", metavar="PATH")
    ] = None,
    json_mode: Json = False,
) -> int:
    """Write a run as JSON lines, or its program as something that PyTorch code can import (docs/ship.md)."""
    if program is None and form is None:
        from hipwright.cli.runs import queries

        return queries.export(what, canonical=canonical, records=records, out=out, json_mode=json_mode)
    if canonical or records:
        raise BadInput("--canonical and --records are for runs, without --format")
    from hipwright.api.ship.package import FORMATS

    if form not in FORMATS or out is None:
        raise BadInput(f"--format is one of {', '.join(FORMATS)}, and --out says where to")
    output, chosen = CommandOutput(json_mode=json_mode), cast("ShipFormat", form)
    if program is None:
        return _ship_archived(output, what, chosen, name, out)
    return _ship(output, Path(what), program, chosen, name, out)


def _ship_archived(output: CommandOutput, what: str, form: ShipFormat, name: str | None, out: Path) -> int:
    from hipwright.api.inputs import TaskSource
    from hipwright.api.runs.results import named

    found = named(what)
    task = TaskSource(found.task.name, text=found.task.source)
    return _written(output, task, found.source, form, name, out)


def _ship(output: CommandOutput, task: Path, path: Path, form: ShipFormat, name: str | None, out: Path) -> int:
    from hipwright.api.inputs import program_from, task_source

    source = task_source(task)
    return _written(output, source, program_from(path, source).text, form, name, out)


def _written(output: CommandOutput, task: TaskSource, text: str, form: ShipFormat, name: str | None, out: Path) -> int:
    from hipwright.api.ship.package import ship_program
    from hipwright.records import Program

    files, key = ship_program(task, text, form, out, name=name), Program(text=text).key
    output.say(f"wrote {len(files)} files of program {key} to {out}")
    if output.json_mode:
        output.result({"out": str(out), "format": form, "program_key": key, "files": files})
    return 0
