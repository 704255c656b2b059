"""The work behind `hipwright train`: recipes resolved, stages started, what came of them told."""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hipwright.api.plain import clean
from hipwright.cli import exit_codes
from hipwright.cli.output import CommandOutput
from hipwright.errors import BadInput

if TYPE_CHECKING:
    from hipwright.train.recipe import Stage

EXTRA = ("trl", "transformers", "peft", "accelerate", "datasets")
"""What the extra `train` brings that every stage imports."""
MINI = ("torch", "transformers")
"""What the miniature needs of it."""
RUN = "run.json"


@dataclass(frozen=True)
class StageRequest:
    """What the command line says of a stage."""

    stage: Stage
    recipe: str
    data: Path
    out: Path
    model: str
    changes: Sequence[str]
    resume: bool
    allow_device_change: bool
    trackers: Sequence[str] | None
    dry: bool
    unsafe: bool


def run_stage(output: CommandOutput, wanted: StageRequest, rank: int, address: str) -> int:
    """Do a stage; returns the exit code."""
    from hipwright.api.files import prepare_folder
    from hipwright.train import recipe as recipes
    from hipwright.train.launch import NodeRank, start
    from hipwright.train.work import StageWork

    chosen = recipes.load(wanted.recipe, wanted.changes)
    if not wanted.data.exists():
        raise BadInput(f"no such folder of data: {wanted.data}", hint="`hipwright dataset build` makes one")
    _installed()
    if rank and not address:
        raise BadInput("--machine-rank without --main-address", hint="the address of the machine with rank 0")
    with ExitStack() as stack:
        out = (
            Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="hipwright-dry-")))
            if wanted.dry
            else wanted.out
        )
        prepare_folder(out)
        work = StageWork(
            stage=wanted.stage,
            recipe=chosen,
            data=str(wanted.data),
            out=str(out),
            model=wanted.model,
            trackers=tuple(wanted.trackers) if wanted.trackers is not None else None,
            resume=wanted.resume,
            allow_device_change=wanted.allow_device_change,
            unsafe=wanted.unsafe,
            dry=wanted.dry,
        )
        if not wanted.dry:
            facts = {"recipe": chosen.name, "model": wanted.model or chosen.model.name, "data": str(wanted.data)}
            stack.enter_context(_noted(out, facts))
        try:
            done = start(work, output.say, NodeRank(rank, address))
        except KeyboardInterrupt:
            output.say("interrupted: --resume goes on from the last checkpoint")
            if output.json_mode:
                output.result({"stage": wanted.stage, "interrupted": True, "exit_code": exit_codes.INTERRUPTED})
            return exit_codes.INTERRUPTED
    told = {"recipe": chosen.name, "out": None if wanted.dry else str(wanted.out), "dry_run": wanted.dry, **done}
    if wanted.dry:
        told["model"] = None  # it was random, and is gone
        if told["command"]:
            told["command"] = told["command"].replace(str(out), str(wanted.out.absolute()))
    if output.json_mode:
        output.result(told)
    else:
        _say(output, told)
    return 0


def _installed(packages: Sequence[str] = EXTRA) -> None:
    missing = [name for name in packages if find_spec(name) is None]
    if missing:
        raise BadInput(f"training needs {', '.join(missing)}", hint="pip install 'hipwright[train]'")


@contextmanager
def _noted(out: Path, facts: Mapping[str, Any]) -> Iterator[None]:
    """What the report names the training by. A refused training leaves the note as it was, or none."""
    from hipwright.api.files import write_file

    note = out / RUN
    before = note.read_text(encoding="utf-8") if note.exists() else None
    write_file(note, json.dumps(dict(facts), indent=1, sort_keys=True) + "\n")
    try:
        yield
    except BadInput:
        if before is None:
            note.unlink(missing_ok=True)
        else:
            write_file(note, before)
        raise


def _say(output: CommandOutput, told: dict[str, Any]) -> None:
    table = output.console()
    if told["dry_run"]:
        table.print(
            f"dry run of {told['recipe']} {told['stage']}: one step of a tiny random model, {told['seconds']} s"
        )
    else:
        table.print(f"{told['recipe']} {told['stage']}: {told.get('steps', '?')} steps; {told['out']}")
    if told.get("command"):
        table.print(f"command: {clean(told['command'])}")
    for name, value in told.items():
        if isinstance(value, float):
            table.print(f"{name}: {value:.4g}")
        elif isinstance(value, dict) and value:
            table.print(f"{name}: " + ", ".join(f"{key} {figure:.4g}" for key, figure in value.items()))
    if told.get("model"):
        table.print(f"model: {told['model']}")


