"""`hipwright bench`: a folder of tasks, with the engine's own programs, given candidates, or a model's samples."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hipwright.api import targets
from hipwright.cli import exit_codes
from hipwright.cli.options import Fleet, Json, MaxTokens, MaxUsd, Place, Price, Targets, Unsafe
from hipwright.cli.output import CommandOutput
from hipwright.errors import BadInput
from hipwright.stopping import interrupted_code

if TYPE_CHECKING:
    from hipwright.api.bench.models import MeasuredModels
    from hipwright.api.bench.plan import BenchRequest
    from hipwright.api.bench.report import BenchmarkReport
    from hipwright.evaluation.bench import BenchRow


class Mode(StrEnum):
    """The rule by which an output is right."""

    strict = "strict"
    kernelbench = "kernelbench"


class Agent(StrEnum):
    """How a model is asked for one sample."""

    single_shot = "single-shot"
    pipeline = "pipeline"


class AnswerForm(StrEnum):
    """The candidate form that a model is asked to write."""

    program = "program"
    modelnew = "modelnew"


Suite = Annotated[
    Path,
    typer.Argument(
        help="Folder of tasks in any known format; one task's file; or a suite's file or name.", metavar="DIR"
    ),
]
Candidates = Annotated[
    Path | None,
    typer.Option(
        help="Folder of candidates, named like their tasks. Without it the engine writes its own.", metavar="DIR"
    ),
]
Level = Annotated[int | None, typer.Option(help="Only DIR/levelN.", metavar="N")]
Format = Annotated[
    str | None, typer.Option("--format", help="The folder's format. [default: found by its layout]", metavar="NAME")
]
Gpus = Annotated[str, typer.Option(help="GPUs to use: all, or numbers like 0,1.")]
Rule = Annotated[Mode, typer.Option(help="strict, or KernelBench's own rule with the strict one beside it.")]
Out = Annotated[
    Path | None, typer.Option(help="Folder for rows, result.json, rows.csv, bench.html and programs.", metavar="DIR")
]
Resume = Annotated[bool, typer.Option("--resume", help="Go on with what --out already holds.")]
Budget = Annotated[int, typer.Option(min=1, help="Evaluations a task, for the engine; a sample, for the pipeline.")]
Seed = Annotated[
    int | None, typer.Option(help="Seed of the verification inputs; drawn after the candidates were read without it.")
]
Workers = Annotated[
    int | None,
    typer.Option(
        min=1,
        max=4096,
        help="Tasks at a time: on each GPU [default: 2], or where none is used [default: cores / 2]; of a fleet, its "
        "seats to use [default: all].",
    ),
]
Processes = Annotated[
    int | None,
    typer.Option(
        min=1,
        max=4096,
        help="Processes that share these tasks, on each GPU or in all: each writes and judges its own. [default: one "
        "for two tasks]",
    ),
]
CompileLimit = Annotated[
    float | None,
    typer.Option(
        min=0,
        metavar="S",
        help="Seconds in which torch.compile must give a task's baseline, else the row has none and says so. 0: any. "
        "[default: 60 with --budget 1, else 0]",
    ),
]
MeasuredLlm = Annotated[
    list[str] | None,
    typer.Option(
        "--llm",
        metavar="[ROLE=]PROVIDER:MODEL[@URL][*WEIGHT]",
        help="Measure this model: pass@k, fast_p@k, cost per correct kernel. Several are drawn by weight.",
    ),
]
Samples = Annotated[int, typer.Option(min=1, max=1000, help="Samples a task, with --llm.", metavar="K")]
AgentChoice = Annotated[
    Agent, typer.Option(help="One call a sample, or a short search of all roles a sample (--budget).")
]
FormChoice = Annotated[AnswerForm, typer.Option(help="What the model is asked to write.")]
Temperature = Annotated[float | None, typer.Option(min=0, max=2, help="Of every call. [default: the provider's]")]
Replay = Annotated[
    Path | None,
    typer.Option(help="Answers come from this recording (calls.jsonl of an --out): nothing is sent.", metavar="F"),
]


def bench(
    suite: Suite,
    candidates: Candidates = None,
    level: Level = None,
    form_name: Format = None,
    gpus: Gpus = "all",
    mode: Rule = Mode.strict,
    target: Targets = None,
    out: Out = None,
    resume: Resume = False,
    budget: Budget = 8,
    seed: Seed = None,
    workers: Workers = None,
    processes: Processes = None,
    compile_limit: CompileLimit = None,
    llm: MeasuredLlm = None,
    samples: Samples = 1,
    agent: AgentChoice = Agent.single_shot,
    form: FormChoice = AnswerForm.program,
    max_usd: MaxUsd = None,
    max_tokens: MaxTokens = None,
    price: Price = None,
    temperature: Temperature = None,
    replay: Replay = None,
    fleet: Fleet = "",
    place: Place = "",
    unsafe: Unsafe = False,
    json_mode: Json = False,
) -> int:
    """Judge a whole folder: compiled, correct, fast_p, means, coverage and the worst ten, resumable."""
    from hipwright.api.bench.plan import BenchRequest

    chosen = targets.choose(target)
    request = BenchRequest(
        suite=suite,
        targets=chosen,
        candidates=candidates,
        level=level,
        form=form_name,
        gpus=gpus,
        mode=mode.value,
        out=out,
        resume=resume,
        budget=budget,
        seed=seed,
        workers=workers,
        processes=processes,
        unsafe=unsafe,
        compile_limit=compile_limit,
        fleet=fleet,
        place=place,
        models=_models(candidates, llm, samples, agent, form, max_usd, max_tokens, price, temperature, replay),
    )
    return _run(CommandOutput(json_mode=json_mode), request)


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
) -> MeasuredModels | None:
    """The models to measure; None without --llm. BadInput for options that cannot be used together."""
    if not llm:
        if any((max_usd, max_tokens, price, temperature, replay, samples > 1)):
            raise BadInput("samples, limits, prices and recordings are a model's", hint="--llm PROVIDER:MODEL")
        return None
    if candidates is not None:
        raise BadInput("either candidates are given or a model writes them", hint="leave --candidates or --llm out")
    from hipwright.api.bench.models import measured_models

    return measured_models(
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


def _run(output: CommandOutput, request: BenchRequest) -> int:
    from hipwright.api.bench.run import run_benchmark
    from hipwright.cli.display.bench import BenchProgress, print_benchmark

    report = run_benchmark(request, listener=BenchProgress())
    if request.out is not None:
        report.write(request.out)
    if output.json_mode:
        output.result(report.summary() | ({"interrupted": True} if report.interrupted else {}))
    else:
        print_benchmark(output.console(), report)
    return _exit_code(output, report)


def _exit_code(output: CommandOutput, report: BenchmarkReport) -> int:
    if report.interrupted:
        again = "go on with --resume" if report.request.out is not None else "with --out DIR it could be resumed"
        output.say(f"interrupted after {len(report.rows)} of {report.expected} rows: nothing is lost; {again}")
        return interrupted_code()
    return exit_code(report.rows)


def exit_code(rows: Sequence[BenchRow]) -> int:
    """0 when all is done, 1 when the limits in dollars or tokens kept samples from being asked for, 3 for faults of the
    machine or a provider."""
    from hipwright.api.bench.samples import NOT_ASKED

    failed = [row for row in rows if not row.judged and row.fault != "task"]
    spent = [row for row in failed if row.asked is not None and row.asked.answer == NOT_ASKED]
    if not failed:
        return 0
    return exit_codes.FAILED if len(spent) == len(failed) else exit_codes.INFRASTRUCTURE
