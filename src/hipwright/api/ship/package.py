"""A verified program as files that PyTorch code can import: a package with a torch operator, or a ModelNew file."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal, get_args

from hipwright.api.files import prepare_folder, write_file
from hipwright.api.inputs import TaskSource, task_source
from hipwright.errors import BadInput
from hipwright.program import parse
from hipwright.records import Program
from hipwright.sandbox import Zygote
from hipwright.ship.torch_op import ShippedProgram, package

ShipFormat = Literal["torch-op", "modelnew"]
FORMATS: tuple[str, ...] = get_args(ShipFormat)


def ship_program(task: object, text: str, form: ShipFormat, out: Path, *, name: str | None = None) -> list[str]:
    """Writes the program into the folder `out`; returns the files' paths below it.

    name: of the package; from the task's file without it.
    """
    source, program = task_source(task), Program(text=text)
    files = package(shipped_program(source, program, name)) if form == "torch-op" else _modelnew(source, program)
    prepare_folder(out)
    for relative, content in files.items():
        prepare_folder((out / relative).parent)
        write_file(out / relative, content)
    return sorted(files)


def _modelnew(source: TaskSource, program: Program) -> dict[str, str]:
    from hipwright.program.modelnew.export import export

    return {"model_new.py": export(program, parse(program.text), source.read())}


def shipped_program(source: TaskSource, program: Program, name: str | None) -> ShippedProgram:
    """The program with the task's inputs, state and constructor arguments, from its sandboxed host."""
    parsed = parse(program.text)
    with (
        Zygote(("torch", "hipwright.task.host.warm"), name="task host") as host,
        source.open(host) as handle,
    ):
        if handle.written:
            raise BadInput(
                f"the task writes to its inputs ({', '.join(handle.written)}), and a package's operator is functional",
                hint="export it as a ModelNew file: --format modelnew",
            )
        outline = handle.outline(handle.task.workloads[0].name)
        return ShippedProgram(
            name=name or _package_name(source.name),
            source=handle.task.source,
            program=program,
            parsed=parsed,
            inputs=outline.inputs,
            state=outline.state,
            init=handle.init_inputs(0),
        )


def _package_name(stem: str) -> str:
    """A package name from a file's: `3_LayerNorm` -> `op_3_layernorm`."""
    name = re.sub(r"\W+", "_", stem).lower().strip("_")
    return name if name[:1].isalpha() else f"op_{name}"
