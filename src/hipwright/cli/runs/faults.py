"""`hipwright runs faults`: what the engine's first answers were refused for, each with a task file that shows it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hipwright import config
from hipwright.cli.options import Json, Unsafe
from hipwright.cli.output import CommandOutput
from hipwright.cli.runs.damaged import plain_rows, say_damaged

if TYPE_CHECKING:
    from hipwright.api.runs.faults import ListedFault


def faults(
    number: Annotated[int | None, typer.Argument(help="A fault of the list; all without it.", metavar="N")] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Run the files alone: whether each shows its fault, else the whole task.")
    ] = False,
    out: Annotated[Path | None, typer.Option(help="Write the task files into this folder.", metavar="DIR")] = None,
    unsafe: Unsafe = False,
    json_mode: Json = False,
) -> int:
    """List the engine's faults, newest first, and write each as a task file small enough to send."""
    from hipwright.api.runs.faults import check_faults, chosen_of, list_faults, write_faults
    from hipwright.archive import shown

    output = CommandOutput(json_mode=json_mode)
    listed, damaged = list_faults()
    chosen_of(listed, number)  # before anything is run or written
    if check and listed:
        check_faults(number, unsafe=unsafe, listener=output.stages())
        listed, damaged = list_faults()
    written = write_faults(out, number) if out is not None and listed else []
    listed = chosen_of(listed, number)
    if json_mode:
        found = {"home": shown(config.archive()), "faults": [_plain(one) for one in reversed(listed)]}
        output.result({**found, "written": [str(path) for path in written], "damaged": plain_rows(damaged)})
    elif not listed:
        output.say(f"no faults in {shown(config.archive())}")
    else:
        _print(output, listed)
    for path in written:
        output.say(f"wrote {path}")
    say_damaged(output, damaged)
    return 0


def _plain(one: ListedFault) -> dict[str, Any]:
    return {"number": one.number, "file_name": one.file_name, **one.fault.to_dict()}


def _print(output: CommandOutput, listed: list[ListedFault]) -> None:
    from hipwright.cli.display.fitted import plain_table

    heads = ("#", "when", "run", "task", "status", "target", "given up", "file")
    rows = [
        (
            one.number,
            time.strftime("%Y-%m-%d %H:%M", time.localtime(one.fault.clock)),
            one.fault.run,
            one.fault.task,
            one.fault.status,
            one.fault.target or "-",
            ", ".join(one.fault.given_up) or "-",
            _file(one),
        )
        for one in reversed(listed)
    ]
    output.console().print(plain_table(heads, rows, right=("#",)))


def _file(one: ListedFault) -> str:
    """What the file holds, and whether it was seen to show the fault."""
    shown = one.fault.shown
    seen = "not run alone" if not shown else "shows it" if shown == one.fault.status else f"ends with {shown}"
    return f"{'operators' if one.fault.file == 'operators' else 'whole task'}, {seen}"
