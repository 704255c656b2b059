"""The work behind `export TASK PROGRAM`: the task's facts from its sandbox, then files."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from hipwright.cli import session
from hipwright.cli.outdir import prepare, write_file
from hipwright.cli.output import Face
from hipwright.program import parse
from hipwright.records import Program

if TYPE_CHECKING:
    from hipwright.ship.torch_op import ShippedProgram


def ship(face: Face, task: Path, path: Path, form: str, name: str | None, out: Path) -> int:
    """Write the program as a package or a ModelNew file into the folder `out`."""
    session.existing_file(task, "task")
    text = session.read_text(path, "program")
    files = _package(task, text, name) if form == "torch-op" else _modelnew(task, text)
    prepare(out)
    for relative, content in files.items():
        prepare((out / relative).parent)
        write_file(out / relative, content)
    face.say(f"wrote {len(files)} files to {out}")
    if face.json_mode:
        face.result({"out": str(out), "format": form, "files": sorted(files)})
    return 0


def _modelnew(task: Path, text: str) -> dict[str, str]:
    from hipwright.program.modelnew.export import export

    return {"model_new.py": export(Program(text=text), parse(text), session.read_text(task, "task"))}


def _package(task: Path, text: str, name: str | None) -> dict[str, str]:
    from hipwright.ship.torch_op import package

    return package(subject(task, Program(text=text), name))


def subject(task: Path, program: Program, name: str | None) -> ShippedProgram:
    """What is shipped: the task's inputs, state and constructor arguments come from its sandboxed host."""
    from hipwright.sandbox import Zygote
    from hipwright.ship.torch_op import ShippedProgram
    from hipwright.task import open_task

    parsed = parse(program.text)
    with (
        Zygote(("torch", "hipwright.task.host.warm"), name="task host") as host,
        open_task(task, host) as handle,
    ):
        outline = handle.outline(handle.task.workloads[0].name)
        init = handle.init_inputs(0)
        return ShippedProgram(
            name=name or _name(task),
            source=handle.task.source,
            program=program,
            parsed=parsed,
            inputs=outline.inputs,
            state=outline.state,
            init=init,
        )


def _name(task: Path) -> str:
    """A package name from a file's: `3_LayerNorm.py` -> `op_3_layernorm`."""
    stem = re.sub(r"\W+", "_", task.stem).lower().strip("_")
    return stem if stem[:1].isalpha() else f"op_{stem}"
