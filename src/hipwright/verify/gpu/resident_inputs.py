"""Inputs that stay on the device for many candidates: filled chunk by chunk, digest-checked before and after each use.

Worker side; imports torch. A set has slots, each one full set of forward's arguments. Every tensor lies between red
zones of its own. Whoever writes to a set is caught when it is looked at next, and the slot is then filled anew.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from hipwright.device.placement import page_aligned_bytes
from hipwright.digest import digests, finished, span, sums
from hipwright.records import TensorSpec
from hipwright.tensors import BITS, HostTensor, Tree
from hipwright.torchio import DTYPES
from hipwright.verify.worker.trees import tensors_of

ZONE = 4096  # bytes of red zone in front of and behind each tensor
ZONE_BYTE = 0xA5


@dataclass
class InputSlot:
    """One set of arguments. wholes: each tensor's memory, zones included. digests: what its span must hash to."""

    arguments: list[Any]
    wholes: list[Any]
    seed: int
    digests: tuple[int, ...] | None = None

    def tensors(self) -> list[Any]:
        """The tensor leaves in order."""
        return tensors_of(self.arguments)

    def hashes(self) -> tuple[int, ...]:
        """The digests as they are now."""
        return tuple(digests(list(self.tensors()), self.seed))

    def changed(self) -> list[int]:
        """Leaves whose values are no longer what was put there."""
        return look([self])[0][1]

    def strays(self) -> list[int]:
        """Leaves beside which something was written; the zones are made whole again."""
        return look([self])[0][0]


def look(slots: Sequence[InputSlot]) -> list[tuple[list[int], list[int]]]:
    """(strays, changed) of each slot, in one wait for the device: many processes share it."""
    zones = [[(torch.cat(_zones(whole)) != ZONE_BYTE).any() for whole in slot.wholes] for slot in slots]
    totals = [sums(slot.tensors(), slot.seed) if slot.digests is not None else [] for slot in slots]
    asked = [flag.to(torch.int64) for flags in zones for flag in flags] + [one for some in totals for one in some]
    told = iter(torch.stack(asked).tolist() if asked else [])
    strays = [[leaf for leaf, wrong in enumerate([next(told) for _ in flags]) if wrong] for flags in zones]
    found = []
    for slot, leaves in zip(slots, strays, strict=True):
        for leaf in leaves:
            for zone in _zones(slot.wholes[leaf]):
                zone.fill_(ZONE_BYTE)
        found.append((leaves, _changed(slot, told)))
    return found


def _changed(slot: InputSlot, told: Iterator[int]) -> list[int]:
    tensors = slot.tensors()
    if slot.digests is None:
        return list(range(len(tensors)))
    now = [finished(tensor, next(told)) for tensor in tensors]
    return [leaf for leaf, (one, was) in enumerate(zip(now, slot.digests, strict=True)) if one != was]


class ResidentInputs:
    """The resident sets of one worker, by name."""

    def __init__(self, device: str) -> None:
        self.device = device
        self._slots: dict[str, dict[int, InputSlot]] = {}

    def open(self, name: str, number: int, arguments: Tree, seed: int) -> None:
        """Make room for a slot, or get ready to overwrite it at its addresses where the same tensors lie there."""
        slots = self._slots.setdefault(name, {})
        known = slots.get(number)
        if known is not None and _shapes(known.arguments) == _shapes(arguments):
            known.seed, known.digests = seed, None
            known.strays()
            return
        slots.pop(number, None)
        wholes: list[Any] = []
        made = [_make(argument, self.device, wholes) for argument in arguments]
        slots[number] = InputSlot(made, wholes, seed)

    def fill(self, name: str, number: int, leaf: int, offset: int, chunk: HostTensor) -> None:
        """Bytes of a leaf's span (hipwright.digest.span)."""
        body = span(self.slot(name, number).tensors()[leaf])
        body[offset : offset + chunk.numel].data.copy_(torch.from_numpy(chunk.storage[: chunk.numel]))

    def done(self, name: str, number: int, digests: tuple[int, ...] | None) -> bool:
        """Whether what arrived is what was sent; without digests to compare with, what is there now counts as right."""
        slot = self.slot(name, number)
        found = slot.hashes()
        slot.digests = found if digests is None else digests
        return slot.digests == found

    def slot(self, name: str, number: int) -> InputSlot:
        """The slot. KeyError if there is none."""
        return self._slots[name][number]

    def stale(self, name: str, slots: int) -> list[int]:
        """Slots that are missing or no longer hold what was put there."""
        known = self._slots.get(name, {})
        there = [n for n in range(slots) if n in known]
        whole = {
            n
            for n, (zones, values) in zip(there, look([known[n] for n in there]), strict=True)
            if not zones and not values
        }
        return [n for n in range(slots) if n not in whole]

    def audit(self) -> list[list[Any]]:
        """[set, slot, leaf, "value" or "zone"] of everything that was written to; what was changed is forgotten."""
        found: list[list[Any]] = []
        places = [(name, number, slot) for name, slots in self._slots.items() for number, slot in slots.items()]
        filled = [place for place in places if place[2].digests is not None]
        for (name, number, slot), (zones, values) in zip(filled, look([slot for *_, slot in filled]), strict=True):
            found += [[name, number, leaf, "zone"] for leaf in zones]
            found += [[name, number, leaf, "value"] for leaf in values]
            if values:
                slot.digests = None
        return found

    def free(self, name: str) -> None:
        """Give the memory back."""
        self._slots.pop(name, None)


def _make(argument: Any, device: str, wholes: list[Any]) -> Any:
    if isinstance(argument, (tuple, list)):
        return type(argument)(_make(item, device, wholes) for item in argument)
    if isinstance(argument, dict):
        return {key: _make(item, device, wholes) for key, item in argument.items()}
    if not isinstance(argument, TensorSpec):
        return argument
    extent = 1 + sum((n - 1) * s for n, s in zip(argument.shape, argument.stride, strict=True))
    nbytes = (0 if 0 in argument.shape else extent) * BITS[argument.dtype].itemsize
    whole = page_aligned_bytes(nbytes, device, margin=ZONE).fill_(ZONE_BYTE)
    wholes.append(whole)
    begin = (whole.storage_offset() + ZONE) // BITS[argument.dtype].itemsize
    flat = torch.empty(0, dtype=DTYPES[argument.dtype], device=device)
    return flat.set_(whole.untyped_storage(), begin, argument.shape, argument.stride)


def _zones(whole: Any) -> tuple[Any, Any]:
    return whole[:ZONE], whole[whole.numel() - ZONE :]


def _shapes(tree: Any) -> list[Any]:
    """What the tensors of a nesting look like, torch tensors and specs alike."""
    if isinstance(tree, (tuple, list)):
        return [_shapes(item) for item in tree]
    if isinstance(tree, dict):
        return [[key, _shapes(item)] for key, item in tree.items()]
    if isinstance(tree, TensorSpec):
        return [tree.dtype, list(tree.shape), list(tree.stride)]
    if isinstance(tree, torch.Tensor):
        return [str(tree.dtype).removeprefix("torch."), list(tree.shape), list(tree.stride())]
    return [tree]
