"""`hipwright resume`: go on with a search that was interrupted."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hipwright.cli.options import Fleet, Json, Place, Unsafe, Workers


def resume(
    run: Annotated[
        str, typer.Argument(help="A run: its id, the start of it, or `latest` (`hipwright runs`).", metavar="RUN")
    ],
    out: Annotated[
        Path | None, typer.Option(help="Folder for program.py, model_new.py, result.json, report.html.", metavar="DIR")
    ] = None,
    max_minutes: Annotated[float | None, typer.Option(min=0.01, help="Start no evaluation after this.")] = None,
    workers: Workers = None,
    fleet: Fleet = "",
    place: Place = "",
    unsafe: Unsafe = False,
    json_mode: Json = False,
) -> int:
    """Go on with a search where it was interrupted: its task, targets, budget and models are in the archive."""
    from hipwright.api.fleet.choice import FleetChoice
    from hipwright.api.inputs import TaskSource
    from hipwright.api.optimize import SearchRequest
    from hipwright.api.runs.queries import run_task
    from hipwright.cli.optimize import searched

    name, task = run_task(run)
    request = SearchRequest(
        task=TaskSource(task.name, text=task.source),
        resume=name,
        max_minutes=max_minutes,
        workers=workers,
        unsafe=unsafe,
        fleet=FleetChoice(fleet, place),
    )
    return searched(request, f"{task.name}.py", out, json_mode=json_mode)
