"""`hipwright synth`: new tasks by mutation, composition and constraint, each self-checked, into a folder."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hipwright.cli import exit_codes
from hipwright.cli.display.synth import SynthProgress
from hipwright.cli.options import Json, MaxTokens, MaxUsd, Price, Unsafe
from hipwright.cli.output import CommandOutput
from hipwright.errors import BadInput, OutOfBudget, SandboxMissing

if TYPE_CHECKING:
    from hipwright.api.connection import ModelAccess, ModelConnection
    from hipwright.sandbox import Zygote
    from hipwright.synth.records import Made, Mode
    from hipwright.synth.run import DraftWriter, SynthesisRequest, Written
    from hipwright.synth.store import SynthStore

SHARE = 0.5


def synth(
    out: Annotated[Path, typer.Option(help="Folder for tasks.jsonl, tasks/NAME.py and what was dropped.")],
    count: Annotated[int, typer.Option(min=1, max=1_000_000, help="Tasks in the folder when it is done.")] = 100,
    mode: Annotated[
        list[str] | None,
        typer.Option(help="mutation, composition or constraint; several take turns. [default: composition]"),
    ] = None,
    parents: Annotated[
        list[Path] | None,
        typer.Option(
            "--from", metavar="DIR|FILE", help="Tasks to mutate; may be repeated. [default: hipwright's examples]"
        ),
    ] = None,
    constraint: Annotated[
        str | None, typer.Option(metavar="TEXT", help='Like "memory-bound, three outputs, bf16" (docs/synth.md).')
    ] = None,
    seed: Annotated[int, typer.Option(help="Decides every draw.")] = 0,
    against: Annotated[
        list[Path] | None,
        typer.Option(metavar="DIR", help="Drop what overlaps with the tasks of this folder; may be repeated."),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with what --out already holds.")] = False,
    workers: Annotated[
        int | None, typer.Option(min=1, max=64, help="Tasks at a time. [default: one a processor]")
    ] = None,
    llm: Annotated[
        list[str] | None,
        typer.Option(
            "--llm",
            metavar="[ROLE=]PROVIDER:MODEL[@URL][*WEIGHT]",
            help="A model that writes tasks beside the engine; may be repeated. Without it: the engine alone.",
        ),
    ] = None,
    llm_share: Annotated[
        float | None, typer.Option(min=0, max=1, help="Share of the drafts that models write. [default: 0.5]")
    ] = None,
    max_usd: MaxUsd = None,
    max_tokens: MaxTokens = None,
    price: Price = None,
    unsafe: Unsafe = False,
    json_mode: Json = False,
) -> int:
    """Make new tasks in the KernelBench form: each runs, proves something, and is described. No model is needed."""
    from hipwright.sandbox import SANDBOX_HINT, available

    wanted = _Wanted(
        out=out,
        count=count,
        modes=_modes(mode, parents, constraint),
        parents=tuple(parents or ()),
        constraint=constraint or "",
        seed=seed,
        against=tuple(against or ()),
        resume=resume,
        workers=workers or os.cpu_count() or 1,
        unsafe=unsafe,
        models=_models(llm, llm_share, max_usd, max_tokens, price),
        share=SHARE if llm_share is None else llm_share,
    )
    works, why = available()
    if not (works or unsafe):
        raise SandboxMissing(f"no sandbox: {why}", hint=SANDBOX_HINT)
    return _run(CommandOutput(json_mode=json_mode), wanted)


@dataclass(frozen=True)
class _Wanted:
    """What the command line asked for."""

    out: Path
    count: int
    modes: tuple[Mode, ...]
    parents: tuple[Path, ...]
    constraint: str
    seed: int
    against: tuple[Path, ...]
    resume: bool
    workers: int
    unsafe: bool
    models: ModelAccess | None
    share: float


# ---------------------------------------------------------------- what was asked for


def _modes(given: list[str] | None, parents: list[Path] | None, constraint: str | None) -> tuple[Mode, ...]:
    """In the order of the command line. An option of one mode alone asks for that mode."""
    from hipwright.synth.records import MODES

    names = [name.strip() for text in given or () for name in text.split(",")]
    if not given:
        names = [name for name, said in (("mutation", parents), ("constraint", constraint)) if said] or ["composition"]
    for name in names:
        if name not in MODES:
            raise BadInput(f"no mode {name!r}", hint=f"modes: {', '.join(MODES)}")
    for option, name, said in (("--from", "mutation", parents), ("--constraint", "constraint", constraint)):
        if said and name not in names:
            raise BadInput(f"{option} is of the {name} mode", hint=f"add --mode {name}, or leave it out")
    chosen = dict.fromkeys(names)
    return tuple(one for one in chosen if one in MODES)


def _models(
    llm: list[str] | None, share: float | None, max_usd: float | None, max_tokens: int | None, price: list[str] | None
) -> ModelAccess | None:
    """The LLM mind; None without --llm. BadInput for a limit without a model and a model that cannot be used."""
    if not llm:
        if any((share is not None, max_usd is not None, max_tokens, price)):
            raise BadInput("a share, a limit or a price without a model", hint="name one: --llm PROVIDER:MODEL")
        return None
    from hipwright.api.connection import model_access

    return model_access(llm, max_usd=max_usd, max_tokens=max_tokens, prices=price or ())


def _parents(wanted: _Wanted) -> dict[str, str]:
    """{name: source} of the tasks to mutate; empty where composed ones are."""
    from hipwright.api.files import read_text
    from hipwright.evaluation.suite import find_tasks

    if "mutation" not in wanted.modes:
        return {}
    found: dict[str, str] = {}
    for place in wanted.parents or _examples():
        if not place.exists():
            raise BadInput(f"no such task file or folder: {place}")
        files = [one.path for one in find_tasks(place)] if place.is_dir() else [place]
        for path in files:
            text = read_text(path, "task")
            if found.setdefault(path.stem, text) != text:
                raise BadInput(f"two tasks to mutate are called {path.stem}", hint="rename one of the files")
    return found


def _examples() -> tuple[Path, ...]:
    """hipwright's own, where it runs from its repository; an installed package has none."""
    root = Path(__file__).resolve().parents[3]
    there = (root / "pyproject.toml").is_file() and (root / "examples").is_dir()
    return (root / "examples",) if there else ()


