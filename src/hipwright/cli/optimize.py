"""`hipwright optimize`: search for a fast, verified program for one task."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hipwright.cli import targets
from hipwright.cli.options import Json, Llm, MaxTokens, MaxUsd, Price, Targets, TaskFile, Unsafe
from hipwright.cli.output import Face


def optimize(
    task: TaskFile,
    target: Targets = None,
    budget: Annotated[int | None, typer.Option(min=1, help="Evaluations at most. [default: 40]")] = None,
    policy: Annotated[str | None, typer.Option(help="How to search (docs/search.md). [default: islands]")] = None,
    seed: Annotated[int | None, typer.Option(help="Decides every choice of the search. [default: 0]")] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for program.py, model_new.py, result.json, report.html.", metavar="DIR")
    ] = None,
    max_minutes: Annotated[float | None, typer.Option(min=0.01, help="Start no evaluation after this.")] = None,
    workers: Annotated[int, typer.Option(min=1, max=64, help="Evaluations at a time.")] = 1,
    resume: Annotated[str | None, typer.Option(metavar="RUN", help="Go on with a run that was interrupted.")] = None,
    llm: Llm = None,
    llm_share: Annotated[
        float | None, typer.Option(min=0, max=1, help="Share of the proposals that models write. [default: 0.5]")
    ] = None,
    max_usd: MaxUsd = None,
    max_tokens: MaxTokens = None,
    price: Price = None,
    without: Annotated[
        list[str] | None, typer.Option(metavar="ROLE", help="Leave a role out; may be repeated (docs/agents.md).")
    ] = None,
    replay: Annotated[
        str | None,
        typer.Option(metavar="RUN|FILE", help="Do a recorded run again, offline: its models' answers are reused."),
    ] = None,
    unsafe: Unsafe = False,
    json_mode: Json = False,
) -> int:
    """Search for a fast, verified HIP program for TASK. Everything is kept in the archive as it happens."""
    from hipwright.cli import minds, searching, session
    from hipwright.cli.outdir import prepare

    session.existing_file(task, "task")
    wanted = searching.SearchRequest(
        task=task,
        targets=targets.choose(target) if target or not (resume or replay) else None,
        budget=budget,
        policy=searching.policy_name(policy),
        seed=seed,
        resume=resume,
        replay=replay,
        minds=minds.ModelOptions(
            llm=tuple(llm or ()),
            share=llm_share,
            max_usd=max_usd,
            max_tokens=max_tokens,
            price=tuple(price or ()),
            without=tuple(without or ()),
        ),
        out=out,
        max_minutes=max_minutes,
        workers=workers,
        unsafe=unsafe,
    )
    if out is not None:
        prepare(out)
    return searching.optimize(Face(json_mode=json_mode), wanted)
