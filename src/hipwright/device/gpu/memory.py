"""Device memory between two red zones, filled with poison, checked for stray writes after a run.

A GPU has no guard pages a program could set, so what lies in front of and behind every buffer is compared with what
was put there: when the buffer dies, and when `strays` asks. A write that leaps over the zone is not seen here; a read
is not seen at all (poison makes it show).
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
MOST = 1 << 20  # bytes of a zone
KEPT = 1 << 16  # bytes of a zone up to which a copy outlives the buffer
Fetch = Callable[[Any], Callable[[], Any]]


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
class _Zones:
    """Both zones of one buffer: int16 tensors, views of the zones or parts of a copy; `word` is what they hold.

    words: the same as few tensors. odd: the byte right behind a body of odd length, in a uint8 tensor of one element;
    None for an even one.
    """

    start: int
    nbytes: int
    word: int
    words: tuple[Any, ...]
    odd: Any

    def copied(self) -> _Zones:
        """As they are now."""
        odd = None if self.odd is None else self.odd.clone()
        return _Zones(self.start, self.nbytes, self.word, (torch.cat(self.words),), odd)

    def halves(self) -> tuple[Any, Any]:
        """The zone in front, and the one behind."""
        if len(self.words) == 2:
            return self.words[0], self.words[1]
        split = zone_bytes(self.nbytes) // 2
        return self.words[0][:split], self.words[0][split:]

    def first_changed(self) -> Any:
        """A device tensor (int64): where the nearest stray write lies, `Stray.offset` + 1 behind the buffer, the
        offset itself in front, 0 for none. No synchronisation."""
        front, back = (half != self.word for half in self.halves())
        behind = back.to(torch.int8).argmax() * 2 + (self.nbytes + self.nbytes % 2 + 1)
        before = front.flip(0).to(torch.int8).argmax() * -2 - 2
        none = torch.zeros((), dtype=torch.int64, device=front.device)
        found = torch.where(back.any(), behind, torch.where(front.any(), before, none))
        if self.odd is not None:
            wrong = self.odd[0] != self.word >> 8
            found = torch.where(wrong, torch.full_like(found, self.nbytes + 1), found)
        return found

    def paint(self) -> None:
        """Make them whole again."""
        for words in self.words:
            words.fill_(self.word)
        if self.odd is not None:
            self.odd.fill_(self.word >> 8)


class _Span:
    """Device memory as torch takes it from others (the CUDA array interface): its storage holds this object."""

    def __init__(self, address: int, nbytes: int) -> None:
        self.__cuda_array_interface__ = {
            "shape": (nbytes,),
            "typestr": "|u1",
            "data": (address, False),
            "version": 3,
            "strides": None,
        }


class GuardedDevice:
    """The guarded buffers of one launcher on one device ("cuda:0", or "cpu" for tests). Not for use in a graph."""

    def __init__(self, device: str) -> None:
        self.device = torch.device(device)
        self._alive: dict[int, _Zones] = {}  # by the buffer's address
        self._dead: list[_Zones] = []  # copies of the zones, as they were at the end
        self._told: list[tuple[int, int, Any]] = []  # of larger ones: start, size, what `first_changed` said

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
    def held(self) -> bool:
        """Whether there is any zone to look at."""
        return bool(self._alive or self._dead or self._told)

    def strays(self) -> list[Stray]:
        """Changed zones of every living buffer and of those that died since the last call. Synchronises.

        A zone that was written is whole again afterwards, so that each stray write is told once.
        """
        return self.look(())[0]

    def look(self, flags: Sequence[Any]) -> tuple[list[Stray], list[bool]]:
        """`strays`, and the values of flags (booleans on this device without a dimension), in one synchronisation
        where there is no stray."""
        return self.looking(flags)()

    def looking(self, flags: Sequence[Any], fetch: Fetch | None = None) -> Callable[[], tuple[list[Stray], list[bool]]]:
        """What tells `look` of now. fetch: starts to bring a tensor to the host -> what gives it, once the device has
        been waited for; None: it is read when it is asked for."""
        alive = list(self._alive.values())
        dead, self._dead = self._dead, []
        told, self._told = self._told, []
        changed = _changed([*alive, *dead], [flag for *_, flag in told])
        if not changed and not flags:
            return lambda: ([], [])
        stacked = torch.stack([*changed, *flags])
        fetched = fetch(stacked) if fetch is not None else lambda: stacked

        def look() -> tuple[list[Stray], list[bool]]:
            found = fetched().tolist()
            said = found[len(changed) :]
            if not any(found[: len(changed)]):
                return [], said
            asked = [(z.start, z.nbytes, z.first_changed()) for z in (*alive, *dead)] + told
            places = torch.stack([flag for *_, flag in asked]).tolist()
            for zones, at in zip(alive, places, strict=False):
                if at:
                    zones.paint()
            each = zip(asked, places, strict=True)
            strays = [Stray(start, size, at - 1 if at > 0 else at) for (start, size, _), at in each if at]
            return strays or [Stray(0, 0, 0)], said  # a later look has painted the zone: where it was is not known

        return look

    def _allocate(self, nbytes: int, poison: int) -> Any:
        """A 1-D uint8 tensor whose storage is exactly the body (one byte where it is empty)."""
        zone, held = zone_bytes(nbytes), max(nbytes, 1)
        word = pattern(poison)
        words = torch.empty((2 * zone + held + held % 2) // 2, dtype=torch.int16, device=self.device).fill_(word)
        start, end = int(words.data_ptr()) + zone, zone + nbytes
        odd = words.view(torch.uint8)[end : end + 1] if end % 2 else None
        # views, which every look takes: made once
        zones = _Zones(start, nbytes, word, (words[: zone // 2], words[(end + 1) // 2 :]), odd)
        self._alive[start] = zones
        holder: Any
        if self.device.type == "cpu":
            holder = (ctypes.c_ubyte * held).from_address(start)
            body = torch.frombuffer(holder, dtype=torch.uint8, count=held)
        else:
            holder = _Span(start, held)
            body = torch.as_tensor(holder, device=self.device)
        weakref.finalize(holder, self._bury, start).atexit = False
        return body if nbytes == held else body[:nbytes]

    def _bury(self, start: int) -> None:
        """The last tensor on a buffer is gone: look at its zones before torch gives the memory to someone else."""
        zones = self._alive.pop(start)
        if zone_bytes(zones.nbytes) <= KEPT:
            self._dead.append(zones.copied())
        else:
            self._told.append((start, zones.nbytes, zones.first_changed()))

    def _typed(self, flat: Any, dtype: Any, shape: tuple[int, ...], stride: tuple[int, ...], offset: int) -> Any:
        typed = torch.empty(0, dtype=dtype, device=self.device)
        return typed.set_(flat.untyped_storage(), offset, shape, stride)


def _changed(zones: Sequence[_Zones], flags: Sequence[Any]) -> list[Any]:
    """A few flags on the device, one of which is set where there is a stray write: nearly always there is none."""
    pieces: dict[int, list[Any]] = {}
    for one in zones:
        pieces.setdefault(one.word, []).extend(one.words)
    changed = [(torch.cat(words) != word).any() for word, words in pieces.items()]
    changed += [(one.odd != one.word >> 8).any() for one in zones if one.odd is not None]
    return changed + [flag != 0 for flag in flags]


def allocator(device: torch.device) -> Callable[[tuple[int, ...], torch.dtype], torch.Tensor]:
    """(shape, dtype) -> a contiguous tensor as `torch.empty` makes it, in a third of the time where torch has the call
    that its own compiler writes into what it makes. Raises TypeError or RuntimeError for a shape that is none."""
    kind = TORCH_GPU if device.type == TORCH_GPU else "cpu"
    strided: Callable[..., torch.Tensor] | None = getattr(torch._C._dynamo.guards, f"_empty_strided_{kind}", None)
    index = device.index or 0
    current: Callable[[], int] = torch._C._cuda_getDevice if kind == TORCH_GPU else lambda: index

    def plain(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        return torch.empty(shape, dtype=dtype, device=device)

    if strided is None:
        return plain

    def quick(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        return strided(shape, _dense(shape), dtype) if current() == index else plain(shape, dtype)

    return quick


@functools.lru_cache(maxsize=4096)
def _dense(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The strides of a contiguous tensor, as torch counts them."""
    strides = [1]
    for n in reversed(shape[1:]):
        strides.insert(0, strides[0] * max(n, 1))
    return tuple(strides) if shape else ()
