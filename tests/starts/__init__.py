"""Kernels to start from: CUDA and HIP files of our own writing, and their tasks, with whose names theirs begin."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parent
TASKS = {path.stem: path for path in sorted(ROOT.glob("tasks/*/*.py"))}
VERIFIED = sorted([*ROOT.glob("cuda/*.cu"), *ROOT.glob("hip/*.hip")])
REFUSED = sorted([*ROOT.glob("refused/*.cu"), *ROOT.glob("refused/*.hip")])


def task_of(path: Path) -> Path:
    """The task that a file is for: the longest name that the file's name begins with."""
    return TASKS[max((name for name in TASKS if path.stem.startswith(name)), key=len)]


def reason_of(path: Path) -> str:
    """Why a file is refused, as its first line says."""
    return path.read_text().splitlines()[0].removeprefix("// refused: ")