# ---------------------------------------------------------------- the run


def composed(
    output: CommandOutput, out: Path, count: int, seed: int, *, workers: int, resume: bool, unsafe: bool
) -> bool:
    """Tasks by composition into a folder, for `dataset build --count`; False when interrupted."""
    wanted = _Wanted(
        out=out,
        count=count,
        modes=("composition",),
        parents=(),
        constraint="",
        seed=seed,
        against=(),
        resume=resume,
        workers=workers,
        unsafe=unsafe,
        models=None,
        share=SHARE,
    )
    made = _made(output, wanted)
    if made is not None and len(made.store.made) < count:
        output.say(f"only {len(made.store.made)} of {count} tasks: too many drafts in a row came to nothing")
    return made is not None


def _run(output: CommandOutput, wanted: _Wanted) -> int:
    made = _made(output, wanted)
    return exit_codes.INTERRUPTED if made is None else _hand_over(output, wanted, made)


@dataclass(frozen=True)
class _Made:
    """What a run left: all tasks, and how many of them it made in how long."""

    store: SynthStore
    new: int
    seconds: float


def _made(output: CommandOutput, wanted: _Wanted) -> _Made | None:
    """Make what is missing; None when interrupted."""
    from hipwright.synth.run import SynthesisRequest, open_zygotes, synthesise
    from hipwright.synth.store import SynthStore

    plan = SynthesisRequest(
        count=wanted.count,
        modes=wanted.modes,
        seed=wanted.seed,
        parents=_parents(wanted),
        constraint=wanted.constraint,
        llm_share=wanted.share,
    )
    if wanted.constraint and wanted.models is None:
        plan.wanted()  # words that nobody can read are said before anything is made
    start = time.monotonic()
    with ExitStack() as stack:
        progress = stack.enter_context(SynthProgress(wanted.count))
        overlaps = _overlaps(wanted, progress, stack)
        store = stack.enter_context(SynthStore(wanted.out, _settings(wanted, plan), resume=wanted.resume))
        if before := len(store.made):
            output.say(f"{before} of {wanted.count} tasks are there already")
        plan = stack.enter_context(_with_writer(wanted, plan, progress))
        try:
            zygotes = stack.enter_context(open_zygotes(wanted.workers, unsafe=wanted.unsafe))
            synthesise(plan, store, zygotes, listener=progress, overlaps=overlaps)
        except KeyboardInterrupt:
            store.sync()
            output.say(f"interrupted with {len(store.made)} of {wanted.count} tasks: --resume goes on")
            return None
        except BaseException:
            store.sync()
            raise
    return _Made(store, len(store.made) - before, time.monotonic() - start)


