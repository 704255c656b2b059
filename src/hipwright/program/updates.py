"""Which arguments a launch reads and replaces: those count twice where bytes are counted. Imports no torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hipwright.program.signature import Signature


class Updates:
    """Follows a plan's tensors: what `empty` made is only written by the launch that gets it first."""

    def __init__(self, signatures: Mapping[str, Signature]) -> None:
        self._signatures = signatures
        self._blank: set[int] = set()

    def made(self, tensor: Any) -> None:
        """A tensor in which nothing is."""
        self._blank.add(_memory(tensor))

    def of(self, kernel: str, args: Sequence[Any]) -> list[bool]:
        """For each argument of a launch, in order: is it a tensor that held something, and not const?"""
        pairs = zip(self._signatures[kernel].params, args, strict=True)
        places = [_memory(arg) if param.pointer and not param.const and arg is not None else 0 for param, arg in pairs]
        found = [bool(place) and place not in self._blank for place in places]
        self._blank -= set(places)
        return found


def _memory(tensor: Any) -> int:
    """Names the storage, of a tensor without data too."""
    return int(tensor.untyped_storage()._cdata)
