"""`hipwright bench`: a folder of tasks, with the engine's own programs or given candidates."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from hipwright.cli import targets
from hipwright.cli.options import Json, Targets, Unsafe
from hipwright.cli.output import Face


class Mode(StrEnum):
    """By which rule an output is right."""

    strict = "strict"
    kernelbench = "kernelbench"


def bench(
    suite: Annotated[Path, typer.Argument(help="Folder of tasks: *.py and levelN/*.py.", metavar="DIR")],
    candidates: Annotated[
        Path | None,
        typer.Option(
            help="Folder of candidates, named like their tasks. Without it the engine writes its own.", metavar="DIR"
        ),
    ] = None,
    level: Annotated[int | None, typer.Option(help="Only DIR/levelN.", metavar="N")] = None,
    gpus: Annotated[str, typer.Option(help="GPUs to use: all, or numbers like 0,1.")] = "all",
    mode: Annotated[
        Mode, typer.Option(help="strict, or KernelBench's own rule with the strict one beside it.")
    ] = Mode.strict,
    target: Targets = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder for rows, result.json, rows.csv, bench.html and programs.", metavar="DIR"),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with what --out already holds.")] = False,
    budget: Annotated[int, typer.Option(min=1, help="Evaluations a task, for the engine.")] = 8,
    seed: Annotated[
        int | None,
        typer.Option(help="Seed of the verification inputs; drawn after the candidates were read without it."),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(
            min=1, max=64, help="Tasks at a time: on each GPU [default: 2], or where none is used [default: cores / 2]."
        ),
    ] = None,
    unsafe: Unsafe = False,
    json_mode: Json = False,
) -> int:
    """Judge a whole folder: compiled, correct, fast_p, means, coverage and the worst ten, resumable."""
    from hipwright.cli import benching
    from hipwright.cli.outdir import prepare

    wanted = benching.Wanted(
        suite=suite,
        candidates=candidates,
        level=level,
        gpus=gpus,
        mode=mode.value,
        targets=targets.choose(target),
        out=out,
        resume=resume,
        budget=budget,
        seed=seed,
        workers=workers,
        unsafe=unsafe,
    )
    if out is not None:
        prepare(out)
    return benching.run(Face(json_mode=json_mode), wanted)
