"""The task's own file in the caller's process; the caller's generators of random numbers are left alone."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from hipwright.task.host.load import TaskModule
from hipwright.task.host.state import build
from hipwright.tensors import Tree


@dataclass(frozen=True)
class TaskFile:
    """The example inputs, the model and its state table, as a task's text draws them under seed 0."""

    inputs: list[Any]
    model: torch.nn.Module

    @property
    def state(self) -> Tree:
        """The model's state table (`hipwright.task.host.state`)."""
        return build(self.model)


def task_file(text: str) -> TaskFile:
    """Runs the text of a task that this package wrote."""
    with generators_kept():
        file = TaskModule("task.py", text)
        return TaskFile(file.inputs(0), file.model(0))


@contextmanager
def generators_kept() -> Iterator[None]:
    """A context after which Python's, NumPy's and torch's generators are as they were."""
    own, numbers = random.getstate(), np.random.get_state()
    with torch.random.fork_rng():
        try:
            yield
        finally:
            random.setstate(own)
            np.random.set_state(numbers)
