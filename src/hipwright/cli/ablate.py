"""`hipwright ablate`: what each role is worth, at equal budget, with intervals (docs/ablation.md)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hipwright.cli.options import Counters, Fleet, Json, Llm, MaxTokens, MaxUsd, Place, Price, Targets, Unsafe
from hipwright.cli.output import CommandOutput
from hipwright.targets import CPU, REPRESENTATIVE

if TYPE_CHECKING:
    from rich.console import Console

    from hipwright.agents.ablation.arms import Ablation, ArmRow

DEFAULT_TARGETS = (REPRESENTATIVE.name, CPU.name)


Fill = Annotated[
    int, typer.Option(min=0, help="Evaluations a task before any arm: what the archive knows.", metavar="N")
]
AtATime = Annotated[
    int | None,
    typer.Option("--workers", min=1, max=64, help="Tasks at a time. [default: 1; of a fleet, its seats]"),
]


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
    fill: Fill = 6,
    workers: AtATime = None,
    out: Annotated[Path, typer.Option(help="Archives and tables; the same folder goes on.", metavar="DIR")] = Path(
        "ablation"
    ),
    target: Targets = None,
    llm: Llm = None,
    max_usd: MaxUsd = None,
    max_tokens: MaxTokens = None,
    price: Price = None,
    counters: Counters = None,
    fleet: Fleet = "",
    place: Place = "",
    unsafe: Unsafe = False,
    json_mode: Json = False,
) -> int:
    """Search every task by every arm at the same budget, and compare what they found. Without --llm no model is asked.

    Limits in dollars and tokens are of each run. --target: gfx942 and cpu without it.
    """
    from hipwright.api import targets
    from hipwright.api.ablate import ablation_plan, run_ablation
    from hipwright.api.fleet.choice import FleetChoice
    from hipwright.api.models import ModelOptions

    output = CommandOutput(json_mode=json_mode)
    on = targets.choose(target or list(DEFAULT_TARGETS))
    plan = ablation_plan(
        tasks,
        on,
        out,
        names=[name for name in arm.split(",") if name],
        without=without or [],
        policies=policy or [],
        reference=reference,
        budget=budget,
        seeds=seeds,
        fill=fill,
        workers=workers,
        counters=counters,
        options=ModelOptions.of(llm, None, max_usd, max_tokens, price),
        listener=output.stages(),
    )
    found = run_ablation(plan, fleet=FleetChoice(fleet, place), unsafe=unsafe)
    output.result(found.to_dict()) if json_mode else show(output.console(), found)
    return 0 if any(one.best is not None for one in found.outcomes) else 1


def show(console: Console, found: Ablation) -> None:
    """Prints a row for each arm, and the notes."""
    from hipwright.cli.display.fitted import plain_table

    runs = f"{len(found.tasks)} tasks x {found.seeds} seeds, {found.budget} evaluations each"
    title = f"{runs}, on {' '.join(found.targets)}; score: {found.score_kind}"
    places = _places(found.budget)
    headings = [f"best / {found.reference}'s", "95 %", "within 5 %", "after", *(f"at {n}" for n in places)]
    heads = ("arm", *headings, "failed", "nothing")
    console.print(plain_table(heads, [_cells(row, places) for row in found.rows], right=heads[1:], title=title))
    console.print("at n: best over the best known after n evaluations (geometric mean). after: median evaluations.")
    for note in found.notes:
        console.print(note)


def _places(budget: int) -> list[int]:
    """The numbers of evaluations at which the curves are shown."""
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
