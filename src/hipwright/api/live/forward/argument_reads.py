"""Numbers that the processor reads from whole numbers among the arguments: whether another call reads the same.

A language model asks whether a mask hides anything, and does not hide anything where it does not. Two calls that read
the same go the same way. What they read is computed by the few operators of the watched call that lead to it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch.utils import _pytree as pytree

from hipwright.torchio import tensors_of

NUMBERS = (bool, int, float, complex)
"""What operators give where the processor waits for it."""
MOST = 1 << 20
"""Bytes of an argument by which a call may decide."""


class Slot(NamedTuple):
    """A tensor among the arguments and what steps make."""

    number: int


class ReadStep(NamedTuple):
    """An operator. leaves: of its arguments; results: its tensors; read: what it gave, where that is a number."""

    operator: Any
    leaves: list[Any]
    structure: Any
    results: list[Slot]
    read: bool | int | float | complex | None


class ArgumentReads:
    """What a call reads, by its arguments."""

    def __init__(self, steps: Sequence[ReadStep]) -> None:
        self._steps = steps

    def hold(self, inputs: Sequence[torch.Tensor]) -> bool:
        """Whether a call with these arguments reads the same; waits for the device."""
        found: dict[Slot, torch.Tensor] = {Slot(place): one for place, one in enumerate(inputs)}
        with torch.no_grad():
            for step in self._steps:
                args, kwargs = pytree.tree_unflatten([_given(leaf, found) for leaf in step.leaves], step.structure)
                try:
                    result = step.operator(*args, **kwargs)
                except (RuntimeError, IndexError):  # the call itself raises it, or does not come here
                    return False
                if step.read is not None and result != step.read:
                    return False
                found.update(zip(step.results, tensors_of(result), strict=True))
        return True


class Recorded(NamedTuple):
    """An operator as it was called. written: the tensors into which it writes."""

    operator: Any
    args: Any
    result: Any
    written: Sequence[torch.Tensor]

    @property
    def outcome(self) -> list[torch.Tensor]:
        """What it makes or changes."""
        return [*tensors_of(self.result), *self.written]


def decides(argument: torch.Tensor) -> bool:
    """Whether calls may go by an argument's values: whole numbers, and few of them."""
    whole = not (argument.is_floating_point() or argument.is_complex())
    return whole and argument.numel() * argument.element_size() <= MOST


def argument_reads(recorded: Sequence[Recorded], inputs: Sequence[torch.Tensor]) -> ArgumentReads | None:
    """What the recorded operators read from the arguments; None where they read nothing that these make.

    recorded: operators of arguments by which a call may decide (`decides`), constants and what they themselves make;
    none writes into an argument.
    """
    fed = set(map(_memory, inputs))
    asked: list[bool] = []
    for one in recorded:
        from_arguments = not fed.isdisjoint(map(_memory, tensors_of(one.args)))
        asked.append(from_arguments and _is_number(one.result))
        fed.update(map(_memory, one.outcome) if from_arguments else ())
    needed: set[int] = set()
    kept: list[Recorded] = []
    for one, is_asked in zip(reversed(recorded), reversed(asked), strict=True):
        if is_asked or not needed.isdisjoint(map(_memory, one.outcome)):
            kept.append(one)
            needed.update(map(_memory, tensors_of(one.args)))
    return ArgumentReads(list(_steps(reversed(kept), inputs))) if any(asked) else None


def _given(leaf: Any, found: dict[Slot, torch.Tensor]) -> Any:
    if isinstance(leaf, Slot):
        return found[leaf]
    return leaf.clone() if isinstance(leaf, torch.Tensor) else leaf  # a constant, into which a step may write


def _steps(recorded: Iterable[Recorded], inputs: Sequence[torch.Tensor]) -> Iterator[ReadStep]:
    slots = {id(one): Slot(place) for place, one in enumerate(inputs)}
    numbers = itertools.count(len(inputs))
    for one in recorded:
        leaves, structure = pytree.tree_flatten(one.args)
        held = [slots.get(id(leaf), leaf) if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
        results = [slots.setdefault(id(tensor), Slot(next(numbers))) for tensor in tensors_of(one.result)]
        yield ReadStep(one.operator, held, structure, results, one.result if _is_number(one.result) else None)


def _is_number(value: Any) -> bool:
    return isinstance(value, NUMBERS)


def _memory(tensor: torch.Tensor) -> int:
    return id(tensor.untyped_storage())  # its object lives as long as it does
