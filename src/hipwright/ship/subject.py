"""What a format is given: a program, its task, and the task's data on request."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from hipwright.program.parsed import Parsed
from hipwright.records import Program, TensorSpec, Workload
from hipwright.tensors import Tree

Files = Mapping[str, str | bytes]
"""A format's files by their paths below the folder."""


class Examples(Protocol):
    """The task's data, drawn with a fixed seed: the same at every export."""

    @property
    def workloads(self) -> Sequence[Workload]:
        """The workloads of the task's own: as given, and its groups."""

    def specs(self, workload: str) -> tuple[Tree, tuple[TensorSpec, ...]]:
        """(inputs with specs for tensors, specs of the outputs' leaves), without data."""

    def inputs(self, workload: str) -> Tree:
        """forward's arguments with data."""

    def state(self) -> Tree:
        """The state table with data."""

    def outputs(self, inputs: Tree, *, exact: bool) -> Tree:
        """The reference's outputs for these inputs and `state()`: in float64, or in the types of its own."""

    def smaller(self, elements: int) -> Workload | None:
        """A workload of about that many elements, None where the reference takes no other shapes."""


@dataclass(frozen=True)
class ShippedProgram:
    """A program to ship. source: the task file's text.

    inputs, state: with specs (or data) for tensors. init: the constructor's arguments, as `get_init_inputs` returns
    them. examples: None where the task is not at hand.
    """

    name: str
    source: str
    program: Program
    parsed: Parsed
    inputs: Sequence[Any]
    state: Tree
    init: Any
    examples: Examples | None = None


@dataclass(frozen=True)
class ShipFormat:
    """One format. name: as `--format` takes it; summary: what it is, for help and docs; files: writes the texts.

    writes_inputs: whether it takes programs of tasks that write to their inputs. `files` raises BadInput and
    ProgramError for programs that the format cannot hold.
    """

    name: str
    summary: str
    files: Callable[[ShippedProgram], Files]
    writes_inputs: bool = False
