"""Passes over the values of large tensors, in blocks of whole rows. Does not import torch.

A pass over a new array of a hundred megabytes costs several times its arithmetic, for memory that the kernel must clear
first. A block's temporaries are used again while they are in the cache, and NumPy works on several blocks at once.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import numpy as np

from hipwright.tensors import HostTensor
from hipwright.verify.expected import F64

BLOCK = 1 << 16  # elements: 512 kB of float64
THREADED = 1 << 20  # elements of a leaf from which several threads work on it
MOST_THREADS = 8


class FlatValues:
    """A tensor's values as float64, flat in logical order (of a complex one the parts, one after the other)."""

    def __init__(self, tensor: HostTensor) -> None:
        self._bits = np.ascontiguousarray(tensor.bits()).reshape(-1)
        self._dtype = tensor.dtype
        self._parts = 2 if tensor.is_complex else 1
        self.size = self._bits.size * self._parts

    def block(self, place: slice) -> F64:
        """The values of a block; of float64 a view, which must not be written to."""
        bits = self._bits[place.start // self._parts : place.stop // self._parts]
        if self._dtype == "float64":
            return bits
        return HostTensor(self._dtype, bits.shape, (1,), 0, bits.view(np.uint8)).to_f64().reshape(-1)


def row_blocks(size: int, length: int) -> list[slice]:
    """Blocks of whole rows of `length` elements that cover `size` elements: about BLOCK each, or one row."""
    step = max(BLOCK // length, 1) * length
    return [slice(start, min(start + step, size)) for start in range(0, size, step)]


def spread(work: Callable[[slice], None], blocks: Sequence[slice]) -> None:
    """Does the work on every block, of large tensors by several threads. Raises what the work raises."""
    pool = _threads() if len(blocks) > 1 and blocks[-1].stop >= THREADED else None
    if pool is None:
        for block in blocks:
            work(block)
    else:
        for _ in pool.map(work, blocks):
            pass


_lock = threading.Lock()


@cache
def _pool() -> ThreadPoolExecutor | None:
    count = min(len(os.sched_getaffinity(0)), MOST_THREADS)
    return ThreadPoolExecutor(count, "blocks") if count > 1 else None


def _threads() -> ThreadPoolExecutor | None:
    with _lock:
        return _pool()


os.register_at_fork(after_in_child=_pool.cache_clear)  # threads do not survive a fork
