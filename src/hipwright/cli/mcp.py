"""`hipwright mcp`: the tools for coding agents, over stdio."""

from __future__ import annotations

import importlib.util
import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hipwright.api import targets
from hipwright.cli.options import Targets, Unsafe
from hipwright.targets import TARGETS

if TYPE_CHECKING:
    from hipwright.mcp.tools import Counters


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
    from hipwright.machine import machine
    from hipwright.mcp.journal import Journal
    from hipwright.mcp.server import serve
    from hipwright.mcp.tools import ToolContext
    from hipwright.mcp.warm_machine import WarmMachine

    real = root.resolve()
    home = config.archive() if os.environ.get("HIPWRIGHT_HOME") else real / ".hipwright"
    chosen = targets.choose(target)
    journal = Journal(home, chosen) if keep else None
    warm = WarmMachine(partial(machine, chosen, unsafe=unsafe))
    return serve(ToolContext(real, home, chosen, warm, _counters(chosen, unsafe), journal))


def _counters(chosen: tuple[str, ...], unsafe: bool) -> Counters | None:
    """Reads counters on the first GPU target; None where there is none."""
    from hipwright.api.profile import program_counters

    gpu = next((name for name in chosen if TARGETS.is_gpu(name)), None)
    return None if gpu is None else partial(program_counters, target=gpu, unsafe=unsafe)
