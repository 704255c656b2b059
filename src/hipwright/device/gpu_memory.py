"""Device memory between two red zones, filled with poison, checked for stray writes after a run.

A GPU has no guard pages a program could set, so what lies in front of and behind every buffer is compared with what
was put there: when the buffer dies, and when `strays` asks. A write that leaps over the zone is not seen here; a read
is not seen at all (poison makes it show).
"""

from __future__ import annotations

import ctypes
import weakref
from dataclasses import dataclass
from math import prod
from typing import Any

import torch

from hipwright.device.memory import NOISE, contiguous, pattern, plausible

ALIGN = 512  # bytes, torch's own alignment of device memory
MOST = 1 << 20  # bytes of a zone


def zone_bytes(nbytes: int) -> int:
    """The size of each red zone: a 32nd of the buffer, between 512 B and 1 MiB, a multiple of 512."""
    return -(-min(max(nbytes // 32, ALIGN), MOST) // ALIGN) * ALIGN


@dataclass(frozen=True)
class Stray:
    """A changed red-zone byte. start, size: the buffer's; offset: bytes from its start, negative in front."""

    start: int
    size: int
    offset: int


@dataclass(frozen=True)
class _Zoned:
    """One buffer: `whole` is a uint8 tensor of zone, body and zone; `word` what the zones hold."""

    whole: Any
    zone: int
    nbytes: int
    word: int

    @property
    def start(self) -> int:
        return int(self.whole.data_ptr()) + self.zone

    def first_changed(self) -> Any:
        """A device tensor (int64): where the nearest stray write lies, `Stray.offset` + 1 behind the buffer, the
        offset itself in front, 0 for none. No synchronisation."""
        words = self.whole.view(torch.int16)
        body_end = self.zone + self.nbytes
        front, back = words[: self.zone // 2] != self.word, words[(body_end + 1) // 2 :] != self.word
        behind = back.to(torch.int8).argmax() * 2 + (self.nbytes + self.nbytes % 2 + 1)
        before = front.flip(0).to(torch.int8).argmax() * -2 - 2
        none = torch.zeros((), dtype=torch.int64, device=self.whole.device)
        found = torch.where(back.any(), behind, torch.where(front.any(), before, none))
        if body_end % 2:
            odd = self.whole[body_end] != self.word >> 8
            found = torch.where(odd, torch.full_like(found, self.nbytes + 1), found)
        return found


class _Span:
    """Device memory as torch takes it from others (the CUDA array interface): its storage holds this object."""

    def __init__(self, address: int, nbytes: int) -> None:
        self.__cuda_array_interface__ = {
            "shape": (nbytes,), "typestr": "|u1", "data": (address, False), "version": 3, "strides": None,
        }  # fmt: skip


class GuardedDevice:
    """The guarded buffers of one launcher on one device ("cuda:0", or "cpu" for tests). Not for use in a graph."""

    def __init__(self, device: str) -> None:
        self.device = torch.device(device)
        self._alive: dict[int, _Zoned] = {}  # by the buffer's address
        self._dead: list[tuple[int, int, Any]] = []  # start, size, what `first_changed` said at the end

    def empty(self, shape: tuple[int, ...], dtype: Any, poison: int) -> Any:
        """A contiguous tensor of poison; booleans hold its lowest bit, since torch allows them 0 and 1."""
        flat = self._allocate(prod(shape) * dtype.itemsize, poison)
        if dtype == torch.bool:
            flat.fill_(poison & 1)
        made = self._typed(flat, dtype, shape, contiguous(shape), 0)
        return plausible(made, poison) if poison & NOISE else made

    def copy(self, tensor: Any, poison: int) -> Any:
        """A copy of the tensor's whole storage on this device, with the same strides and offset."""
        storage = tensor.untyped_storage()
        flat = self._allocate(storage.nbytes(), poison)
        if storage.nbytes():
            flat.copy_(torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(storage))
        return self._typed(flat, tensor.dtype, tuple(tensor.shape), tensor.stride(), tensor.storage_offset())

    def strays(self) -> list[Stray]:
        """Changed zones of every living buffer and of those that died since the last call. Synchronises.

        A zone that was written is whole again afterwards, so that each stray write is told once.
        """
        alive = list(self._alive.values())
        dead, self._dead = self._dead, []
        asked = [(z.start, z.nbytes, z.first_changed()) for z in alive] + dead
        if not asked:
            return []
        found = torch.stack([flag for *_, flag in asked]).tolist()
        for zoned, at in zip(alive, found, strict=False):
            if at:
                _paint(zoned)
        places = zip(asked, found, strict=True)
        return [Stray(start, size, at - 1 if at > 0 else at) for (start, size, _), at in places if at]

    def _allocate(self, nbytes: int, poison: int) -> Any:
        """A 1-D uint8 tensor whose storage is exactly the body (one byte where it is empty)."""
        zone, held = zone_bytes(nbytes), max(nbytes, 1)
        whole = torch.empty(2 * zone + held + held % 2, dtype=torch.uint8, device=self.device)
        zoned = _Zoned(whole, zone, nbytes, pattern(poison))
        whole.view(torch.int16).fill_(zoned.word)
        self._alive[zoned.start] = zoned
        holder: Any
        if self.device.type == "cpu":
            holder = (ctypes.c_ubyte * held).from_address(zoned.start)
            body = torch.frombuffer(holder, dtype=torch.uint8, count=held)
        else:
            holder = _Span(zoned.start, held)
            body = torch.as_tensor(holder, device=self.device)
        weakref.finalize(holder, self._bury, zoned.start).atexit = False
        return body[:nbytes]

    def _bury(self, start: int) -> None:
        """The last tensor on a buffer is gone: look at its zones before torch gives the memory to someone else."""
        zoned = self._alive.pop(start)
        self._dead.append((start, zoned.nbytes, zoned.first_changed()))

    def _typed(self, flat: Any, dtype: Any, shape: tuple[int, ...], stride: tuple[int, ...], offset: int) -> Any:
        typed = torch.empty(0, dtype=dtype, device=self.device)
        return typed.set_(flat.untyped_storage(), offset, shape, stride)


def _paint(zoned: _Zoned) -> None:
    words = zoned.whole.view(torch.int16)
    end = zoned.zone + zoned.nbytes
    words[: zoned.zone // 2].fill_(zoned.word)
    words[(end + 1) // 2 :].fill_(zoned.word)
    if end % 2:
        zoned.whole[end].fill_(zoned.word >> 8)