def _settings(wanted: _Wanted, plan: SynthesisRequest) -> dict[str, Any]:
    models = wanted.models.lineup.specs() if wanted.models is not None else []
    share = wanted.share if wanted.models is not None else 0.0
    against = [str(path.resolve()) for path in wanted.against]
    return {**plan.settings(), "llm": list(models), "llm_share": share, "against": against}


def _overlaps(wanted: _Wanted, listener: SynthProgress, stack: ExitStack) -> Callable[[Made], str] | None:
    """Why a task is too close to one of the folders, or "". BadInput for a folder without tasks."""
    if not wanted.against:
        return None
    from hipwright.dataset.overlap import guard

    return stack.enter_context(guard(wanted.against, workers=wanted.workers, unsafe=wanted.unsafe, listener=listener))


@contextmanager
def _with_writer(wanted: _Wanted, plan: SynthesisRequest, listener: SynthProgress) -> Iterator[SynthesisRequest]:
    """The plan with the LLM mind, whose calls are kept in out/calls.jsonl, so that --resume asks nothing twice."""
    from dataclasses import replace

    if wanted.models is None:
        yield plan
        return
    from hipwright.api.connection import open_connection

    with open_connection(wanted.models, wanted.out, listener) as line:
        yield replace(plan, writer=_writer(wanted.models, line, wanted.seed))


def _writer(models: ModelAccess, line: ModelConnection, seed: int) -> DraftWriter:
    """agents/task_generator as synthesis asks for it."""

    def write(index: int, mode: Mode, parents: Mapping[str, str], constraint: str, zygote: Zygote) -> Written:
        from hipwright.agents.task_generator import TaskGenerator
        from hipwright.synth.records import Draft, DroppedDraft

        def refused(stage: str, why: str, how: str) -> DroppedDraft:
            draft = Draft(name=f"llm_{index}", source="", mode=mode, mind="llm", seed=seed, detail=how)
            return DroppedDraft(draft=draft, stage=stage, why=why)

        role = TaskGenerator(zygote, seed, line.client, models.lineup)
        try:
            made, dropped = role.one(mode, index, parents, constraint)
        except OutOfBudget as error:
            return None, (refused("budget", error.message, mode),)
        tries = tuple(refused(one.stage, one.message, one.how) for one in dropped)
        if made is None:
            return None, tries or (refused("llm", "no answer", mode),)
        draft = Draft(
            name=f"llm_{mode}_{index}", source=made.task.source, mode=mode, mind="llm", seed=seed, detail=made.how
        )
        return draft, tries

    return write


# ---------------------------------------------------------------- what is shown


def _hand_over(output: CommandOutput, wanted: _Wanted, run: _Made) -> int:
    from hipwright.synth.describe import summary

    made, counts, new, seconds = run.store.made, run.store.counts, run.new, run.seconds
    told = {
        "status": "pass" if len(made) >= wanted.count else "short",
        "out": str(wanted.out),
        **counts,
        "new": new,
        "seconds": round(seconds, 1),
        "tasks_per_minute": round(60 * new / seconds, 1) if seconds else 0.0,
        **summary(made),
    }
    if output.json_mode:
        output.result(told)
    else:
        _print(output, told)
    if len(made) < wanted.count:
        output.say(f"only {len(made)} of {wanted.count} tasks: too many drafts in a row came to nothing ({wanted.out})")
        return 1
    return 0


def _print(output: CommandOutput, told: Mapping[str, Any]) -> None:
    def counted(values: Mapping[str, int]) -> str:
        return ", ".join(f"{name} {count}" for name, count in values.items()) or "none"

    out = output.console()
    out.print(f"{told['tasks']} tasks in {told['out']} ({told['tasks_per_minute']} a minute)")
    out.print(f"operators   {told['operators']} of {len(told['families'])} families")
    out.print(f"fused >= 3  {100 * told['fused_3_or_more']:.0f} %")
    for name in ("difficulty", "dtypes", "modes", "dropped"):
        out.print(f"{name:<11} {counted(told[name])}")
