"""`hipwright bench`: a folder of tasks, with the engine's own programs, given candidates, or a model's samples."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hipwright.api import targets
from hipwright.cli.options import Json, MaxTokens, MaxUsd, Price, Targets, Unsafe
from hipwright.cli.output import CommandOutput
from hipwright.errors import BadInput

if TYPE_CHECKING:
    from hipwright.cli.bench_llm import Models


class Mode(StrEnum):
    """By which rule an output is right."""

    strict = "strict"
    kernelbench = "kernelbench"


class Agent(StrEnum):
    """How a model is asked for one sample."""

    single_shot = "single-shot"
    pipeline = "pipeline"


class AnswerForm(StrEnum):
    """What a model is asked to write."""

    program = "program"
    modelnew = "modelnew"


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
    budget: Annotated[
        int, typer.Option(min=1, help="Evaluations a task, for the engine; a sample, for the pipeline.")
    ] = 8,
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
    llm: Annotated[
        list[str] | None,
        typer.Option(
            "--llm",
            metavar="[ROLE=]PROVIDER:MODEL[@URL][*WEIGHT]",
            help="Measure this model: pass@k, fast_p@k, cost per correct kernel. Several are drawn by weight.",
        ),
    ] = None,
    samples: Annotated[int, typer.Option(min=1, max=1000, help="Samples a task, with --llm.", metavar="K")] = 1,
    agent: Annotated[
        Agent, typer.Option(help="One call a sample, or a short search of all roles a sample (--budget).")
    ] = Agent.single_shot,
    form: Annotated[AnswerForm, typer.Option(help="What the model is asked to write.")] = AnswerForm.program,
    max_usd: MaxUsd = None,
    max_tokens: MaxTokens = None,
    price: Price = None,
    temperature: Annotated[
        float | None, typer.Option(min=0, max=2, help="Of every call. [default: the provider's]")
    ] = None,
    replay: Annotated[
        Path | None,
        typer.Option(help="Answers come from this recording (calls.jsonl of an --out): nothing is sent.", metavar="F"),
    ] = None,
    unsafe: Unsafe = False,
    json_mode: Json = False,
) -> int:
    """Judge a whole folder: compiled, correct, fast_p, means, coverage and the worst ten, resumable."""
    from hipwright.api.files import prepare_folder
    from hipwright.cli import benching

    wanted = benching.BenchRequest(
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
        models=_models(candidates, llm, samples, agent, form, max_usd, max_tokens, price, temperature, replay),
    )
    if out is not None:
        prepare_folder(out)
    return benching.run(CommandOutput(json_mode=json_mode), wanted)


def _models(
    candidates: Path | None,
    llm: list[str] | None,
    samples: int,
    agent: Agent,
    form: AnswerForm,
    max_usd: float | None,
    max_tokens: int | None,
    price: list[str] | None,
    temperature: float | None,
    replay: Path | None,
) -> Models | None:
    """What is to be measured; None without --llm. BadInput for options that make no sense together."""
    if not llm:
        if any((max_usd, max_tokens, price, temperature, replay, samples > 1)):
            raise BadInput("samples, limits, prices and recordings are a model's", hint="--llm PROVIDER:MODEL")
        return None
    if candidates is not None:
        raise BadInput("either candidates are given or a model writes them", hint="leave --candidates or --llm out")
    from hipwright.cli import bench_llm

    return bench_llm.models(
        llm,
        samples=samples,
        agent=agent.value,
        form=form.value,
        max_usd=max_usd,
        max_tokens=max_tokens,
        prices=price or (),
        temperature=temperature,
        replay=replay,
    )
