"""`hipwright dataset`: verified pairs of tasks and programs, made, looked at again, counted and exported."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hipwright.api import targets
from hipwright.cli import exit_codes
from hipwright.cli.options import Json, Targets, Unsafe
from hipwright.cli.output import CommandOutput
from hipwright.errors import BadInput
from hipwright.targets import CPU, TARGETS

app = typer.Typer(
    help="Verified pairs of tasks and programs: build, check, overlap, stats, export.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Data = Annotated[Path, typer.Argument(help="A data set's folder, or a file of its rows.", metavar="DATA")]
Workers = Annotated[
    int | None, typer.Option(min=1, max=64, help="Processes at a time. [default: one a processor]", metavar="N")
]


@app.command("build")
def build(
    out: Annotated[Path, typer.Option(help="Folder of the data set.", metavar="DIR")],
    tasks: Annotated[
        Path | None,
        typer.Argument(help="A folder of `hipwright synth`, or any folder of task files.", metavar="TASKS"),
    ] = None,
    count: Annotated[
        int | None,
        typer.Option(min=1, max=1_000_000, help="Without TASKS: compose this many into DIR/synth first.", metavar="N"),
    ] = None,
    variants: Annotated[int, typer.Option(min=0, help="Other schedules of the engine's a task.", metavar="K")] = 3,
    negatives: Annotated[int, typer.Option(min=0, help="Broken programs with evidence a task.", metavar="N")] = 1,
    budget: Annotated[int, typer.Option(min=0, help="Evaluations of a search a task; 0 for none.", metavar="N")] = 0,
    seed: Annotated[int, typer.Option(help="Decides every choice.")] = 0,
    target: Targets = None,
    workers: Workers = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with a data set, or add new tasks to it.")] = False,
    unsafe: Unsafe = False,
    json_mode: Json = False,
) -> int:
    """Make verified pairs of every task of TASKS, or of N new ones. What is done is kept: --resume goes on."""
    from hipwright.api.files import prepare_folder
    from hipwright.cli import dataset_work
    from hipwright.dataset.make import BuildSettings

    chosen = targets.choose(target or [*TARGETS.default_offline, CPU.name])
    if CPU.name not in chosen:
        raise BadInput(f"a pair is verified on the {CPU.name} target", hint=f"add --target {CPU.name}")
    settings = BuildSettings(targets=chosen, variants=variants, negatives=negatives, budget=budget, seed=seed)
    if (tasks is None) == (count is None):
        raise BadInput("either TASKS or --count", hint="--count N makes new tasks; TASKS are made already")
    prepare_folder(out)
    output = CommandOutput(json_mode=json_mode)
    workers = workers or dataset_work.cores()
    if tasks is None:
        assert count is not None
        tasks = out / "synth"
        if not dataset_work.compose(output, out, tasks, count, seed, workers=workers, resume=resume, unsafe=unsafe):
            return exit_codes.INTERRUPTED
    return dataset_work.run_build(output, tasks, out, settings, workers=workers, resume=resume, unsafe=unsafe)


@app.command("check")
def check(
    data: Data,
    sample: Annotated[int, typer.Option(min=0, help="Rows to verify again; 0 for all.", metavar="N")] = 50,
    seed: Annotated[int | None, typer.Option(help="Draws the rows; a secret one without it.")] = None,
    workers: Workers = None,
    unsafe: Unsafe = False,
    json_mode: Json = False,
) -> int:
    """Verify a random sample of DATA from scratch on secret inputs. Exit 1 when a row is not what it says."""
    from hipwright.cli import dataset_work

    output = CommandOutput(json_mode=json_mode)
    count = workers or dataset_work.cores()
    return dataset_work.run_check(output, data, sample=sample, seed=seed, workers=count, unsafe=unsafe)


@app.command("overlap")
def overlap(
    data: Annotated[Path, typer.Argument(help="A data set, a file of its rows, or a folder of tasks.", metavar="DATA")],
    against: Annotated[
        list[Path] | None,
        typer.Option(metavar="DIR", help="A folder of tasks; may be repeated. [default: DATA with itself]"),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Write the rows of the other tasks here.", metavar="FILE")] = None,
    workers: Workers = None,
    unsafe: Unsafe = False,
    json_mode: Json = False,
) -> int:
    """Which tasks of DATA are copies or near copies of those of a folder, or of each other. Exit 1 when any is."""
    from hipwright.cli import dataset_overlap, dataset_work

    output = CommandOutput(json_mode=json_mode)
    count = workers or dataset_work.cores()
    return dataset_overlap.run_overlap(output, data, against or [], out, workers=count, unsafe=unsafe)


@app.command("stats")
def stats(
    data: Data,
    out: Annotated[Path | None, typer.Option(help="Write a page with plots here.", metavar="FILE.html")] = None,
    json_mode: Json = False,
) -> int:
    """What is in DATA: pairs by kind, family, dtype, split; coverage, estimates, registers."""
    from hipwright.cli import dataset_out

    return dataset_out.stats(CommandOutput(json_mode=json_mode), data, out)


@app.command("export")
def export(
    data: Data,
    out: Annotated[Path, typer.Option(help="Folder of the export.", metavar="DIR")],
    form: Annotated[
        str, typer.Option("--format", help="jsonl, parquet, sft, trl, verl, source or preference.", metavar="FORMAT")
    ] = "jsonl",
    title: Annotated[str, typer.Option(help="For the card.")] = "HIP kernels with proof",
    sample: Annotated[
        int | None, typer.Option(min=1, help="So many rows across kinds and families. [default: all]", metavar="N")
    ] = None,
    seed: Annotated[int, typer.Option(help="Draws the sample.")] = 0,
    json_mode: Json = False,
) -> int:
    """Write DATA in a format that trainers read (docs/dataset.md), whole or not at all."""
    from hipwright.cli import dataset_out

    return dataset_out.export(CommandOutput(json_mode=json_mode), data, out, form, title, sample=sample, seed=seed)
