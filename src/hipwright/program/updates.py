"""Finds the arguments that a launch reads and replaces: they count twice in memory traffic. Imports no torch."""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from typing import Any

from hipwright.program.signature import Signature


class Updates:
    """Follows the tensors of a plan: the first launch that gets memory from `empty` only writes it."""

    def __init__(self, signatures: Mapping[str, Signature]) -> None:
        self._signatures = signatures
        self._blank: weakref.WeakSet[Any] = weakref.WeakSet()  # a storage's object lives as long as the storage

    def allocated(self, tensor: Any) -> None:
        """Notes a tensor without contents."""
        self._blank.add(tensor.untyped_storage())

    def replaced(self, kernel: str, args: Sequence[Any]) -> list[bool]:
        """For each argument of a launch, in order, whether it is a non-const tensor that had contents."""
        pairs = zip(self._signatures[kernel].params, args, strict=True)
        written = [arg if param.pointer and not param.const else None for param, arg in pairs]
        storages = [None if arg is None else arg.untyped_storage() for arg in written]
        found = [storage is not None and storage not in self._blank for storage in storages]
        self._blank -= {storage for storage in storages if storage is not None}
        return found
