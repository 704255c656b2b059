"""`hipwright optimize`: search for a fast, verified program for one task."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hipwright.api import targets
from hipwright.cli import exit_codes
from hipwright.cli.options import (
    Counters,
    Fleet,
    Json,
    Llm,
    MaxTokens,
    MaxUsd,
    Place,
    Price,
    StopAt,
    Targets,
    TaskFile,
    Unsafe,
    Workers,
)
from hipwright.cli.output import CommandOutput
from hipwright.stopping import interrupted_code, note_resume

if TYPE_CHECKING:
    from hipwright.api.optimize import SearchRequest
    from hipwright.api.result import Result
    from hipwright.events import Listener


Out = Annotated[
    Path | None, typer.Option(help="Folder for program.py, model_new.py, result.json, report.html.", metavar="DIR")
]
Start = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Begin with this kernel: .py, .cu, .hip (docs/start.md).")
]


def optimize(
    task: TaskFile,
    target: Targets = None,
    budget: Annotated[int | None, typer.Option(min=1, help="Evaluations at most. [default: 40]")] = None,
    policy: Annotated[str | None, typer.Option(help="How to search (docs/search.md). [default: islands]")] = None,
    seed: Annotated[int | None, typer.Option(help="Decides every choice of the search. [default: 0]")] = None,
    out: Out = None,
    max_minutes: Annotated[float | None, typer.Option(min=0.01, help="Start no evaluation after this.")] = None,
    workers: Workers = None,
    start: Start = None,
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
    counters: Counters = None,
    stop_at: StopAt = None,
    models_away: Annotated[
        str | None,
        typer.Option(metavar="engine|pause", help="Without a model's answer: the engine goes on, or the run pauses."),
    ] = None,
    replay: Annotated[
        str | None,
        typer.Option(metavar="RUN|FILE", help="Do a recorded run again, offline: its models' answers are reused."),
    ] = None,
    fleet: Fleet = "",
    place: Place = "",
    unsafe: Unsafe = False,
    json_mode: Json = False,
) -> int:
    """Search for a fast, verified HIP program for TASK. Everything is kept in the archive as it happens."""
    from hipwright.api.fleet.choice import FleetChoice
    from hipwright.api.inputs import task_source
    from hipwright.api.models import ModelOptions
    from hipwright.api.optimize import SearchRequest, policy_name

    request = SearchRequest(
        task=task_source(task),
        targets=targets.choose(target) if target or not (resume or replay) else None,
        budget=budget,
        policy=policy_name(policy),
        seed=seed,
        resume=resume,
        replay=replay,
        models=ModelOptions.of(llm, llm_share, max_usd, max_tokens, price, without, models_away),
        start=start,
        counters=counters,
        stop_at=stop_at,
        max_minutes=max_minutes,
        workers=workers,
        unsafe=unsafe,
        fleet=FleetChoice(fleet, place),
    )
    return searched(request, task.name, out, json_mode=json_mode)


def searched(request: SearchRequest, title: str, out: Path | None, *, json_mode: bool) -> int:
    """Runs a search with its progress, writes its files, prints its result; returns the exit code.

    title: of the progress.
    """
    from hipwright.api.files import prepare_folder
    from hipwright.api.optimize import run_search
    from hipwright.cli.display.progress import SearchProgress

    if out is not None:
        prepare_folder(out)
    with SearchProgress(title) as progress:
        result = run_search(request, listener=_noting_the_run(progress, request, out))
    return _write_and_print(CommandOutput(json_mode=json_mode), result, request, out)


def _going_on(run: str, request: SearchRequest, out: Path | None) -> str:
    """The command that goes on with a run, where it was judged."""
    words = ["hipwright", "resume", run, *request.fleet.arguments()]
    return shlex.join(words + ([] if out is None else ["--out", str(out)]))


def _noting_the_run(listener: Listener, request: SearchRequest, out: Path | None) -> Listener:
    """The listener, which also notes how to go on with the run as soon as it has a name."""

    def note(kind: str, data: dict[str, Any]) -> None:
        if kind in ("run_started", "resumed") and "run" in data:
            note_resume(_going_on(data["run"], request, out))
        listener(kind, data)

    return note


def _write_and_print(output: CommandOutput, result: Result, request: SearchRequest, out: Path | None) -> int:
    """Writes the files, prints the result and returns the exit code."""
    if out is not None:
        result.write(out, listener=output.stages())
    if output.json_mode:
        output.result(result.summary(out))
    else:
        _print(output, result, out)
    if result.search.interrupted:
        away = result.search.reason == "provider"
        what = "paused, the models' provider stays away" if away else "interrupted"
        output.say(f"{what}: nothing is lost. Go on with: {_going_on(result.search.run, request, out)}")
        return exit_codes.INFRASTRUCTURE if away else interrupted_code()
    return 0 if result.passed else (exit_codes.of_evaluation(result.evaluation) or exit_codes.FAILED)


def _print(output: CommandOutput, result: Result, out: Path | None) -> None:
    from hipwright.api.result import FILES
    from hipwright.cli.display.tables import models_line, print_evaluation

    console = output.console()
    if result.evaluation is not None:
        known = (result.not_measured, result.gains, result.fused)
        print_evaluation(console, result.task.name, result.evaluation, *known)
    if result.note:
        console.print(result.note, style="yellow")
    if result.start is not None:
        console.print(result.start.sentence)
    found = result.search
    again = f"; verified {'again ' * (found.evaluations > 1)}on fresh secret inputs" if found.confirmed else ""
    console.print(f"run {found.run}: {found.evaluations} evaluations, stopped by {found.reason}{again}")
    if result.counters:
        console.print(_counters_line(result.counters))
    if result.saved:
        console.print(f"the roofline rule saved {result.saved['evaluations']} of {result.saved['of']} evaluations")
    if result.models is not None:
        console.print(models_line(result.models))
    if out is not None:
        console.print(f"in {out}: {', '.join(name for name in FILES if (out / name).exists())}")
    elif result.passed:
        console.print("--out DIR writes the program and its report", style="dim")


def _counters_line(counters: dict[str, Any]) -> str:
    """What was profiled, what it cost, and what limits the parent that was profiled last."""
    last = next((one for one in reversed(counters["limits"]) if one["source"] != "static"), counters["limits"][-1])
    cost = f"{counters['profiles']} profiles in {counters['seconds']:g} s, for {counters['evaluations']} evaluations"
    return (
        f"counters ({counters['source']}): {cost}; #{last['number']} is limited by {last['limit'] or 'nothing known'}"
    )
