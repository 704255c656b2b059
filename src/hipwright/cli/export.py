"""`hipwright export`: a run as JSON lines, or a program as a package of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hipwright.cli.options import Json
from hipwright.cli.output import Face
from hipwright.errors import BadInput

FORMATS = ("torch-op", "modelnew")


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
        from hipwright.cli import runs

        return runs.export(what, canonical=canonical, records=records, out=out, json_mode=json_mode)
    if program is None or canonical or records:
        raise BadInput("a program is exported as TASK PROGRAM --format F; --canonical and --records are for runs")
    if form not in FORMATS or out is None:
        raise BadInput(f"--format is one of {', '.join(FORMATS)}, and --out says where to")
    from hipwright.cli import shipping

    return shipping.ship(Face(json_mode=json_mode), Path(what), program, form, name, out)
