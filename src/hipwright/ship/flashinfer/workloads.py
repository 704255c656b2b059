"""The workloads of a task as one function sees them: inputs, parameters and buffers by name, and shared sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hipwright.errors import BadInput, GuardFailed
from hipwright.ship.interface import Interface, accesses, interface
from hipwright.ship.subject import Examples, ShippedProgram
from hipwright.tensors import Tree


@dataclass(frozen=True)
class FunctionWorkload:
    """One workload. inputs: a spec, a tensor or a plain value by the argument's name; outputs: specs by name."""

    name: str
    inputs: Mapping[str, Any]
    outputs: Mapping[str, Any]

    def dims(self) -> list[tuple[str, int, int]]:
        """(tensor, dimension, size) of all tensors, the inputs' first."""
        both = [*self.inputs.items(), *self.outputs.items()]
        tensors = [(name, leaf.shape) for name, leaf in both if hasattr(leaf, "shape")]
        return [(name, at, size) for name, shape in tensors for at, size in enumerate(shape)]


class AxisNames:
    """The name of each dimension: dimensions whose sizes are equal in every workload share one.

    constants: axes that are the same in all workloads; free: the others, with a size for each workload.
    """

    def __init__(self, workloads: Sequence[FunctionWorkload]) -> None:
        self.constants: dict[str, int] = {}
        self.free: dict[str, tuple[int, ...]] = {}
        self._of: dict[tuple[str, int], str] = {}
        known: dict[tuple[int, ...], str] = {}
        for same in zip(*(one.dims() for one in workloads), strict=True):
            tensor, at, _ = same[0]
            sizes = tuple(size for _, _, size in same)
            if len(set(sizes)) == 1:
                self._of[tensor, at] = f"size_{sizes[0]}"
                self.constants[f"size_{sizes[0]}"] = sizes[0]
            else:
                name = self._of[tensor, at] = known.setdefault(sizes, f"{tensor}_{at}")
                self.free[name] = sizes

    def shape(self, tensor: str, rank: int) -> list[str]:
        """The axes of a tensor."""
        return [self._of[tensor, at] for at in range(rank)]

    def sizes(self, workload: int) -> dict[str, int]:
        """The free axes' sizes in a workload."""
        return {name: sizes[workload] for name, sizes in self.free.items()}


def state_names(subject: ShippedProgram, found: Interface) -> dict[str, str]:
    """The name, as an argument, of each parameter and buffer by its path."""
    taken = {name for name, _, _ in found.arguments}
    names: dict[str, str] = {}
    for path in [*subject.state["params"], *subject.state["buffers"]]:
        name = "state_" + "".join(c if c.isalnum() else "_" for c in path)
        while name in taken:
            name += "_"
        taken.add(name)
        names[path] = name
    return names


def arguments(subject: ShippedProgram, found: Interface, given: Tree, state: Tree) -> dict[str, Any]:
    """The arguments of the function by name: forward's leaves, then parameters and buffers."""
    names = [argument.arg for argument in subject.parsed.functions["forward"].args.args][1:]
    leaves = dict(pair for name, value in zip(names, given, strict=False) for pair in accesses(value, name))
    tensors = {**state["params"], **state["buffers"]}
    named = {name: tensors[path] for path, name in state_names(subject, found).items()}
    return {name: leaves[path] for name, _, path in found.arguments} | named


def function_workloads(subject: ShippedProgram, examples: Examples, found: Interface) -> list[FunctionWorkload]:
    """The task's own workloads that the program takes, as many as one definition holds.

    Only the first where ranks differ, or where a size of the outputs that changes is no size of an input. Raises
    BadInput where the program takes none.
    """
    taken = []
    for one in examples.workloads:
        given, outputs = examples.specs(one.name)
        try:
            interface(subject.parsed, subject.program.knobs, subject.state, given)
        except GuardFailed:
            continue
        inputs = arguments(subject, found, given, subject.state)
        taken.append(FunctionWorkload(one.name, inputs, {f"output_{i}": spec for i, spec in enumerate(outputs)}))
    if not taken:
        raise BadInput("the program takes none of the task's own workloads")
    return taken if _one_definition(taken) else taken[:1]


def _one_definition(workloads: Sequence[FunctionWorkload]) -> bool:
    if len({tuple((tensor, at) for tensor, at, _ in one.dims()) for one in workloads}) > 1:
        return False
    names = AxisNames(workloads)
    first = workloads[0]
    bound = {axis for name, leaf in first.inputs.items() for axis in names.shape(name, len(getattr(leaf, "shape", ())))}
    return set(names.free) <= bound
