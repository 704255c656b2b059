"""Caches results that passed a comparison: equal bytes pass again without a comparison. Does not import torch."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from hipwright.tensors import HostTensor
from hipwright.verify.comparison import OutputComparison

Bytes = npt.NDArray[np.uint8]
MAX_BYTES = 8 << 20  # the largest result that is kept
KEPT, LARGE_BYTES = 4, 1 << 18  # results kept of one tensor; of a tensor with more bytes than LARGE_BYTES only the last


class AcceptedResults:
    """The last results of one tensor that passed. Safe to use from several threads.

    Most programs of a task return the same bits, and each returns them several times.
    """

    def __init__(self) -> None:
        self._known: tuple[tuple[HostTensor, OutputComparison], ...] = ()

    def find(self, got: HostTensor) -> OutputComparison | None:
        """The comparison of an equal earlier result, else None. got: of the expected dtype and shape."""
        for kept, found in self._known:
            if (kept.stride, kept.offset) == (got.stride, got.offset) and _equal(kept.storage, got.storage):
                return found
        return None

    def keep(self, got: HostTensor, found: OutputComparison) -> None:
        """Keeps a result that passed, unless it is large."""
        size = got.storage.nbytes
        if size <= MAX_BYTES:
            most = KEPT if size <= LARGE_BYTES else 1
            self._known = ((replace(got, storage=got.storage.copy()), found), *self._known[: most - 1])


def _equal(a: Bytes, b: Bytes) -> bool:
    """Whether two arrays are equal byte for byte; compares eight bytes at a time where the length allows it."""
    if a.nbytes != b.nbytes:
        return False
    return bool(np.array_equal(a.view(np.int64), b.view(np.int64)) if a.nbytes % 8 == 0 else np.array_equal(a, b))
