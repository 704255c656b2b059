"""Small tasks, and jobs for worker processes that need no machine."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hipwright.errors import SandboxMissing, TaskError, WorkerError

HEAD = "import torch\nimport torch.nn as nn\n\n\nclass Model(nn.Module):\n"
TAIL = "\n\ndef get_inputs():\n    return [torch.randn({shape})]\n\n\ndef get_init_inputs():\n    return []\n"


def task(forward: str, shape: str = "6, 33") -> str:
    """A task whose forward returns an expression of x."""
    return HEAD + f"    def forward(self, x):\n        return {forward}\n" + TAIL.format(shape=shape)


ROWS = task("torch.tanh(x).sum(-1)")
POINTS = task("torch.sigmoid(x) * 2", "5, 31")
RANDOM = task("x + __import__('random').random()")  # by Python's generator, which a program cannot draw from
RAISES = task("x @ x", "3, 4")


@contextmanager
def counter(path: Path) -> Iterator[Path]:
    """A worker's resource: a file to which opening and jobs are appended."""
    with path.open("a") as stream:
        stream.write("open\n")
    yield path


@contextmanager
def closed(message: str) -> Iterator[None]:
    raise SandboxMissing(message, hint="a hint")
    yield


def do(path: Path, job: str) -> str:
    """Do the job that its name asks for: end the process, hang, raise, or return the name in capitals."""
    with path.open("a") as stream:
        stream.write(f"{job}\n")
    if job.startswith("die"):
        os._exit(3)
    if job.startswith("hang"):
        time.sleep(60)
    if job.startswith("task"):
        raise TaskError("the task is at fault", hint="look")
    if job.startswith("once") and path.read_text().count(f"{job}\n") == 1:
        raise WorkerError("infrastructure")
    if job.startswith("bug"):
        raise ZeroDivisionError("a bug")
    return job.upper()
