"""Packs sequences of tokens into rows, for imitation, policy gradients and preferences (docs/rl.md).

A row holds several consecutive sequences, each with positions from 0 and attention to itself alone, so that little work
is spent on padding.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

Pair = tuple[Sequence[int], Sequence[int]]
"""(tokens of a prompt, tokens of its completion)."""
PADDING = 0.25
"""The most padding of a batch of rows, as a share of its tokens."""
ALIGN = 16
"""Row lengths are multiples of this, since attention kernels copy masks that they cannot read in whole vectors."""


@dataclass(frozen=True)
class PackedRows:
    """Rows of equal length. tokens, owners, positions: rows x length; owner 0 is padding.

    states, targets: for every completion token, in the order of the sequences, the flat index of the state that
    predicts it, and the token. counts: completion tokens of each sequence.
    """

    tokens: Tensor
    owners: Tensor
    positions: Tensor
    states: Tensor
    targets: Tensor
    counts: tuple[int, ...]

    def mask(self) -> Tensor:
        """The boolean attention mask, rows x 1 x length x length: a token attends to its sequence up to itself."""
        import torch

        length = self.tokens.shape[1]
        causal = torch.ones(length, length, dtype=torch.bool, device=self.tokens.device).tril()
        return ((self.owners[:, :, None] == self.owners[:, None, :]) & causal)[:, None]


def rows(lengths: Sequence[int], length: int) -> list[list[int]]:
    """Indices of sequences in rows of `length` tokens, by first fit, longest first; a longer one has its own row."""
    packed: list[list[int]] = []
    free_tokens: list[int] = []
    for index in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        need = lengths[index]
        place = next((i for i, free in enumerate(free_tokens) if free >= need), len(free_tokens))
        if place == len(free_tokens):
            packed.append([])
            free_tokens.append(length)
        packed[place].append(index)
        free_tokens[place] -= need
    return packed


def batches(packed: Sequence[Sequence[int]], lengths: Sequence[int], tokens: int) -> list[list[list[int]]]:
    """Batches of rows with at most `tokens` tokens (a single row may have more), longest rows first.

    Padding adds up to `PADDING` of that.
    """
    sized = sorted(((sum(lengths[i] for i in row), list(row)) for row in packed), key=lambda item: -item[0])
    groups: list[list[list[int]]] = []
    width = held = 0
    for size, row in sized:
        if groups and held + size <= tokens and (len(groups[-1]) + 1) * width <= (1 + PADDING) * tokens:
            groups[-1].append(row)
            held += size
        else:
            groups.append([row])
            width = held = size
    return groups


def pack(pairs: Sequence[Pair], layout: Sequence[Sequence[int]], device: str) -> tuple[PackedRows, list[int]]:
    """(the rows of `layout` as tensors, the indices of the sequences in their order there).

    layout: rows of indices into pairs.
    """
    import numpy as np
    import torch

    order = [index for row in layout for index in row]
    length = max(sum(len(pairs[i][0]) + len(pairs[i][1]) for i in row) for row in layout)
    length = -(-length // ALIGN) * ALIGN
    tokens: list[int] = []
    spans: list[tuple[int, int]] = []  # sizes of sequences and of padding, with their owner
    firsts, counts = [], []
    for number, row in enumerate(layout, start=1):
        for owner, index in enumerate(row, start=1):
            prompt, completion = pairs[index]
            firsts.append(len(tokens) + len(prompt) - 1)
            counts.append(len(completion))
            spans.append((len(prompt) + len(completion), owner))
            tokens += prompt
            tokens += completion
        spans.append((number * length - len(tokens), 0))
        tokens += [0] * spans[-1][0]
    sizes, owners = np.array(spans, dtype=np.int64).T
    positions = np.arange(len(tokens)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    before = np.cumsum(counts) - np.array(counts)
    states = np.repeat(np.array(firsts) - before, counts) + np.arange(sum(counts))
    rows_of = (np.array(tokens, dtype=np.int64), np.repeat(owners, sizes), positions)
    shaped = [torch.from_numpy(one.reshape(len(layout), length)).to(device, non_blocking=True) for one in rows_of]
    place = torch.from_numpy(states).to(device, non_blocking=True)
    return PackedRows(shaped[0], shaped[1], shaped[2], place, shaped[0].flatten()[place + 1], tuple(counts)), order
