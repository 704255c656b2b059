"""Sequences of tokens packed into rows: one layout for imitation, policy gradients and preferences (docs/rl.md).

A row holds several sequences behind one another, each with positions from 0 and an attention of its own, so that hardly
any of the work goes into padding.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

Pair = tuple[Sequence[int], Sequence[int]]
"""The tokens of a prompt, and those of its completion."""


@dataclass(frozen=True)
class Packed:
    """Rows of equal length. tokens, owners, positions: rows x length; an owner of 0 is padding.

    states, targets: for every completion token, in the order of the sequences, the flat place whose state predicts it,
    and the token itself. counts: completion tokens of each sequence.
    """

    tokens: Tensor
    owners: Tensor
    positions: Tensor
    states: Tensor
    targets: Tensor
    counts: tuple[int, ...]

    def mask(self) -> Tensor:
        """rows x 1 x length x length, true where a token sees another: itself and what is before it in its sequence."""
        import torch

        length = self.tokens.shape[1]
        causal = torch.ones(length, length, dtype=torch.bool, device=self.tokens.device).tril()
        return ((self.owners[:, :, None] == self.owners[:, None, :]) & causal)[:, None]


def rows(lengths: Sequence[int], length: int) -> list[list[int]]:
    """Indices of sequences, first fit in the given order into rows of `length` tokens; a longer one stands alone."""
    packed: list[list[int]] = []
    room: list[int] = []
    opened = 0
    for index, need in enumerate(lengths):
        place = next((i for i in range(opened, len(room)) if room[i] >= need), len(room))
        if place == len(room):
            packed.append([])
            room.append(length)
        packed[place].append(index)
        room[place] -= need
        opened = max(opened, len(room) - OPEN)
    return packed


OPEN = 16
"""Rows that still take sequences: enough to fill them to a few per cent, and linear in the number of sequences."""

ALIGN = 16
"""Rows are a multiple of so many tokens: attention kernels read masks in whole vectors, or copy them first."""


def batches(packed: Sequence[Sequence[int]], lengths: Sequence[int], tokens: int) -> list[list[list[int]]]:
    """Rows in groups of at most `tokens` tokens with their padding (a single row may have more), longest rows first."""
    sized = sorted(((sum(lengths[i] for i in row), list(row)) for row in packed), key=lambda item: -item[0])
    groups: list[list[list[int]]] = []
    for _, row in sized:
        width = sum(lengths[i] for i in groups[-1][0]) if groups else 0
        if groups and (len(groups[-1]) + 1) * width <= tokens:
            groups[-1].append(row)
        else:
            groups.append([row])
    return groups


def pack(pairs: Sequence[Pair], layout: Sequence[Sequence[int]], device: str) -> tuple[Packed, list[int]]:
    """The rows of `layout` (indices into pairs) as tensors, and the indices of the sequences in their order there."""
    import numpy as np
    import torch

    order = [index for row in layout for index in row]
    sizes = {index: len(pairs[index][0]) + len(pairs[index][1]) for index in order}
    length = -(-max(sum(sizes[index] for index in row) for row in layout) // ALIGN) * ALIGN
    tokens, owners, positions = (np.zeros((len(layout), length), dtype=np.int64) for _ in range(3))
    states: list[np.ndarray[tuple[int], np.dtype[np.int64]]] = []
    for number, row in enumerate(layout):
        ends = np.cumsum([0, *(sizes[index] for index in row)])
        for owner, (index, (start, end)) in enumerate(zip(row, pairwise(ends), strict=True), start=1):
            prompt, completion = pairs[index]
            tokens[number, start:end] = [*prompt, *completion]
            owners[number, start:end] = owner
            positions[number, start:end] = np.arange(end - start)
            states.append(np.arange(start + len(prompt) - 1, end - 1) + number * length)
    place = np.concatenate(states)
    made = [torch.from_numpy(a).to(device, non_blocking=True) for a in (tokens, owners, positions, place)]
    targets = made[0].flatten()[made[3] + 1]
    counts = tuple(len(pairs[index][1]) for index in order)
    return Packed(made[0], made[1], made[2], made[3], targets, counts), order
