"""`hipwright dataset`: verified pairs of tasks and programs, made, looked at again, counted and exported."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from hipwright.api import targets
from hipwright.cli import exit_codes
from hipwright.cli.options import Fleet, Json, Place, Targets, Unsafe
from hipwright.cli.output import CommandOutput
from hipwright.cli.shell.command import HelpfulCommand, WholeSummaries
from hipwright.errors import BadInput
from hipwright.stopping import interrupted_code
from hipwright.targets import CPU, TARGETS

app = typer.Typer(
    help="Verified pairs of tasks and programs: build, check, rejudge, overlap, stats, export.",
    cls=WholeSummaries,
    rich_markup_mode=None,
)

Data = Annotated[Path, typer.Argument(help="A data set's folder, or a file of its rows.", metavar="DATA")]
Workers = Annotated[
    int | None, typer.Option(min=1, max=64, help="Processes at a time. [default: one a processor]", metavar="N")
]


@app.command("build", cls=HelpfulCommand)
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
    fleet: Fleet = "",
    place: Place = "",
    unsafe: Unsafe = False,
    json_mode: Json = False,
) -> int:
    """Make verified pairs of every task of TASKS, or of N new ones. What is done is kept: --resume goes on."""
    from hipwright.api.data.build import build_dataset, build_settings
    from hipwright.api.fleet.choice import FleetChoice
    from hipwright.cli.display.dataset import DatasetProgress, print_build

    output = CommandOutput(json_mode=json_mode)
    chosen = targets.choose(target or [*TARGETS.default_offline, CPU.name])
    settings = build_settings(chosen, variants=variants, negatives=negatives, budget=budget, seed=seed)
    if (tasks is None) == (count is None):
        raise BadInput("either TASKS or --count", hint="--count N makes new tasks; TASKS are made already")
    far = FleetChoice(fleet, place)
    how: dict[str, Any] = {"workers": workers, "resume": resume, "unsafe": unsafe}
    if count is not None:
        tasks = _composed(output, out, count, seed, **how)
    if tasks is None:
        code = interrupted_code()
        if json_mode:
            output.result({"interrupted": True, "tasks": 0, "exit_code": code})
        return code
    with DatasetProgress(output, "tasks") as progress:
        found = build_dataset(tasks, out, settings, **how, fleet=far, listener=progress)
    if found.interrupted:
        output.say(f"interrupted after {found.done} of {found.report.tasks} tasks: go on with --resume")
        if json_mode:
            output.result({"interrupted": True, "tasks": found.done, "exit_code": interrupted_code()})
        return interrupted_code()
    if json_mode:
        output.result({**found.summary(), "out": str(out)})
    else:
        print_build(output, found.report, out)
    statuses = found.report.statuses
    return exit_codes.INFRASTRUCTURE if statuses["fault"] else 0 if statuses["verified"] else exit_codes.FAILED


def _composed(output: CommandOutput, out: Path, count: int, seed: int, **how: Any) -> Path | None:
    """Composes tasks into OUT/synth and returns that folder; None when interrupted."""
    from hipwright.api.data.build import compose_tasks
    from hipwright.cli.display.synth import SynthProgress

    with SynthProgress(count) as progress:
        result = compose_tasks(out, count, seed=seed, **how, listener=progress)
    if result.interrupted:
        output.say(f"interrupted with {len(result.made)} of {count} tasks: --resume goes on")
        return None
    if result.short:
        output.say(f"only {len(result.made)} of {count} tasks: too many drafts in a row came to nothing")
    return result.job.out


@app.command("check", cls=HelpfulCommand)
def check(
    data: Data,
    sample: Annotated[int, typer.Option(min=0, help="Rows to verify again; 0 for all.", metavar="N")] = 50,
    seed: Annotated[int | None, typer.Option(help="Draws the rows; a secret one without it.")] = None,
    workers: Workers = None,
    unsafe: Unsafe = False,
    json_mode: Json = False,
) -> int:
    """Verify a random sample of DATA from scratch on secret inputs. Exit 1 when a row is not what it says."""
    from hipwright.api.data.build import bad_line, check_dataset
    from hipwright.cli.display.dataset import DatasetProgress, print_check, print_problems

    output = CommandOutput(json_mode=json_mode)
    with DatasetProgress(output, "rows") as progress:
        found = check_dataset(data, sample=sample, seed=seed, workers=workers, unsafe=unsafe, listener=progress)
    print_problems(output, "unreadable lines", [bad_line(one) for one in found.bad])
    report = found.report
    if json_mode:
        output.result(found.summary())
    else:
        print_check(output, report)
    if report.wrong or found.bad:
        return exit_codes.FAILED
    return exit_codes.INFRASTRUCTURE if report.void or not report.checked else 0


@app.command("rejudge", cls=HelpfulCommand)
def rejudge(
    data: Data,
    out: Annotated[Path, typer.Option(help="The folder of the rows that hold.", metavar="DIR")],
    workers: Workers = None,
    unsafe: Unsafe = False,
    json_mode: Json = False,
) -> int:
    """Judge every row of DATA anew with this version; write those that hold, name those that fell."""
    from hipwright.api.data.build import bad_line, rejudge_dataset
    from hipwright.cli.display.dataset import DatasetProgress, print_problems, print_rejudged

    output = CommandOutput(json_mode=json_mode)
    with DatasetProgress(output, "rows") as progress:
        found = rejudge_dataset(data, out, workers=workers, unsafe=unsafe, listener=progress)
    print_problems(output, "unreadable lines", [bad_line(one) for one in found.bad])
    if json_mode:
        output.result({"folder": str(out), **found.summary()})
    else:
        print_rejudged(output, found.report, out)
    if found.bad:
        return exit_codes.FAILED
    return exit_codes.INFRASTRUCTURE if found.report.void or not found.report.rows else 0


@app.command("overlap", cls=HelpfulCommand)
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
    from hipwright.api.data.build import bad_line
    from hipwright.api.data.overlap import find_overlap
    from hipwright.cli.display.dataset import DatasetProgress, print_overlap, print_problems

    output = CommandOutput(json_mode=json_mode)
    with DatasetProgress(output, "tasks") as progress:
        result = find_overlap(data, against or [], out, workers=workers, unsafe=unsafe, listener=progress)
    print_problems(output, "unreadable lines", [bad_line(one) for one in result.bad])
    weaker = [f"{name}: {why}" for name, why in result.found.weaker.items()]
    print_problems(output, "tasks could not be captured", weaker)
    if json_mode:
        output.result(result.summary())
    else:
        print_overlap(output, result, against or [], out)
    return exit_codes.FAILED if result.found.hits or result.bad else 0


@app.command("stats", cls=HelpfulCommand)
def stats(
    data: Data,
    out: Annotated[Path | None, typer.Option(help="Write a page with plots here.", metavar="FILE.html")] = None,
    json_mode: Json = False,
) -> int:
    """What is in DATA: pairs by kind, family, dtype, split; coverage, estimates, registers."""
    from hipwright.api.data.build import bad_line
    from hipwright.api.data.export import dataset_stats
    from hipwright.cli.display.dataset import print_problems, print_stats

    output, found = CommandOutput(json_mode=json_mode), dataset_stats(data, out)
    print_problems(output, "unreadable lines", [bad_line(one) for one in found.bad])
    if json_mode:
        output.result(found.summary())
    else:
        print_stats(output, found.figures, out)
    return exit_codes.FAILED if found.bad else 0


@app.command("export", cls=HelpfulCommand)
def export(
    data: Data,
    out: Annotated[Path, typer.Option(help="Folder of the export.", metavar="DIR")],
    form: Annotated[
        str,
        typer.Option(
            "--format", help="jsonl, parquet, sft, reasons, trl, verl, source or preference.", metavar="FORMAT"
        ),
    ] = "jsonl",
    title: Annotated[str, typer.Option(help="For the card.")] = "HIP kernels with proof",
    sample: Annotated[
        int | None, typer.Option(min=1, help="So many rows across kinds and families. [default: all]", metavar="N")
    ] = None,
    seed: Annotated[int, typer.Option(help="Draws the sample.")] = 0,
    json_mode: Json = False,
) -> int:
    """Write DATA in a format that trainers read (docs/dataset.md), whole or not at all."""
    from hipwright.api.data.export import export_dataset
    from hipwright.cli.display.dataset import print_export, print_problems

    output = CommandOutput(json_mode=json_mode)
    summary = export_dataset(data, out, form, title=title, sample=sample, seed=seed)
    skipped = [f"{one.where} {one.task}: {one.why}" for one in summary.skipped]
    print_problems(output, "bad rows are left out (skipped.jsonl)", skipped)
    if json_mode:
        output.result({**summary.to_dict(), "total": summary.total, "out": str(out)})
    else:
        print_export(output, summary, form, out)
    return exit_codes.FAILED if skipped else 0