# ---------------------------------------------------------------- the others


def run_mini(
    output: CommandOutput,
    out: Path,
    target: str | None,
    changes: Sequence[str],
    minutes: float | None,
    seed: int | None = None,
    *,
    resume: bool,
) -> int:
    """The miniature, from random weights to its evaluation; as far as the minutes go."""
    import msgspec

    from hipwright.api.files import prepare_folder
    from hipwright.train.judging.settings import targets_of
    from hipwright.train.mini.settings import MiniSettings, preset
    from hipwright.train.mini.stages import run
    from hipwright.train.recipe import Judging, change, refuse_unknown

    _installed(MINI)
    plain = preset(target or targets_of(Judging())[0]).to_dict()
    for one in changes:
        change(plain, one)
    refuse_unknown(plain, MiniSettings, "hipwright train mini", "")
    try:
        settings = msgspec.convert(plain, MiniSettings)
    except msgspec.ValidationError as error:
        raise BadInput(f"hipwright train mini: {error}", hint="docs/mini.md lists names and types") from error
    prepare_folder(out)

    begun = time.monotonic()

    def listen(kind: str, told: dict[str, Any]) -> None:
        text = told.get("text") or ", ".join(f"{name} {_short(value)}" for name, value in told.items())
        output.say(f"[{time.monotonic() - begun:6.1f}s] {text}")

    try:
        done = run(out, settings, resume=resume, listener=listen, minutes=minutes, seed=seed)
    except KeyboardInterrupt:
        output.say("interrupted: --resume goes on")
        if output.json_mode:
            output.result({"interrupted": True, "exit_code": exit_codes.INTERRUPTED})
        return exit_codes.INTERRUPTED
    if output.json_mode:
        output.result({**done, "out": str(out)})
        return 0
    table = output.console()
    for seed, models in done["models"].items():
        for arm, path in models.items():
            table.print(f"seed {seed}, {arm}: {path}")
    if done["finished"] and done["evaluation"]:
        table.print(f"report: {out / 'report.html'}")
    elif done["finished"]:
        table.print("trained; evaluated by the same command without --seed, once all seeds are")
    else:
        table.print("not finished: the same command with --resume goes on")
    return 0


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def run_report(output: CommandOutput, folder: Path) -> int:
    """The page of a training."""
    from hipwright.report import train_page

    if not folder.is_dir():
        raise BadInput(f"no such folder: {folder}", hint="name what --out named")
    page = train_page.write(folder)
    if output.json_mode:
        output.result({"page": str(page), **train_page.figures(folder)})
        return 0
    from hipwright.cli.display.train import tables

    screen = output.console()
    for table in tables(folder):
        screen.print(table)
    screen.print(f"page: {page}")
    return 0


def run_serve(
    output: CommandOutput,
    data: Path,
    host: str,
    port: int,
    targets: Sequence[str],
    reward: str,
    *,
    turns: int,
    split: str,
    gpus: Sequence[int],
    unsafe: bool,
) -> int:
    """The environment over HTTP, until it is interrupted."""
    from hipwright.api.targets import choose
    from hipwright.train.adapters import openenv
    from hipwright.train.data import problems
    from hipwright.train.judging import serve
    from hipwright.train.judging.settings import TOKEN, EnvironmentSettings, environment
    from hipwright.train.recipe import Judging, RewardSettings

    missing = [name for name in ("starlette", "uvicorn", "websockets") if find_spec(name) is None]
    if missing:
        raise BadInput(f"serving needs {', '.join(missing)}", hint="pip install 'hipwright[train]'")
    known = problems(data)
    if split not in known:
        raise BadInput(f"{data} has no split {split!r}", hint=f"splits: {', '.join(known)}")
    judge = Judging(targets=choose(list(targets)) if targets else ())
    opening = EnvironmentSettings(reward=RewardSettings(name=reward), judge=judge, unsafe=unsafe)
    with environment(opening, gpus) as opened:
        arena = openenv.EpisodeStore(opened, known[split], turns=turns)
        output.say(
            f"{len(known[split])} problems at http://{host}:{port}, judged on {opened.judge.device or 'the processor'}"
        )
        serve.serve(openenv.app(arena), host, port, os.environ.get(TOKEN, ""))
    return 0
