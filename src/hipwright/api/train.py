"""Training: stages of a recipe, the miniature, a training's report, and the environment server (docs/training.md)."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hipwright.api.files import prepare_folder, write_file
from hipwright.errors import BadInput
from hipwright.events import Listener, silent

if TYPE_CHECKING:
    from hipwright.train.mini.settings import MiniSettings, Size
    from hipwright.train.recipe import Stage
    from hipwright.train.service.limits import ServiceLimits

STAGE_PACKAGES = ("trl", "transformers", "peft", "accelerate", "datasets")
"""The packages of the extra `train` that every stage imports."""
MINI_PACKAGES = ("torch", "transformers")
SERVE_PACKAGES = ("starlette", "uvicorn", "websockets")
NOTE = "run.json"


@dataclass(frozen=True)
class StageRequest:
    """A stage of a recipe to train.

    recipe: a name, or a .toml file; changes: KEY=VALUE. model: another folder or name than the recipe's. dry: one
    update of a tiny random model, which is not saved; a launcher's files stay in `out`. rank, address: with several
    machines, this one's number and the first one's address.
    """

    stage: Stage
    recipe: str
    data: Path
    out: Path
    model: str = ""
    changes: Sequence[str] = ()
    resume: bool = False
    allow_device_change: bool = False
    trackers: Sequence[str] | None = None
    dry: bool = False
    unsafe: bool = False
    rank: int = 0
    address: str = ""


def train_stage(request: StageRequest, *, listener: Listener = silent) -> dict[str, Any]:
    """Trains a stage; returns the object that `train sft --json` prints.

    Events for the listener: "note" {text}. Raises BadInput and InfrastructureError as the stage does; after
    KeyboardInterrupt the last checkpoint remains.
    """
    from hipwright.train import recipe as recipes
    from hipwright.train.launch import launch_stage
    from hipwright.train.launchers.command import NodeRank
    from hipwright.train.stages.stage_work import StageWork

    chosen = recipes.load(request.recipe, request.changes)
    if not request.data.exists():
        raise BadInput(f"no such folder of data: {request.data}", hint="`hipwright dataset build` makes one")
    _require(STAGE_PACKAGES, "training")
    if request.rank and not request.address:
        raise BadInput("--machine-rank without --main-address", hint="the address of the machine with rank 0")
    with ExitStack() as stack:
        out = request.out
        if not request.dry or chosen.launch.of(request.stage) != "here":
            prepare_folder(out)
        work = StageWork(
            stage=request.stage,
            recipe=chosen,
            data=str(request.data),
            out=str(out),
            model=request.model,
            trackers=tuple(request.trackers) if request.trackers is not None else None,
            resume=request.resume,
            allow_device_change=request.allow_device_change,
            unsafe=request.unsafe,
            dry=request.dry,
        )
        if not request.dry:
            facts = {"recipe": chosen.name, "model": request.model or chosen.model.name, "data": str(request.data)}
            stack.enter_context(_noted(out, facts))

        def say(text: str) -> None:
            listener("note", {"text": text})

        watch = "" if request.dry or work.launcher == "verl" else _watch_command(out, work.trackers)
        if watch:
            say(f"curves: {watch}")
        done = launch_stage(work, say, NodeRank(request.rank, request.address))
    return {**_stage_summary(request, chosen.name, done), "watch": watch or None}


def _watch_command(out: Path, trackers: Sequence[str] | None) -> str:
    """The command line that shows the training's TensorBoard files; "" where none are written."""
    from hipwright.train.log import DEFAULT_TRACKERS

    name = "tensorboard"
    if name not in (DEFAULT_TRACKERS if trackers is None else trackers) or find_spec(name) is None:
        return ""
    return shlex.join([name, "--logdir", str(out / name)])


def _stage_summary(request: StageRequest, recipe: str, done: Mapping[str, Any]) -> dict[str, Any]:
    summary = {"recipe": recipe, "out": None if request.dry else str(request.out), "dry_run": request.dry, **done}
    if request.dry:
        summary["model"] = None  # it was random and is not saved
    return summary


def _require(packages: Sequence[str], what: str) -> None:
    """Raises BadInput where packages of the extra `train` are missing."""
    missing = [name for name in packages if find_spec(name) is None]
    if missing:
        raise BadInput(f"{what} needs {', '.join(missing)}", hint="pip install 'hipwright[train]'")


