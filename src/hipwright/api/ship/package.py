"""A verified program as files for others: in one of the formats of `hipwright.ship.formats` (docs/ship.md)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hipwright.api.inputs import task_source
from hipwright.api.ship.examples import TaskExamples
from hipwright.api.ship.folder import check_own, write_export
from hipwright.errors import BadInput
from hipwright.program import parse
from hipwright.program.parsed import Parsed
from hipwright.records import Program
from hipwright.sandbox import Zygote
from hipwright.ship.formats.registry import named
from hipwright.ship.notice import with_common_files
from hipwright.ship.subject import ShippedProgram
from hipwright.task import TaskHandle


@dataclass(frozen=True)
class Export:
    """What was written: the folder, its files, and the program's key, which is the same in every format."""

    out: Path
    form: str
    program_key: str
    files: list[str]
    verified_on: tuple[str, ...]


def ship_program(
    task: object, text: str, form: str, out: Path, *, verified_on: Sequence[str], name: str | None = None
) -> Export:
    """Writes the program into the folder `out`, which is new, empty, or an earlier export of the format.

    verified_on: the targets on which it was verified; none: the files say that it was not. name: of the package; from
    the task's file without it. Raises BadInput for a folder of somebody else's and for what the format cannot hold.
    """
    chosen, source, program = named(form), task_source(task), Program(text=text)
    check_own(out, chosen.name)
    parsed = parse(program.text)
    with (
        Zygote(("torch", "hipwright.task.host.warm"), name="task host") as host,
        source.open(host) as handle,
    ):
        if handle.written and not chosen.writes_inputs:
            raise BadInput(
                f"the task writes to its inputs ({', '.join(handle.written)}), and {chosen.name} holds functions alone",
                hint="export it as a ModelNew file: --format modelnew",
            )
        subject = _subject(handle, program, name or package_name(source.name), parsed)
        files = with_common_files(chosen.name, subject, chosen.files(subject), verified_on)
    write_export(out, files)
    return Export(out, chosen.name, program.key, sorted(files), tuple(verified_on))


def _subject(handle: TaskHandle, program: Program, name: str, parsed: Parsed) -> ShippedProgram:
    """The program with the task's inputs, state and constructor arguments, from its sandboxed host."""
    outline = handle.outline(handle.task.workloads[0].name)
    return ShippedProgram(
        name=name,
        source=handle.task.source,
        program=program,
        parsed=parsed,
        inputs=outline.inputs,
        state=outline.state,
        init=handle.init_inputs(0),
        examples=TaskExamples(handle),
    )


def package_name(stem: str) -> str:
    """A package name from a file's: `3_LayerNorm` -> `op_3_layernorm`."""
    name = re.sub(r"\W+", "_", stem).lower().strip("_")
    return name if name[:1].isalpha() else f"op_{name}"
