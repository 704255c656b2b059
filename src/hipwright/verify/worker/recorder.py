"""Records the bytes of each launch's arguments, and limits the size of a candidate's tensors. Imports torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

import torch

from hipwright.errors import CandidateError
from hipwright.program import Signature
from hipwright.program.updates import Updates
from hipwright.verify.worker.reused_memory import ReusedMemory
from hipwright.verify.worker.trees import address

Tensor = Any  # torch.Tensor, untyped here


class LaunchRecorder:
    """A launcher that also records, for each launch, the bytes of its tensor arguments; those that it reads and writes
    count twice.

    memory: makes the tensors of `empty`. limit_bytes: the largest tensor that `empty` makes; 0 for no limit.
    """

    def __init__(
        self, inner: Any, memory: ReusedMemory, signatures: Mapping[str, Signature], limit_bytes: int = 0
    ) -> None:
        self.inner = inner
        self._memory = memory
        self._updates = Updates(signatures)
        self._limit = limit_bytes
        self._bytes: list[int] = []
        self.after_launch: Callable[[], None] | None = None

    def empty(self, shape: Any, dtype: Any) -> Tensor:
        """A contiguous tensor. Raises CandidateError for one over the limit."""
        if self._limit and prod(shape) * dtype.itemsize > self._limit:
            raise too_much_memory(f"{prod(shape) * dtype.itemsize} bytes at once; the limit is {self._limit}")
        made = self._memory.empty(shape, dtype)
        self._updates.allocated(made)
        return made

    def launch(self, kernel: str, grid: Any, block: Any, lds_bytes: int, args: Sequence[Any]) -> None:
        """As the inner launcher's."""
        self.inner.launch(kernel, grid, block, lds_bytes, args)
        if self.after_launch is not None:
            self.after_launch()
        tensors: dict[tuple[int, int], int] = {}
        for arg, updated in zip(args, self._updates.replaced(kernel, args), strict=True):
            if isinstance(arg, torch.Tensor):
                size = arg.numel() * arg.element_size() * (2 if updated else 1)
                place = address(arg), arg.storage_offset()
                tensors[place] = max(size, tensors.get(place, 0))
        self._bytes.append(sum(tensors.values()))

    def stats(self) -> list[dict[str, Any]]:
        """One entry per launch, with argument_bytes."""
        inner = self.inner.stats() if hasattr(self.inner, "stats") else self.inner.launches
        return [{**entry, "argument_bytes": size} for entry, size in zip(inner, self._bytes, strict=True)]


def too_much_memory(detail: str = "") -> CandidateError:
    """The error of a candidate that exhausts memory."""
    suffix = f": {detail}" if detail else ""
    return CandidateError(
        f"the candidate asks for more memory than there is{suffix}", status="launch_error", stage="launch"
    )
