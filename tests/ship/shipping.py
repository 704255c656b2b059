"""Ships a program and imports the package, with its kernels running on the cpu target instead of a GPU."""

from __future__ import annotations

import importlib
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from hipwright.device.cpu.launcher import CpuLauncher
from hipwright.program import parse
from hipwright.program.lower.arguments import make_launch
from hipwright.records import Program
from hipwright.ship.torch_op import ShippedProgram, package
from hipwright.task.host.load import TaskModule
from hipwright.task.host.state import build as state_table
from hipwright.toolchain.cache import BuildCache
from hipwright.toolchain.cpu import build as cpu

CACHE = BuildCache(Path(tempfile.gettempdir()) / "hipwright-engine-tests")


def files(name: str, task: str, program: str) -> dict[str, str]:
    """The package's files, from the texts of a task and a program."""
    file = TaskModule(f"{name}.py", task)
    parsed = parse(program)
    return package(
        ShippedProgram(
            name=name,
            source=task,
            program=Program(text=program),
            parsed=parsed,
            inputs=file.inputs(0),
            state=state_table(file.model(0)),
            init=file.init_inputs(0),
        )
    )


def write(folder: Path, made: dict[str, str]) -> None:
    """Writes the files to their paths below the folder."""
    for path, text in made.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)


def shipped(folder: Path, name: str, task: str, program: str, *, kernels: bool = True) -> Any:
    """The imported package. Each name only once in a process, as torch's registry of operators is global."""
    write(folder, files(name, task, program))
    sys.path.insert(0, str(folder / "src"))
    try:
        made = importlib.import_module(name)
    finally:
        sys.path.pop(0)
    if kernels:
        made.KERNELS._made[torch.device("cpu")] = on_cpu(program)
    return made


class _Named:
    """Kernels as attributes, as gpu.Kernels returns them."""

    def __init__(self, launches: dict[str, Callable[..., None]]) -> None:
        self.__dict__.update(launches)


def on_cpu(program: str) -> Any:
    """A program's kernels on the cpu target."""
    parsed = parse(program)
    build = cpu.build(parsed.hip, parsed.defines({}), wave=64, checked=True, cache=CACHE, unsafe=True)
    assert build.ok, build.log
    launcher = CpuLauncher(str(CACHE.path(build.blob)), parsed.signatures, wave=64)
    return _Named({name: make_launch(parsed.signatures[name], launcher) for name in parsed.launched})
