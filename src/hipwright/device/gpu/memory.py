"""Device memory between two red zones, filled with poison, checked for stray writes after a run.

A GPU has no guard pages that a program could set, so the zones in front of and behind every buffer are compared with
their original contents: when the buffer dies, and when `strays` is called. A write beyond the zone is not seen here;
a read is not seen at all (poison makes wrong values of it).
"""

from __future__ import annotations

import ctypes
import functools
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import torch

from hipwright.device.poison import NOISE, contiguous, pattern, plausible
from hipwright.targets import TORCH_GPU

ALIGN = 512  # bytes, torch's own alignment of device memory
LARGEST_ZONE = 1 << 20  # bytes
COPIED_ZONE = 1 << 16  # bytes of a zone up to which a copy outlives the buffer
Fetch = Callable[[Any], Callable[[], Any]]
"""Starts the copy of a device tensor to the host; the returned function gives the copy after a synchronisation."""


def zone_bytes(nbytes: int) -> int:
    """The size of each red zone: a 32nd of the buffer, between 512 B and 1 MiB, a multiple of 512."""
    return -(-min(max(nbytes // 32, ALIGN), LARGEST_ZONE) // ALIGN) * ALIGN


@dataclass(frozen=True)
class Stray:
    """A changed red-zone byte. start, size: the buffer's; offset: bytes from its start, negative in front."""

    start: int
    size: int
    offset: int


@dataclass(frozen=True)
class _Zones:
    """Both zones of one buffer. word: their 16-bit contents.

    words: int16 tensors: a view of each zone, or one copy of both. odd: the byte right behind a body of odd length, as
    a uint8 tensor of one element; None for an even one.
    """

    start: int
    nbytes: int
    word: int
    words: tuple[Any, ...]
    odd: Any

    def copied(self) -> _Zones:
        """A copy of the present contents."""
        odd = None if self.odd is None else self.odd.clone()
        return _Zones(self.start, self.nbytes, self.word, (torch.cat(self.words),), odd)

    def front_and_back(self) -> tuple[Any, Any]:
        """(the zone in front of the buffer, the zone behind it)."""
        if len(self.words) == 2:
            return self.words[0], self.words[1]
        split = zone_bytes(self.nbytes) // 2
        return self.words[0][:split], self.words[0][split:]

    def first_changed(self) -> Any:
        """The place of the nearest stray write as a device tensor (int64): `Stray.offset` + 1 behind the buffer, the
        offset itself in front of it, 0 for none. Does not synchronise."""
        front, back = (zone != self.word for zone in self.front_and_back())
        behind = back.to(torch.int8).argmax() * 2 + (self.nbytes + self.nbytes % 2 + 1)
        before = front.flip(0).to(torch.int8).argmax() * -2 - 2
        none = torch.zeros((), dtype=torch.int64, device=front.device)
        found = torch.where(back.any(), behind, torch.where(front.any(), before, none))
        if self.odd is not None:
            wrong = self.odd[0] != self.word >> 8
            found = torch.where(wrong, torch.full_like(found, self.nbytes + 1), found)
        return found

    def restore(self) -> None:
        """Fill the zones again."""
        for words in self.words:
            words.fill_(self.word)
        if self.odd is not None:
            self.odd.fill_(self.word >> 8)


class DeviceBytes:
    """Device memory by the CUDA array interface: the storage of a torch tensor made from it keeps this object alive."""

    def __init__(self, address: int, nbytes: int) -> None:
        self.__cuda_array_interface__ = {
            "shape": (nbytes,),
            "typestr": "|u1",
            "data": (address, False),
            "version": 3,
            "strides": None,
        }


class GuardedDevice:
    """The guarded buffers of one launcher on one device (a GPU, or "cpu" for tests). Not for use in a graph."""

    def __init__(self, device: str) -> None:
        self.device = torch.device(device)
        self._alive: dict[int, _Zones] = {}  # by the buffer's address
        self._dead: list[_Zones] = []  # copies of the zones of dead buffers
        self._dead_large: list[tuple[int, int, Any]] = []  # of large zones: start, size, `first_changed`

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

    @property
    def has_zones(self) -> bool:
        """Whether there is any zone to check."""
        return bool(self._alive or self._dead or self._dead_large)

    def strays(self) -> list[Stray]:
        """Changed zones of every living buffer and of those that died since the last call. Synchronises.

        A changed zone is filled again afterwards, so that each stray write is reported once.
        """
        return self.check(())[0]

    def check(self, flags: Sequence[Any]) -> tuple[list[Stray], list[bool]]:
        """(`strays`, the values of `flags`: booleans on this device without a dimension), in one synchronisation where
        there is no stray."""
        return self.deferred_check(flags)()

    def deferred_check(
        self, flags: Sequence[Any], fetch: Fetch | None = None
    ) -> Callable[[], tuple[list[Stray], list[bool]]]:
        """A function that returns what `check` would now. fetch: starts the copy of the flags to the host; the device
        must then be synchronised before the function is called. None: they are read when it is called."""
        alive = list(self._alive.values())
        dead, self._dead = self._dead, []
        large, self._dead_large = self._dead_large, []
        changed = _changed([*alive, *dead], [flag for *_, flag in large])
        if not changed and not flags:
            return lambda: ([], [])
        stacked = torch.stack([*changed, *flags])
        fetched = fetch(stacked) if fetch is not None else lambda: stacked

        def check() -> tuple[list[Stray], list[bool]]:
            found = fetched().tolist()
            values = found[len(changed) :]
            if not any(found[: len(changed)]):
                return [], values
            buffers = [(z.start, z.nbytes, z.first_changed()) for z in (*alive, *dead)] + large
            places = torch.stack([flag for *_, flag in buffers]).tolist()
            for zones, at in zip(alive, places, strict=False):
                if at:
                    zones.restore()
            each = zip(buffers, places, strict=True)
            strays = [Stray(start, size, at - 1 if at > 0 else at) for (start, size, _), at in each if at]
            return strays or [Stray(0, 0, 0)], values  # a later check has filled the zone again: the place is lost

        return check

    def _allocate(self, nbytes: int, poison: int) -> Any:
        """A 1-D uint8 tensor whose storage is exactly the body (one byte where it is empty)."""
        zone, held = zone_bytes(nbytes), max(nbytes, 1)
        word = pattern(poison)
        words = torch.empty((2 * zone + held + held % 2) // 2, dtype=torch.int16, device=self.device).fill_(word)
        start, end = int(words.data_ptr()) + zone, zone + nbytes
        odd = words.view(torch.uint8)[end : end + 1] if end % 2 else None
        # views, made once for all checks
        zones = _Zones(start, nbytes, word, (words[: zone // 2], words[(end + 1) // 2 :]), odd)
        self._alive[start] = zones
        holder: Any
        if self.device.type == "cpu":
            holder = (ctypes.c_ubyte * held).from_address(start)
            body = torch.frombuffer(holder, dtype=torch.uint8, count=held)
        else:
            holder = DeviceBytes(start, held)
            body = torch.as_tensor(holder, device=self.device)
        weakref.finalize(holder, self._released, start).atexit = False
        return body if nbytes == held else body[:nbytes]

    def _released(self, start: int) -> None:
        """Keep the state of a buffer's zones when its last tensor dies, before torch reuses the memory."""
        zones = self._alive.pop(start)
        if zone_bytes(zones.nbytes) <= COPIED_ZONE:
            self._dead.append(zones.copied())
        else:
            self._dead_large.append((start, zones.nbytes, zones.first_changed()))

    def _typed(self, flat: Any, dtype: Any, shape: tuple[int, ...], stride: tuple[int, ...], offset: int) -> Any:
        typed = torch.empty(0, dtype=dtype, device=self.device)
        return typed.set_(flat.untyped_storage(), offset, shape, stride)


def _changed(zones: Sequence[_Zones], flags: Sequence[Any]) -> list[Any]:
    """Flags on the device, at least one of them set where there is a stray write; few, as there rarely is one."""
    pieces: dict[int, list[Any]] = {}
    for one in zones:
        pieces.setdefault(one.word, []).extend(one.words)
    changed = [(torch.cat(words) != word).any() for word, words in pieces.items()]
    changed += [(one.odd != one.word >> 8).any() for one in zones if one.odd is not None]
    return changed + [flag != 0 for flag in flags]


def allocator(device: torch.device) -> Callable[[tuple[int, ...], torch.dtype], torch.Tensor]:
    """A function (shape, dtype) -> contiguous tensor, as torch.empty. It takes a third of the time where torch has the
    allocator that torch.compile emits calls of. Raises TypeError or RuntimeError for an invalid shape."""
    kind = TORCH_GPU if device.type == TORCH_GPU else "cpu"
    strided: Callable[..., torch.Tensor] | None = getattr(torch._C._dynamo.guards, f"_empty_strided_{kind}", None)
    index = device.index or 0
    current: Callable[[], int] = torch._C._cuda_getDevice if kind == TORCH_GPU else lambda: index

    def plain(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        return torch.empty(shape, dtype=dtype, device=device)

    if strided is None:
        return plain

    def fast(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        return strided(shape, _dense(shape), dtype) if current() == index else plain(shape, dtype)

    return fast


@functools.lru_cache(maxsize=4096)
def _dense(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The strides of a contiguous tensor, as torch counts them."""
    strides = [1]
    for n in reversed(shape[1:]):
        strides.insert(0, strides[0] * max(n, 1))
    return tuple(strides) if shape else ()
