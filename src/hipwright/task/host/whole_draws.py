"""Whole draws of get_inputs that are sliced for other shapes, kept where they are costly. Runs in the task host.

Where get_inputs cannot draw other shapes itself (`draw.Resized`), a small workload is a part of the whole. Inputs of
many megabytes are drawn twice, of gigabytes once, and kept: every seed slices the same. Float leaves that get_inputs
does draw at the wanted shape are its own under every seed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from hipwright.errors import TaskError
from hipwright.task.host import draw
from hipwright.task.host.leaves import elements_of, shapes_of
from hipwright.task.host.reference import named_leaves
from hipwright.task.sizes import Shapes
from hipwright.torchio import map_torch

COSTLY = 1 << 18
"""Elements of inputs above which other shapes are drawn directly, not sliced."""
KEPT = 1 << 24
"""Elements of inputs above which what is sliced is drawn once and kept: such a draw takes a good part of a second."""
ONE = 1 << 28
"""Elements from which there is one draw: two of float32 take 2 GB of the machine's memory up to here, for each open
task."""

Draw = Callable[[int], list[Any]]


class WholeDraws:
    """The draws of one task, by group. Safe to change what `resized` returns."""

    def __init__(self) -> None:
        self._kept: dict[tuple[int | None, int], list[Any]] = {}

    def resized(self, given: list[Any], shapes: Shapes, seed: int, group: int | None, drawn: Draw) -> list[Any]:
        """The arguments at other shapes.

        given: the first workload's, without data. drawn: get_inputs under a seed. Raises TaskError where that does.
        """
        own = self._drawn_small(shapes_of(given), shapes, seed, drawn) if elements_of(given) >= COSTLY else None
        if own is not None and shapes_of(own) == shapes:
            return own
        if elements_of(given) < KEPT:
            return draw.resize_all(drawn(seed), drawn(seed + 1), shapes)
        many = elements_of(given) < ONE
        first, second = (self._kept_draw(number if many else 0, group, drawn) for number in (seed % 2, (seed + 1) % 2))
        made = draw.resize_all(first, second, shapes)
        return _with_floats(_apart(made, [*_leaves(first), *_leaves(second)]), own)

    @staticmethod
    def _drawn_small(given: Shapes, shapes: Shapes, seed: int, drawn: Draw) -> list[Any] | None:
        """What get_inputs draws with the other sizes in its calls; None where it fails."""
        try:
            with draw.Resized(given, shapes):
                return drawn(seed)
        except TaskError:
            return None

    def _kept_draw(self, number: int, group: int | None, drawn: Draw) -> list[Any]:
        if (group, number) not in self._kept:
            self._kept[group, number] = drawn(number)
        return self._kept[group, number]


def _leaves(value: Any) -> list[torch.Tensor]:
    return [leaf for _, leaf in named_leaves("", value)]


def _apart(made: list[Any], kept: list[torch.Tensor]) -> list[Any]:
    """`made`, with copies of the leaves that lie in the kept draws, shared as they are there."""
    places = {leaf.untyped_storage().data_ptr() for leaf in kept if leaf.numel()}
    copies: dict[int, torch.UntypedStorage] = {}

    def one(leaf: torch.Tensor) -> torch.Tensor:
        storage = leaf.untyped_storage()
        if not leaf.numel() or storage.data_ptr() not in places:
            return leaf
        copied = copies.setdefault(storage.data_ptr(), storage.clone())
        whole = torch.empty(0, dtype=leaf.dtype)
        return whole.set_(copied, leaf.storage_offset(), leaf.shape, leaf.stride())

    return map_torch(made, one)  # type: ignore[no-any-return]


def _with_floats(made: list[Any], own: list[Any] | None) -> list[Any]:
    """`made`, with the float leaves of another draw whose shape and strides are the wanted ones."""
    others = _leaves(own) if own is not None else []
    if len(others) != len(_leaves(made)):
        return made
    left = iter(others)

    def one(leaf: torch.Tensor) -> torch.Tensor:
        other = next(left)
        same = (other.shape, other.stride(), other.dtype) == (leaf.shape, leaf.stride(), leaf.dtype)
        return other if same and leaf.is_floating_point() else leaf

    return map_torch(made, one)  # type: ignore[no-any-return]
