"""`hipwright export`: a run as JSON lines, or a program as a package of its own."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from hipwright.cli.options import Json
from hipwright.cli.output import CommandOutput
from hipwright.errors import BadInput

if TYPE_CHECKING:
    from hipwright.api.ship.package import ShipFormat


def export(
    what: Annotated[
        str, typer.Argument(help="A run (its id, the start of it, or `latest`), or a task.", metavar="RUN|TASK")
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
    """Write a run as JSON lines, or a program as something that PyTorch code can import (docs/ship.md)."""
    if program is None and form is None:
        from hipwright.cli.runs import queries

        return queries.export(what, canonical=canonical, records=records, out=out, json_mode=json_mode)
    if program is None or canonical or records:
        raise BadInput("a program is exported as TASK PROGRAM --format F; --canonical and --records are for runs")
    from hipwright.api.ship.package import FORMATS

    if form not in FORMATS or out is None:
        raise BadInput(f"--format is one of {', '.join(FORMATS)}, and --out says where to")
    return _ship(CommandOutput(json_mode=json_mode), Path(what), program, cast("ShipFormat", form), name, out)


def _ship(output: CommandOutput, task: Path, path: Path, form: ShipFormat, name: str | None, out: Path) -> int:
    from hipwright.api.files import read_text
    from hipwright.api.inputs import task_source
    from hipwright.api.ship.package import ship_program

    source = task_source(task)
    files = ship_program(source, read_text(path, "program"), form, out, name=name)
    output.say(f"wrote {len(files)} files to {out}")
    if output.json_mode:
        output.result({"out": str(out), "format": form, "files": files})
    return 0