@contextmanager
def _noted(out: Path, facts: Mapping[str, Any]) -> Iterator[None]:
    """Writes the facts by which a report names the training. A training that is rejected changes nothing."""
    note = out / NOTE
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


# ---------------------------------------------------------------- the miniature


def train_mini(
    out: Path,
    target: str | None = None,
    *,
    size: Size = "small",
    changes: Sequence[str] = (),
    minutes: float | None = None,
    seed: int | None = None,
    resume: bool = False,
    listener: Listener = silent,
) -> dict[str, Any]:
    """Trains the miniature from random weights, every arm, and evaluates it, within the minutes (docs/mini.md).

    target: the best of this machine without one. size: of the model (settings.py: preset). seed: only that one.
    Returns {models, finished, evaluation, ...}.
    """
    from hipwright.train.mini.stages import run

    _require(MINI_PACKAGES, "training")
    settings = mini_settings(target, changes, size)
    prepare_folder(out)
    return run(out, settings, resume=resume, listener=listener, minutes=minutes, seed=seed)


def mini_settings(target: str | None, changes: Sequence[str], size: Size = "small") -> MiniSettings:
    """The preset of a target and size with changes KEY=VALUE. Raises BadInput for unknown keys and wrong types."""
    import msgspec

    from hipwright.train.judging.settings import judge_targets
    from hipwright.train.mini.settings import MiniSettings, preset
    from hipwright.train.recipe import JudgeSettings, apply_change, refuse_unknown

    plain = preset(target or judge_targets(JudgeSettings())[0], size).to_dict()
    for one in changes:
        apply_change(plain, one)
    refuse_unknown(plain, MiniSettings, "hipwright train mini", "")
    try:
        return msgspec.convert(plain, MiniSettings)
    except msgspec.ValidationError as error:
        raise BadInput(f"hipwright train mini: {error}", hint="docs/mini.md lists names and types") from error


# ---------------------------------------------------------------- reports and serving


def training_report(folder: Path) -> tuple[Path, dict[str, Any]]:
    """Writes report.html into a training's folder; returns its path, and the figures."""
    from hipwright.report import train_page

    if not folder.is_dir():
        raise BadInput(f"no such folder: {folder}", hint="name what --out named")
    return train_page.write(folder), train_page.figures(folder)


@dataclass(frozen=True)
class ServeRequest:
    """The environment to serve over HTTP. split: of the problems; turns: answers an episode; gpus: that judge.

    limits: of what is taken at once; None for the defaults. fleet, place: as of `JudgeSettings`.
    """

    data: Path
    host: str = "127.0.0.1"
    port: int = 8417
    targets: tuple[str, ...] = ()
    reward: str = "hipwright"
    turns: int = 1
    split: str = "train"
    gpus: Sequence[int] = ()
    unsafe: bool = False
    limits: ServiceLimits | None = None
    fleet: str = ""
    place: str = ""


def serve_environment(request: ServeRequest, *, listener: Listener = silent) -> None:
    """Serves until it is interrupted. Events for the listener: "note" {text} when it listens."""
    from hipwright.train.adapters import openenv
    from hipwright.train.data import problems
    from hipwright.train.judging.settings import TOKEN_VARIABLE, EnvironmentSettings, new_environment
    from hipwright.train.recipe import JudgeSettings, RewardSettings

    if not request.data.exists():
        raise BadInput(f"no such folder of data: {request.data}")
    _require(SERVE_PACKAGES, "serving")
    from hipwright.train.service import server

    token = os.environ.get(TOKEN_VARIABLE, "")
    server.check_host(request.host, token)
    known = problems(request.data)
    if request.split not in known:
        raise BadInput(f"{request.data} has no split {request.split!r}", hint=f"splits: {', '.join(known)}")
    settings = EnvironmentSettings(
        reward=RewardSettings(name=request.reward),
        judge=JudgeSettings(targets=tuple(request.targets), fleet=request.fleet, place=request.place),
        unsafe=request.unsafe,
    )
    chosen, place = known[request.split], f"http://{request.host}:{request.port}"
    with new_environment(settings, request.gpus) as opened:
        episodes = openenv.EpisodeStore(opened, chosen, turns=request.turns)
        where = opened.judge.device or "the processor"
        listener("note", {"text": f"{len(chosen)} problems at {place}, judged on {where}"})
        server.serve(openenv.app(episodes), request.host, request.port, token, request.limits)
