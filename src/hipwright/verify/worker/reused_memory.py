"""Memory that one call of a plan hands to the next with its contents, as torch's caching allocator does. Imports torch.

A program that reads what an earlier call left in its workspace computes something else then; on fresh, poisoned memory
it cannot be told from a right one.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import torch

from hipwright.verify.worker.trees import address, bits

Tensor = Any  # torch.Tensor, untyped here
Contents = Literal["fresh", "left", "changed", "rest"]
KEPT_BYTES, KEPT_TENSORS = 64 << 20, 256  # of one call's memory
FLIPPED = {1: 0x5A, 2: 0x5A5A, 4: 0x5A5A5A5A, 8: 0x5A5A5A5A5A5A5A5A}  # by the size of an element in bytes


@dataclass(frozen=True)
class MemoryUse:
    """What a call finds in the memory that it allocates.

    contents: "fresh": new memory full of poison. "left": that of the last calls as they left it, where sizes match.
    "changed": the same, with about half of its elements changed, in runs of all lengths; "rest": with the other half
    changed, so that a stored result is changed in one of the two calls while the key beside it is not. seed: draws the
    runs.
    """

    contents: Contents = "fresh"
    seed: int = 0

    @classmethod
    def of(cls, header: Mapping[str, Any]) -> MemoryUse:
        """From a call's header. Raises ValueError for contents that there are not."""
        contents = header.get("memory", "fresh")
        if contents not in get_args(Contents):
            raise ValueError(f"memory: {contents!r}")
        return cls(contents, int(header.get("memory_seed", 0)))


class ReusedMemory:
    """The memory of a plan's calls. allocate: (shape, dtype) -> a contiguous tensor of poison in its own storage."""

    def __init__(self, allocate: Callable[[Any, Any], Tensor]) -> None:
        self._allocate = allocate
        self._made: list[Tensor] = []
        self._bytes = 0
        self._left: dict[tuple[int, bool], deque[Tensor]] = {}

    def begin(self, use: MemoryUse, held: Collection[int]) -> None:
        """Starts a call. held: addresses of storages that are still in use, as outputs or by `prepare`."""
        unused = [tensor for row in self._left.values() for tensor in row]
        past = [tensor for tensor in (*self._made, *unused) if address(tensor) not in held]
        self._made, self._bytes, self._left = [], 0, {}
        if use.contents == "fresh":
            return
        for number, tensor in enumerate(past):
            if use.contents != "left":
                change_runs(tensor, use.seed + number, rest=use.contents == "rest")
            self._left.setdefault(_kind(tensor.nbytes, tensor.dtype), deque()).append(tensor)

    def empty(self, shape: Any, dtype: Any) -> Tensor:
        """A contiguous tensor: memory of an earlier call, in the order of its allocation, else fresh memory."""
        row = self._left.get(_kind(math.prod(shape) * dtype.itemsize, dtype))
        made = _view_as(row.popleft(), tuple(shape), dtype) if row else self._allocate(shape, dtype)
        if len(self._made) < KEPT_TENSORS and self._bytes + made.nbytes <= KEPT_BYTES:
            self._made.append(made)
            self._bytes += made.nbytes
        return made


def change_runs(tensor: Tensor, seed: int, *, rest: bool) -> None:
    """Changes the elements of a contiguous tensor in every second of a number of runs; rest: in the other ones.

    The lengths of runs are log-uniform from 1 to the number of elements.
    """
    if not tensor.numel():
        return
    flat = bits(tensor).view(-1)
    chosen = torch.from_numpy(run_mask(flat.numel(), seed) != rest).to(flat.device)
    flipped = 1 if tensor.dtype == torch.bool else FLIPPED[flat.element_size()]
    flat ^= chosen.to(flat.dtype) * flipped


def run_mask(count: int, seed: int) -> Any:
    """`count` booleans in alternating runs of log-uniform lengths."""
    draws = np.random.default_rng(seed)
    lengths = [int(draws.integers(0, 2))]  # an empty or a short first run: either value may come first
    while sum(lengths) < count:
        lengths += [math.ceil(length) for length in np.exp(draws.uniform(0.0, math.log(count + 1), 16))]
    return np.repeat(np.arange(len(lengths)) % 2 == 1, lengths)[:count]


def _kind(nbytes: int, dtype: Any) -> tuple[int, bool]:
    """What two tensors on the same memory must have in common; torch allows booleans 0 and 1 alone."""
    return nbytes, dtype == torch.bool


def _view_as(tensor: Tensor, shape: tuple[int, ...], dtype: Any) -> Tensor:
    """The whole storage of a tensor in another form of the same size."""
    strides = torch.empty(shape, device="meta").stride()
    return torch.empty(0, dtype=dtype, device=tensor.device).set_(tensor.untyped_storage(), 0, shape, strides)
