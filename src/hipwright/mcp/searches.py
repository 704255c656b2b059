"""The tools that search: one task's program, and a whole model. Each is the command of that name in a child process.

With an archive of the session (`--keep`) the runs stay in it; else in a folder that is removed.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from hipwright.errors import BadInput
from hipwright.events import Listener
from hipwright.mcp import files
from hipwright.mcp.arguments import Reply, SearchContext, TaskPath, ToolArguments

SUFFIX = {"program": ".py", "modelnew": ".py", "cuda": ".cu", "hip": ".hip"}
Budget = Annotated[int, msgspec.Meta(ge=1, le=500, description="Evaluations at most.")]
Minutes = Annotated[float, msgspec.Meta(gt=0, le=240, description="No evaluation begins after so many minutes.")]


class Optimize(ToolArguments, frozen=True, kw_only=True):
    """Arguments of `optimize`."""

    task: TaskPath
    budget: Budget = 20
    minutes: Minutes = 10.0


class StartFrom(ToolArguments, frozen=True, kw_only=True):
    """Arguments of start_from."""

    task: TaskPath
    kernel: Annotated[str, msgspec.Meta(description="The whole text of the kernel.")]
    language: Annotated[
        Literal["program", "modelnew", "cuda", "hip"],
        msgspec.Meta(description="A hipwright program, a ModelNew file, or CUDA or HIP source with its launch."),
    ] = "program"
    budget: Budget = 20
    minutes: Minutes = 10.0


class WholeModel(ToolArguments, frozen=True, kw_only=True):
    """Arguments of model."""

    script: Annotated[
        str, msgspec.Meta(description="A Python file with a model, FILE.py:FACTORY, or a config.json, below the root.")
    ]
    budget: Budget = 20
    only_profile: Annotated[bool, msgspec.Meta(description="Rank the regions and change nothing.")] = False
    minutes: Minutes = 10.0


def optimize(context: SearchContext, arguments: Optimize, listener: Listener) -> Reply:
    """Searches for a fast, verified program of a task, as `hipwright optimize` does."""
    path = files.task_file(context.root, arguments.task)
    return _search(context, path, arguments.budget, arguments.minutes, [], listener)


def start_from(context: SearchContext, arguments: StartFrom, listener: Listener) -> Reply:
    """A search that begins with a kernel, which is judged first and compared with the winner."""
    path = files.task_file(context.root, arguments.task)
    if len(arguments.kernel.encode("utf-8", "surrogatepass")) > files.MOST_BYTES:
        raise BadInput("the kernel is larger than 1 MiB")
    with tempfile.TemporaryDirectory(prefix="hipwright-start-") as folder:
        start = Path(folder) / f"start{SUFFIX[arguments.language]}"
        start.write_text(arguments.kernel, encoding="utf-8")
        return _search(context, path, arguments.budget, arguments.minutes, ["--start", str(start)], listener)


def model(context: SearchContext, arguments: WholeModel, listener: Listener) -> Reply:
    """Ranks a whole model's regions and puts verified programs in their place, as `hipwright model` does."""
    name, colon, factory = arguments.script.partition(":")
    path = files.inside(context.root, name, "model")
    if not path.is_file():
        raise BadInput(f"no such file: {name}", hint="a Python file with a model, or a config.json, below the root")
    words = ["model", f"{path}{colon}{factory}", *_targets(context)]
    if arguments.only_profile:
        words.append("--only-profile")
    else:
        words += ["--budget", str(arguments.budget), "--max-minutes", str(arguments.minutes)]
    with _home(context) as home:
        found = context.child.run(words, home, listener)
    return Reply(_model_text(found), found)


def _search(
    context: SearchContext, task: Path, budget: int, minutes: float, more: list[str], listener: Listener
) -> Reply:
    with _home(context) as home, tempfile.TemporaryDirectory(prefix="hipwright-out-") as out:
        words = ["optimize", str(task), *_targets(context), "--budget", str(budget), "--max-minutes", str(minutes)]
        found = context.child.run([*words, "--out", out, *more], home, listener)
        program = Path(out) / "program.py"
        text = program.read_text(encoding="utf-8") if program.is_file() else ""
    found.pop("files", None)
    return Reply(_search_text(found, text), {**found, "program": text})


def _targets(context: SearchContext) -> list[str]:
    return [word for target in context.targets for word in ("--target", target)]


@contextlib.contextmanager
def _home(context: SearchContext) -> Iterator[Path | str]:
    """The archive's folder or URL; one that is removed where the session keeps nothing."""
    if context.keeps:
        yield context.home
        return
    with tempfile.TemporaryDirectory(prefix="hipwright-search-") as folder:
        yield Path(folder)


def _search_text(found: dict[str, Any], program: str) -> str:
    lines = [f"{found.get('status')}: {found.get('evaluations')} evaluations, run {found.get('run')}"]
    if found.get("message"):
        lines.append(str(found["message"]))
    lines += [f"{name}: {one.get('status')}" for name, one in (found.get("targets") or {}).items()]
    lines += [str(line) for line in found.get("not_measured") or ()]
    return "\n".join([*lines, "", program] if program else lines)


def _model_text(found: dict[str, Any]) -> str:
    lines = [f"{found['model']}: {found.get('status', 'ranked')}, times of {found['where']}"]
    for region in found["regions"]:
        at_most = f"the model at most {region['model_speedup_at_most']:.2f} times faster"
        fate = f"; {'replaced' if region['replaced'] else 'stays: ' + region['why']}" if "replaced" in region else ""
        lines.append(f"{region['class']} x {region['calls']}: {region['share']:.1%} of the time, {at_most}{fate}")
    return "\n".join([*lines, *(str(line) for line in found.get("not_measured") or ())])
