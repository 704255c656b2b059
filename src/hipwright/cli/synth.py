"""`hipwright synth`: new tasks by mutation, composition and constraint, each self-checked, into a folder."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hipwright.cli import exit_codes
from hipwright.cli.options import Json, MaxTokens, MaxUsd, Price, Unsafe
from hipwright.cli.output import CommandOutput
from hipwright.errors import BadInput
from hipwright.stopping import interrupted_code

if TYPE_CHECKING:
    from hipwright.api.data.synth import SynthesisJob
    from hipwright.api.model_access import ModelAccess

Out = Annotated[Path, typer.Option(help="Folder for tasks.jsonl, tasks/NAME.py and what was dropped.")]
Count = Annotated[int, typer.Option(min=1, max=1_000_000, help="Tasks in the folder when it is done.")]
ModeNames = Annotated[
    list[str] | None,
    typer.Option("--mode", help="mutation, composition or constraint; several take turns. [default: composition]"),
]
Parents = Annotated[
    list[Path] | None,
    typer.Option(
        "--from", metavar="DIR|FILE", help="Tasks to mutate; may be repeated. [default: hipwright's examples]"
    ),
]
Constraint = Annotated[
    str | None, typer.Option(metavar="TEXT", help='Like "memory-bound, three outputs, bf16" (docs/synth.md).')
]
Seed = Annotated[int, typer.Option(help="Decides every draw.")]
Against = Annotated[
    list[Path] | None,
    typer.Option(metavar="DIR", help="Drop what overlaps with the tasks of this folder; may be repeated."),
]
Resume = Annotated[bool, typer.Option("--resume", help="Go on with what --out already holds.")]
Workers = Annotated[int | None, typer.Option(min=1, max=64, help="Tasks at a time. [default: one a processor]")]
WriterLlm = Annotated[
    list[str] | None,
    typer.Option(
        "--llm",
        metavar="[ROLE=]PROVIDER:MODEL[@URL][*WEIGHT]",
        help="A model that writes tasks beside the engine; may be repeated. Without it: the engine alone.",
    ),
]
LlmShare = Annotated[
    float | None, typer.Option(min=0, max=1, help="Share of the drafts that models write. [default: 0.5]")
]


def synth(
    out: Out,
    count: Count = 100,
    mode: ModeNames = None,
    parents: Parents = None,
    constraint: Constraint = None,
    seed: Seed = 0,
    against: Against = None,
    resume: Resume = False,
    workers: Workers = None,
    llm: WriterLlm = None,
    llm_share: LlmShare = None,
    max_usd: MaxUsd = None,
    max_tokens: MaxTokens = None,
    price: Price = None,
    unsafe: Unsafe = False,
    json_mode: Json = False,
) -> int:
    """Make new tasks in the KernelBench form: each runs, proves something, and is described. No model is needed."""
    from hipwright.api.data.synth import SHARE, SynthesisJob, chosen_modes

    names = [name.strip() for text in mode or () for name in text.split(",")]
    job = SynthesisJob(
        out=out,
        count=count,
        modes=chosen_modes(names, parents, constraint),
        parents=tuple(parents or ()),
        constraint=constraint or "",
        seed=seed,
        against=tuple(against or ()),
        resume=resume,
        workers=workers or os.cpu_count() or 1,
        unsafe=unsafe,
        models=_access(llm, llm_share, max_usd, max_tokens, price),
        share=SHARE if llm_share is None else llm_share,
    )
    return _run(CommandOutput(json_mode=json_mode), job)


def _access(
    llm: list[str] | None, share: float | None, max_usd: float | None, max_tokens: int | None, price: list[str] | None
) -> ModelAccess | None:
    """The models that write; None without --llm. BadInput for a limit without a model, and an unusable model."""
    if not llm:
        if any((share is not None, max_usd is not None, max_tokens, price)):
            raise BadInput("a share, a limit or a price without a model", hint="name one: --llm PROVIDER:MODEL")
        return None
    from hipwright.api.model_access import model_access

    return model_access(llm, max_usd=max_usd, max_tokens=max_tokens, prices=price or ())


def _run(output: CommandOutput, job: SynthesisJob) -> int:
    from hipwright.api.data.synth import run_synthesis
    from hipwright.cli.display.synth import SynthProgress

    with SynthProgress(job.count) as progress:
        result = run_synthesis(job, listener=progress)
    if result.interrupted:
        output.say(f"interrupted with {len(result.made)} of {job.count} tasks: --resume goes on")
        code = interrupted_code()
        if output.json_mode:
            output.result({"interrupted": True, "tasks": len(result.made), "exit_code": code})
        return code
    summary = result.summary()
    if output.json_mode:
        output.result(summary)
    else:
        _print(output, summary)
    if result.short:
        output.say(
            f"only {len(result.made)} of {job.count} tasks: too many drafts in a row came to nothing ({job.out})"
        )
        return exit_codes.FAILED
    return 0


def _print(output: CommandOutput, summary: Mapping[str, Any]) -> None:
    def counted(values: Mapping[str, int]) -> str:
        return ", ".join(f"{name} {count}" for name, count in values.items()) or "none"

    console = output.console()
    console.print(f"{summary['tasks']} tasks in {summary['out']} ({summary['tasks_per_minute']} a minute)")
    console.print(f"operators   {summary['operators']} of {len(summary['families'])} families")
    console.print(f"fused >= 3  {100 * summary['fused_3_or_more']:.0f} %")
    for name in ("difficulty", "dtypes", "modes", "dropped"):
        console.print(f"{name:<11} {counted(summary[name])}")
