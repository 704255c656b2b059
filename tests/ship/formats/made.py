"""Exports in each format for the tests, by the command; native kernels of exports on the cpu target."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest import mock

from tests import warm
from tests.ship.shipping import on_cpu


def exported(folder: Path, form: str, task: str, program: str, *more: str) -> Path:
    """The folder of an export of two texts."""
    (folder / "task_file.py").write_text(task)
    (folder / "program.py").write_text(program)
    line = ["export", "task_file.py", "program.py", "--format", form, "--out", form, "--unverified", *more]
    done = warm.hipwright(folder, *line)
    assert done.returncode == 0, done.stderr
    return folder / form


def refused(folder: Path, form: str, task: str, program: str) -> str:
    """What the command says of a program that the format cannot hold."""
    (folder / "task_file.py").write_text(task)
    (folder / "program.py").write_text(program)
    line = ["export", "task_file.py", "program.py", "--format", form, "--out", form, "--unverified"]
    done = warm.hipwright(folder, *line)
    assert done.returncode in (1, 2) and not (folder / form).exists(), done.stdout
    return done.stderr


def module(path: Path, name: str) -> ModuleType:
    """A file as a module."""
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


def with_kernels(path: Path, name: str, program: str) -> ModuleType:
    """A file that builds its kernels by load_inline, with the program's kernels on the cpu target in their place."""
    kernels = on_cpu(program)

    def launcher(kernel: str) -> Any:
        def launch(grid: list[int], block: list[int], lds: int, stream: int, *arguments: Any) -> None:
            getattr(kernels, kernel)(tuple(grid), tuple(block), lds, *arguments)

        return launch

    def load_inline(*, functions: list[str], **_: Any) -> Any:
        return SimpleNamespace(**{function: launcher(function.removeprefix("launch_")) for function in functions})

    with mock.patch("torch.utils.cpp_extension.load_inline", load_inline):
        return module(path, name)
