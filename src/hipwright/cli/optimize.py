"""`hipwright optimize`: search for a fast, verified program for one task."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hipwright.cli import targets
from hipwright.cli.options import Json, Targets, TaskFile, Unsafe
from hipwright.cli.output import Face


def optimize(
    task: TaskFile,
    target: Targets = None,
    budget: Annotated[int | None, typer.Option(min=1, help="Evaluations at most. [default: 40]")] = None,
    policy: Annotated[str | None, typer.Option(help="islands or best-of-n. [default: islands]")] = None,
    seed: Annotated[int | None, typer.Option(help="Decides every choice of the search. [default: 0]")] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for program.py, model_new.py, result.json, report.html.", metavar="DIR")
    ] = None,
    max_minutes: Annotated[float | None, typer.Option(min=0.01, help="Start no evaluation after this.")] = None,
    workers: Annotated[int, typer.Option(min=1, max=64, help="Evaluations at a time.")] = 1,
    resume: Annotated[str | None, typer.Option(metavar="RUN", help="Go on with a run that was interrupted.")] = None,
    unsafe: Unsafe = False,
    json_mode: Json = False,
) -> int:
    """Search for a fast, verified HIP program for TASK. Everything is kept in the archive as it happens."""
    from hipwright.cli import searching, session
    from hipwright.cli.outdir import prepare

    session.existing_file(task, "task")
    wanted = searching.Wanted(
        task=task,
        targets=targets.choose(target) if target or not resume else None,
        budget=budget,
        policy=searching.policy_name(policy),
        seed=seed,
        resume=resume,
        out=out,
        max_minutes=max_minutes,
        workers=workers,
        unsafe=unsafe,
    )
    if out is not None:
        prepare(out)
    return searching.optimize(Face(json_mode=json_mode), wanted)
