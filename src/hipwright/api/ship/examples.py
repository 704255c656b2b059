"""A task's data for exports that hold some: drawn in its sandboxed host, with a fixed seed."""

from __future__ import annotations

import functools
from collections.abc import Sequence

from hipwright.events import doing
from hipwright.records import TensorSpec, Workload
from hipwright.task import TaskHandle
from hipwright.tensors import Tree

SEED = 0


class TaskExamples:
    """`hipwright.ship.subject.Examples` of an open task."""

    def __init__(self, handle: TaskHandle) -> None:
        self._handle = handle

    @property
    def workloads(self) -> Sequence[Workload]:
        """The workloads of the task's own."""
        return [one for one in self._handle.task.workloads if one.origin != "derived"]

    def specs(self, workload: str) -> tuple[Tree, tuple[TensorSpec, ...]]:
        """(inputs with specs for tensors, specs of the outputs' leaves)."""
        outline = self._handle.outline(workload)
        return outline.inputs, outline.outputs

    def inputs(self, workload: str) -> Tree:
        """forward's arguments with data."""
        doing("drawing inputs for the examples")
        return self._handle.inputs(workload, SEED)

    @functools.cached_property
    def _state(self) -> Tree:
        return self._handle.init_state(SEED)

    def state(self) -> Tree:
        """The state table with data."""
        return self._state

    def outputs(self, inputs: Tree, *, exact: bool) -> Tree:
        """The reference's outputs in float64, or in the types of its own."""
        doing("running the reference for its examples")
        return self._handle.reference(inputs, self._state, dtype="float64" if exact else "native")[0]

    def smaller(self, elements: int) -> Workload | None:
        """A derived workload of about that many elements."""
        return self._handle.derive(elements)
