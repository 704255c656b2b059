"""Results that were right: who gives the same bytes again is right again. No torch."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from hipwright.tensors import HostTensor

if TYPE_CHECKING:
    from hipwright.verify.compare import OutputComparison

Bytes = npt.NDArray[np.uint8]
MOST_BYTES = 8 << 20  # of a result that is kept
KEPT, LARGE_BYTES = 4, 1 << 18  # right results of one tensor; of one with more bytes than that only the last


class Right:
    """The last right results of one tensor. Programs of a task mostly give the same bits, and one program gives them
    again and again: equal bytes are right again, without the arithmetic. Safe to use from several threads."""

    def __init__(self) -> None:
        self._known: tuple[tuple[HostTensor, OutputComparison], ...] = ()

    def find(self, got: HostTensor) -> OutputComparison | None:
        """What the comparison of an equal result came to. got: of the right dtype and shape."""
        for kept, found in self._known:
            if (kept.stride, kept.offset) == (got.stride, got.offset) and _equal(kept.storage, got.storage):
                return found
        return None

    def keep(self, got: HostTensor, found: OutputComparison) -> None:
        """Remember a right result, unless it is large."""
        size = got.storage.nbytes
        if size <= MOST_BYTES:
            most = KEPT if size <= LARGE_BYTES else 1
            self._known = ((replace(got, storage=got.storage.copy()), found), *self._known[: most - 1])


def _equal(a: Bytes, b: Bytes) -> bool:
    """Byte for byte; eight at a time where the length allows it."""
    if a.nbytes != b.nbytes:
        return False
    return bool(np.array_equal(a.view(np.int64), b.view(np.int64)) if a.nbytes % 8 == 0 else np.array_equal(a, b))
