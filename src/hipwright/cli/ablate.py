"""`hipwright ablate`: what each role is worth, at equal budget, with intervals (docs/ablation.md)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hipwright.cli.options import Json, Llm, MaxTokens, MaxUsd, Price, Targets, Unsafe
from hipwright.cli.output import CommandOutput
from hipwright.errors import BadInput
from hipwright.targets import CPU, REPRESENTATIVE

if TYPE_CHECKING:
    from hipwright.agents.ablation.arms import Ablation, ArmRow
    from hipwright.agents.ablation.run import Opened
    from hipwright.api.models import ModelOptions
    from hipwright.machine import Machine

DEFAULT_TARGETS = (REPRESENTATIVE.name, CPU.name)
SEED = 0  # of the verification inputs, the same for every arm: an evaluation is paid for once


def ablate(
    tasks: Annotated[list[Path], typer.Argument(help="Task files, or folders of them.", metavar="TASKS...")],
    arm: Annotated[
        str, typer.Option("--arms", help="Of single-shot, best-of-n, pipeline, plain; with commas.", metavar="A,B")
    ] = "single-shot,best-of-n,pipeline",
    without: Annotated[
        list[str] | None, typer.Option(help="Add the pipeline without this role; may be repeated.", metavar="ROLE")
    ] = None,
    policy: Annotated[
        list[str] | None, typer.Option(help="The pipeline's policy; further ones become arms.", metavar="P")
    ] = None,
    reference: Annotated[str, typer.Option(help="The arm that the others are compared with.")] = "pipeline",
    budget: Annotated[int, typer.Option(min=1, help="Evaluations of each arm on each task and seed.")] = 12,
    seeds: Annotated[int, typer.Option(min=1, help="Runs of each arm on each task.")] = 2,
    fill: Annotated[
        int, typer.Option(min=0, help="Evaluations a task before any arm: what the archive knows.", metavar="N")
    ] = 6,
    out: Annotated[Path, typer.Option(help="Archives and tables; the same folder goes on.", metavar="DIR")] = Path(
        "ablation"
    ),
    target: Targets = None,
    llm: Llm = None,
    max_usd: MaxUsd = None,
    max_tokens: MaxTokens = None,
    price: Price = None,
    unsafe: Unsafe = False,
    json_mode: Json = False,
) -> int:
    """Search every task by every arm at the same budget, and compare what they found. Without --llm no model is asked.

    Limits in dollars and tokens are of each run. --target: gfx942 and cpu without it.
    """
    from hipwright.agents.ablation import run as work
    from hipwright.agents.ablation.arms import arms
    from hipwright.api import models, targets
    from hipwright.api.optimize import policy_name
    from hipwright.machine import machine

    output = CommandOutput(json_mode=json_mode)
    asked = models.ModelOptions(llm=tuple(llm or ()), max_usd=max_usd, max_tokens=max_tokens, price=tuple(price or ()))
    models.check_options(models.ModelOptions(without=tuple(without or ())))
    plan = work.AblationPlan(
        tasks=_files(tasks),
        arms=arms(
            [name for name in arm.split(",") if name],
            without or [],
            [policy_name(name) or name for name in policy or []],
        ),
        reference=reference,
        targets=targets.choose(target or list(DEFAULT_TARGETS)),
        budget=budget,
        seeds=seeds,
        out=out,
        fill=fill,
        listener=lambda kind, data: output.say(str(data["text"])) if kind == "stage" else None,
        **_models(asked),
    )
    with machine(plan.targets, unsafe=unsafe) as made:
        found = work.ablate(plan, partial(_open, made))
    _leave(found, out)
    if json_mode:
        output.result(found.to_dict())
    else:
        show(output, found)
    return 0 if any(one.best is not None for one in found.outcomes) else 1


def _files(given: Sequence[Path]) -> list[Path]:
    """The task files, those of folders in order of their names. BadInput where there are none."""
    files = [file for path in given for file in (sorted(path.glob("*.py")) if path.is_dir() else [path])]
    if not files:
        raise BadInput("no task files", hint="name PyTorch task files, or folders of them")
    return files


def _models(asked: ModelOptions) -> dict[str, Any]:
    """What models add to a plan; nothing without any."""
    from hipwright.api import models

    if not asked.llm:
        return {}

    @contextmanager
    def source(archive: Any, run: Any, task: Any, engine: Any) -> Iterator[Any]:
        # arms whose every program is a model's have "llm" off for the policy, and need the models all the same
        settings = {**run.settings[models.SETTING], "llm": True}
        from msgspec.structs import replace

        told = replace(run, settings={**run.settings, models.SETTING: settings})
        with models.proposal_source(archive, told, task, engine, listener=lambda kind, data: None) as opened:
            yield opened

    return {"settings": models.check_options(asked), "source": source}


@contextmanager
def _open(machine: Machine, path: Path) -> Iterator[Opened]:
    from hipwright.agents.ablation.run import Opened
    from hipwright.capture.graph import Graph
    from hipwright.engine import space, write
    from hipwright.search import EngineSource

    with machine.open(path, seed=SEED, listener=lambda kind, data: None) as bench:
        task = bench.handle.task
        graph = Graph.from_dict(bench.handle.capture(task.workloads[0].name))
        yield Opened(task, EngineSource(space(graph), partial(write, graph)), bench.evaluator)


# ---------------------------------------------------------------- output


def _leave(found: Ablation, out: Path) -> None:
    import json

    from hipwright.agents.ablation.arms import csv

    (out / "ablation.json").write_text(json.dumps(found.to_dict(), indent=1) + "\n", encoding="utf-8")
    (out / "ablation.csv").write_text(csv(found), encoding="utf-8")


def show(output: CommandOutput, found: Ablation) -> None:
    """The table for people."""
    from rich.table import Table

    console = output.console()
    runs = f"{len(found.tasks)} tasks x {found.seeds} seeds, {found.budget} evaluations each"
    table = Table("arm", title=f"{runs}, on {' '.join(found.targets)}; score: {found.score_kind}", title_justify="left")
    places = _places(found.budget)
    headings = [f"best / {found.reference}'s", "95 %", "within 5 %", "after", *(f"at {n}" for n in places)]
    for heading in (*headings, "failed", "nothing"):
        table.add_column(heading, justify="right")
    for row in found.rows:
        table.add_row(*_cells(row, places))
    console.print(table)
    console.print("at n: best over the best known after n evaluations (geometric mean). after: median evaluations.")
    for note in found.notes:
        console.print(note)


def _places(budget: int) -> list[int]:
    """A few numbers of evaluations to show the curves at."""
    return sorted({1, max(budget // 4, 1), max(budget // 2, 1), budget})


def _cells(row: ArmRow, places: Sequence[int]) -> list[str]:
    low, high = row.interval or (None, None)
    curve = [row.excess[n - 1] if n <= len(row.excess) else None for n in places]
    return [
        row.arm,
        _number(row.ratio),
        f"{_number(low)} to {_number(high)}" if row.interval else "-",
        f"{row.reached} of {row.runs}",
        "never" if row.after is None else f"{row.after:g}",
        *(_number(value) for value in curve),
        str(row.failed),
        str(row.nothing),
    ]


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
