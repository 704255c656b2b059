"""`hipwright train`: the stages of a recipe, the miniature, reports, and a server that judges."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from hipwright.api import targets
from hipwright.cli.options import Fleet, Json, Place, Unsafe
from hipwright.cli.output import CommandOutput
from hipwright.cli.shell.command import HelpfulCommand, WholeSummaries
from hipwright.stopping import interrupted_code

if TYPE_CHECKING:
    from hipwright.api.train import StageRequest
from hipwright.targets import CPU, TARGETS

Stage = Literal["sft", "dpo", "rl", "rft"]
MINI_TARGET_HELP = f"{TARGETS.gpu_choices(joint=', ')}, or {CPU.name} (static estimates). [default: the best here]"
app = typer.Typer(
    help="Train models on verified programs and on the evaluator's rewards: sft, dpo, rl, rft, mini, report, serve.",
    cls=WholeSummaries,
    rich_markup_mode=None,
)

RecipeName = Annotated[
    str, typer.Option("--recipe", help="A recipe by name, or a .toml file (docs/recipes.md).", metavar="NAME")
]
Data = Annotated[
    Path, typer.Option(help="A data set, its export, or for rl and rft any folder of tasks too.", metavar="DIR")
]
Out = Annotated[Path, typer.Option(help="Folder of the training.", metavar="DIR")]
Model = Annotated[
    str, typer.Option(help="Another model than the recipe's: a folder, or a name on the Hub.", metavar="MODEL")
]
Change = Annotated[
    list[str] | None,
    typer.Option(
        "--set", help="Change a value of the recipe, e.g. sft.epochs=1; may be repeated.", metavar="KEY=VALUE"
    ),
]
Resume = Annotated[bool, typer.Option("--resume", help="Go on from the last checkpoint in --out.")]
DeviceChange = Annotated[
    bool, typer.Option("--allow-device-change", help="Go on although the checkpoint was made on another device.")
]
Tracker = Annotated[
    list[str] | None,
    typer.Option("--tracker", help="tensorboard (the default), wandb, mlflow; may be repeated.", metavar="T"),
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Resolve, load, and do one step with a tiny random model, on the CPU.")
]
MachineRank = Annotated[int, typer.Option(min=0, help="Of several machines, which this is.", metavar="N")]
MainAddress = Annotated[str, typer.Option(help="Of several machines, the first one's address.", metavar="HOST")]


_STAGES: dict[Stage, str] = {
    "sft": "Fine-tune the recipe's model on the verified programs of a data set.",
    "dpo": "Prefer better programs to worse ones: the preference pairs of a data set, by DPO.",
    "rl": "Reinforce a model, such as the one that sft left, by what the evaluator finds of its answers.",
    "rft": "Rejection fine-tuning: imitate a model's own best verified answers, sampled and judged as in rl.",
}
"""The stages of a recipe with their help, in the order in which they are run."""


def _add_stage(stage: Stage, about: str) -> None:
    """Adds the command of a stage; all have the same options."""

    def command(
        recipe: RecipeName,
        data: Data,
        out: Out,
        model: Model = "",
        change: Change = None,
        resume: Resume = False,
        allow_device_change: DeviceChange = False,
        tracker: Tracker = None,
        dry_run: DryRun = False,
        machine_rank: MachineRank = 0,
        main_address: MainAddress = "",
        unsafe: Unsafe = False,
        json_mode: Json = False,
    ) -> int:
        from hipwright.api.train import StageRequest

        run = resume, allow_device_change, tracker, dry_run, unsafe, machine_rank, main_address
        request = StageRequest(stage, recipe, data, out, model, change or [], *run)
        return _train(CommandOutput(json_mode=json_mode), request)

    app.command(stage, cls=HelpfulCommand, help=about)(command)


for _stage, _about in _STAGES.items():
    _add_stage(_stage, _about)


@app.command("mini", cls=HelpfulCommand)
def mini(
    out: Out,
    target: Annotated[
        str | None,
        typer.Option(
            help=MINI_TARGET_HELP,
            metavar="T",
        ),
    ] = None,
    size: Annotated[
        Literal["small", "large"], typer.Option(help="Of the model: 7 or, on a GPU, 86 million parameters.")
    ] = "small",
    change: Change = None,
    minutes: Annotated[
        float | None, typer.Option(help="Stop in good order after so long; the same command with --resume goes on.")
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(
            help="Train and judge this seed alone: seeds side by side, a GPU each.",
            metavar="N",
        ),
    ] = None,
    resume: Resume = False,
    json_mode: Json = False,
) -> int:
    """Train the miniature from random weights, every arm, and evaluate it (docs/mini.md). --resume goes on."""
    from hipwright.api.train import train_mini
    from hipwright.cli.display.train import MiniProgress, print_mini

    output = CommandOutput(json_mode=json_mode)
    try:
        summary = train_mini(
            out,
            target,
            size=size,
            changes=change or [],
            minutes=minutes,
            seed=seed,
            resume=resume,
            listener=MiniProgress(output.say),
        )
    except KeyboardInterrupt:
        output.say("interrupted: --resume goes on")
        if json_mode:
            output.result({"interrupted": True, "exit_code": interrupted_code()})
        return interrupted_code()
    if json_mode:
        output.result({**summary, "out": str(out)})
    else:
        print_mini(output.console(), summary, out)
    return 0


@app.command("report", cls=HelpfulCommand)
def report(
    folder: Annotated[Path, typer.Argument(help="The folder of a training.", metavar="DIR")],
    json_mode: Json = False,
) -> int:
    """Write DIR/report.html: curves, tables by stage and split, examples side by side."""
    from hipwright.api.train import training_report

    output = CommandOutput(json_mode=json_mode)
    page, figures = training_report(folder)
    if json_mode:
        output.result({"page": str(page), **figures})
        return 0
    from hipwright.cli.display.train import tables

    console = output.console()
    for table in tables(folder):
        console.print(table)
    if figures["unfinished"]:
        console.print("not finished: it runs still, or --resume goes on")
    console.print(f"page: {page}")
    return 0


@app.command("serve", cls=HelpfulCommand)
def serve(
    data: Data,
    host: Annotated[str, typer.Option(help="Address to listen at.", metavar="HOST")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port to listen at.", metavar="N")] = 8417,
    target: Annotated[
        list[str] | None, typer.Option("--target", help="Judge on this target; may be repeated.", metavar="T")
    ] = None,
    reward: Annotated[str, typer.Option(help="hipwright, source or milestones.", metavar="NAME")] = "hipwright",
    turns: Annotated[int, typer.Option(min=1, max=8, help="Answers that an episode allows.", metavar="N")] = 1,
    split: Annotated[str, typer.Option(help="Serve the problems of this split.", metavar="SPLIT")] = "train",
    gpu: Annotated[
        list[int] | None, typer.Option(min=0, help="The number of a GPU that judges; may be repeated.", metavar="N")
    ] = None,
    queue: Annotated[int, typer.Option(min=1, help="Requests judged or waiting; more are told to come again.")] = 256,
    per_minute: Annotated[
        int, typer.Option("--per-minute", min=0, help="Requests a minute of one client address; 0: any.", metavar="N")
    ] = 6000,
    drain_s: Annotated[
        float, typer.Option("--drain-s", min=0, help="For requests in progress after SIGTERM.", metavar="S")
    ] = 60.0,
    fleet: Fleet = "",
    place: Place = "",
    unsafe: Unsafe = False,
) -> int:
    """Serve scores and the environment over HTTP, in OpenEnv's form; trainings judge here by `judge.urls`.

    Off the loopback it asks for the token in HIPWRIGHT_JUDGE_TOKEN.
    """
    from hipwright.api.train import ServeRequest, serve_environment
    from hipwright.train.service.limits import ServiceLimits

    chosen = targets.choose(target) if target else ()
    limits = ServiceLimits(queue=queue, per_minute=per_minute, drain_s=drain_s)
    request = ServeRequest(data, host, port, chosen, reward, turns, split, gpu or [], unsafe, limits, fleet, place)
    serve_environment(request, listener=CommandOutput().stages())
    return 0


def _train(output: CommandOutput, request: StageRequest) -> int:
    from hipwright.api.train import train_stage
    from hipwright.cli.display.train import print_stage

    try:
        summary = train_stage(request, listener=output.stages())
    except KeyboardInterrupt:
        out = shlex.quote(str(request.out))
        output.say(f"interrupted: --resume goes on from the last checkpoint; hipwright train report {out} reports it")
        if output.json_mode:
            output.result({"stage": request.stage, "interrupted": True, "exit_code": interrupted_code()})
        return interrupted_code()
    if output.json_mode:
        output.result(summary)
    else:
        print_stage(output.console(), summary)
    return 0
