"""`hipwright mcp`: the tools for coding agents, over stdio."""

from __future__ import annotations

import importlib.util
import os
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hipwright.api import targets
from hipwright.cli.options import Targets, Unsafe
from hipwright.machine import Machine, machine
from hipwright.targets import TARGETS

if TYPE_CHECKING:
    from hipwright.errors import HipwrightError
    from hipwright.events import Listener
    from hipwright.mcp.shop import Lent
    from hipwright.measure.profiler import ProfileReport
    from hipwright.records import Program


def mcp(
    root: Annotated[
        Path, typer.Option("--root", help="Only files below this folder may be opened.", metavar="DIR")
    ] = Path(),
    target: Targets = None,
    unsafe: Unsafe = False,
    keep: Annotated[
        bool, typer.Option("--keep", help="Keep what is judged in the archive, as a run of the session.")
    ] = False,
    print_skill: Annotated[
        bool, typer.Option("--print-skill", help="Print the skill file for coding agents and exit.")
    ] = False,
) -> int:
    """Serve hipwright's tools to a coding agent: the Model Context Protocol over stdin and stdout."""
    from hipwright.mcp import SKILL

    if print_skill:
        print(SKILL.read_text(encoding="utf-8"), end="")
        return 0
    from hipwright import config
    from hipwright.errors import BadInput, HipwrightError

    if not root.is_dir():
        raise BadInput(f"no such folder: {root}", hint="--root DIR names the folder with the tasks")
    if importlib.util.find_spec("mcp") is None:
        raise HipwrightError("the MCP server needs the package mcp", hint="pip install 'hipwright[mcp]'")
    from hipwright.mcp.journal import Journal
    from hipwright.mcp.server import serve
    from hipwright.mcp.tools import ToolContext

    real = root.resolve()
    home = config.home() if os.environ.get("HIPWRIGHT_HOME") else real / ".hipwright"
    chosen = targets.choose(target)
    journal = Journal(home, chosen) if keep else None
    return serve(ToolContext(root=real, home=home, targets=chosen, lent=_lent(chosen, unsafe), journal=journal))


def _lent(chosen: tuple[str, ...], unsafe: bool) -> Lent:
    """What the server borrows from the command line."""
    from hipwright.api.outcome import not_measured, result_object
    from hipwright.api.plain import finite
    from hipwright.mcp.shop import Lent

    def start() -> AbstractContextManager[Machine]:
        return machine(chosen, unsafe=unsafe)

    gpu = next((name for name in chosen if TARGETS.is_gpu(name)), "")

    def counters(task: Path, program: Program, listener: Listener) -> ProfileReport:
        from hipwright.api.profile import read_counters
        from hipwright.program import parse
        from hipwright.program.knobs import text_with_knobs

        parse(program.text).defines(program.knobs)  # what is wrong with either is said before anything is done
        return read_counters(task, text_with_knobs(program), target=gpu, unsafe=unsafe, listener=listener)

    return Lent(
        machine=start,
        result=result_object,
        not_measured=not_measured,
        error=_error,
        plain=finite,
        counters=counters if gpu else None,
    )


def _error(error: HipwrightError) -> dict[str, Any]:
    """The object of a failed `--json` command, and in its own key whose fault it is."""
    from hipwright.api.plain import clean, error_object, error_owner

    told = error_object(error)
    line = next((line for line in str(error.message).splitlines() if line.strip()), "")
    evidence = {key: value for key, value in told["evidence"].items() if key != "traceback"}
    return {**told, "error": clean(line), "hint": clean(error.hint), "whose": error_owner(error), "evidence": evidence}
