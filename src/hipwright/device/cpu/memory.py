"""Guarded memory: torch tensors between two inaccessible pages, filled with poison, checked for stray writes.

The end of a buffer lies within 15 bytes of the page behind it (16-byte alignment, as the widest GPU access needs);
those bytes, and the 64 in front, are a red zone. Memory is unmapped when the last tensor on it dies.
"""

from __future__ import annotations

import bisect
import ctypes
import mmap
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod

import torch

from hipwright.device.poison import NOISE, contiguous, pattern, plausible

PAGE = mmap.PAGESIZE
ALIGN, FRONT = 16, 64
_PROT_NONE, _PROT_READ, _PROT_RW = 0, 1, 3
_MAP = 0x4022  # MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long)
_libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
_libc.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)


@dataclass(frozen=True)
class GuardedRegion:
    """One buffer: its first byte, its size in bytes, and the mapping around it."""

    start: int
    size: int
    base: int
    length: int
    word: int

    def stray(self) -> int | None:
        """The offset (bytes, relative to the buffer) of a changed red-zone byte, None where all are intact."""
        expected = self.word.to_bytes(2, "little")
        for begin, count in ((self.start - FRONT, FRONT), (self.start + self.size, self._slack())):
            raw = ctypes.string_at(begin, count) if count else b""
            if raw != bytes(expected[(begin + i) & 1] for i in range(count)):
                return next(begin + i - self.start for i in range(count) if raw[i] != expected[(begin + i) & 1])
        return None

    def _slack(self) -> int:
        return self.base + self.length - PAGE - self.start - self.size


class GuardedMemory:
    """The guarded buffers of one launcher, by address."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._regions: dict[int, GuardedRegion] = {}

    def find(self, address: int) -> GuardedRegion | None:
        """The buffer that contains the address (an empty one: its first byte alone), None without one."""
        i = bisect.bisect_right(self._starts, address) - 1
        if i < 0:
            return None
        region = self._regions[self._starts[i]]
        return region if address < region.start + max(region.size, 1) else None

    def allocate(self, nbytes: int, poison: int) -> torch.Tensor:
        """A 1-D uint8 tensor over a new buffer, filled with `pattern(poison)`."""
        body = -(-(nbytes + FRONT + ALIGN) // PAGE) * PAGE
        length = body + 2 * PAGE
        base = _libc.mmap(None, length, _PROT_NONE, _MAP, -1, 0)
        if base is None or base == ctypes.c_void_p(-1).value:
            raise MemoryError(f"cannot map {length} bytes")
        if _libc.mprotect(base + PAGE, body, _PROT_RW):  # too many mappings, or a resource limit
            _libc.munmap(base, length)
            raise MemoryError(f"cannot use {body} bytes")
        held = max(nbytes, 1)  # torch's storage of an empty buffer has one byte, which may be read
        start = (base + PAGE + body - held) // ALIGN * ALIGN
        region = GuardedRegion(start, nbytes, base, length, pattern(poison))
        _fill(base + PAGE, body, region.word)
        holder = (ctypes.c_ubyte * held).from_address(start)
        bisect.insort(self._starts, start)
        self._regions[start] = region
        weakref.finalize(holder, self._free, region).atexit = False
        return torch.frombuffer(holder, dtype=torch.uint8, count=held)

    def _free(self, region: GuardedRegion) -> None:
        self._starts.remove(region.start)
        del self._regions[region.start]
        _libc.munmap(region.base, region.length)

    def empty(self, shape: tuple[int, ...], dtype: torch.dtype, poison: int) -> torch.Tensor:
        """A contiguous tensor of poison; booleans hold its lowest bit, since torch allows them 0 and 1."""
        flat = self.allocate(prod(shape) * dtype.itemsize, poison)
        if dtype == torch.bool:
            flat[: prod(shape)].fill_(poison & 1)
        made = as_dtype(flat, dtype, shape, contiguous(shape), 0)
        return plausible(made, poison) if poison & NOISE else made

    def copy(self, tensor: torch.Tensor, poison: int) -> torch.Tensor:
        """A copy of the tensor's whole storage with the same strides and offset."""
        storage = tensor.untyped_storage()
        flat = self.allocate(storage.nbytes(), poison)
        if storage.nbytes():
            flat[: storage.nbytes()].copy_(raw_bytes(tensor))
        return as_dtype(flat, tensor.dtype, tuple(tensor.shape), tensor.stride(), tensor.storage_offset())


@contextmanager
def write_protected(regions: Sequence[GuardedRegion]) -> Iterator[None]:
    """Makes the pages of buffers read-only, red zones included."""
    try:
        for region in regions:
            _libc.mprotect(region.base + PAGE, region.length - 2 * PAGE, _PROT_READ)
        yield
    finally:
        for region in regions:
            _libc.mprotect(region.base + PAGE, region.length - 2 * PAGE, _PROT_RW)


def raw_bytes(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor's whole storage as 1-D uint8, sharing memory."""
    return torch.empty(0, dtype=torch.uint8).set_(tensor.untyped_storage())


def as_dtype(
    flat: torch.Tensor, dtype: torch.dtype, shape: tuple[int, ...], stride: tuple[int, ...], offset: int
) -> torch.Tensor:
    """A strided view of a uint8 buffer as another dtype."""
    typed = torch.empty(0, dtype=dtype)
    return typed.set_(flat.untyped_storage(), offset, shape, stride)


def _fill(start: int, nbytes: int, word: int) -> None:
    low, high = word & 0xFF, word >> 8
    ctypes.memset(start, high, nbytes)
    if low != high:  # 16-bit words by a tensor view: libc has no 16-bit memset
        raw = (ctypes.c_ubyte * nbytes).from_address(start)
        torch.frombuffer(raw, dtype=torch.int16)[:] = word
