"""Inputs that the task writes, in a worker: what of their memory a call may change. Imports torch."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import torch

from hipwright.verify.worker.trees import address, named_tensors, tensors_of

Tensor = Any  # torch.Tensor, untyped here


class WrittenInputs:
    """The leaves of one call's inputs that the task writes. Made before the call.

    given: the inputs; paths: of the written ones, as the task host names them.
    """

    def __init__(self, given: Any, paths: Collection[str]) -> None:
        leaves = list(named_tensors(given, "inputs"))
        self.leaves = {path: tensor for path, tensor in leaves if path in paths}
        self._given = [tensor for _, tensor in leaves]
        self._numbers = {number for number, (path, _) in enumerate(leaves) if path in paths}
        self._homes = {address(tensor) for tensor in self.leaves.values() if tensor.numel()}
        self._before = {home: _raw(self._written(home)[0]).clone() for home in self._homes if self._has_gaps(home)}

    def read(self) -> list[Tensor]:
        """The inputs that the task does not write."""
        return [tensor for number, tensor in enumerate(self._given) if number not in self._numbers]

    def protected(self) -> list[Tensor]:
        """Those of them whose memory no kernel may write at all: nothing that the task writes lies in their storage."""
        return [tensor for tensor in self.read() if address(tensor) not in self._homes]

    def fixed(self, originals: Any, *, beside: bool) -> tuple[list[Tensor], list[Tensor]]:
        """What must be equal after a call, two lists with an entry for each input: itself and its original where the
        task only reads it, else the storage in which it lies and what that must hold.

        beside: whether memory beside the written elements counts; without it the entries of written inputs are empty.
        """
        live, wanted, seen = [], [], set[int]()
        for number, (tensor, original) in enumerate(zip(self._given, tensors_of(originals), strict=True)):
            if number not in self._numbers:
                live.append(tensor)
                wanted.append(original)
                continue
            home = address(tensor)
            counts = beside and home in self._before and home not in seen
            seen.add(home)
            empty = torch.empty(0, dtype=torch.uint8, device=tensor.device)
            live.append(_raw(tensor) if counts else empty)
            wanted.append(self._beside(home) if counts else empty)
        return live, wanted

    def _written(self, home: int) -> list[Tensor]:
        return [leaf for leaf in self.leaves.values() if leaf.numel() and address(leaf) == home]

    def _has_gaps(self, home: int) -> bool:
        """Whether a storage holds more than what the task writes."""
        here = self._written(home)
        return bool(sum(leaf.nbytes for leaf in here) < here[0].untyped_storage().nbytes())

    def _beside(self, home: int) -> Tensor:
        """A storage as it was before the call, with the present values of the elements that the task writes."""
        copied = self._before[home].clone()
        for leaf in self._written(home):
            place = torch.empty(0, dtype=leaf.dtype, device=leaf.device)
            place.set_(copied.untyped_storage(), leaf.storage_offset(), leaf.shape, leaf.stride()).copy_(leaf)
        return copied


def _raw(tensor: Tensor) -> Tensor:
    """The tensor's whole storage as bytes, sharing memory."""
    return torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(tensor.untyped_storage())
