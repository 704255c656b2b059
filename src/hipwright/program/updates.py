"""Finds the arguments that a launch reads and replaces: they count twice in memory traffic. Imports no torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hipwright.program.signature import Signature


class Updates:
    """Follows the tensors of a plan: the first launch that gets memory from `empty` only writes it."""

    def __init__(self, signatures: Mapping[str, Signature]) -> None:
        self._signatures = signatures
        self._blank: set[int] = set()

    def allocated(self, tensor: Any) -> None:
        """Notes a tensor without contents."""
        self._blank.add(_memory(tensor))

    def replaced(self, kernel: str, args: Sequence[Any]) -> list[bool]:
        """For each argument of a launch, in order, whether it is a non-const tensor that had contents."""
        pairs = zip(self._signatures[kernel].params, args, strict=True)
        storages = [
            _memory(arg) if param.pointer and not param.const and arg is not None else 0 for param, arg in pairs
        ]
        found = [bool(storage) and storage not in self._blank for storage in storages]
        self._blank -= set(storages)
        return found


def _memory(tensor: Any) -> int:
    """An identity of the storage, also of a tensor without data."""
    return int(tensor.untyped_storage()._cdata)
