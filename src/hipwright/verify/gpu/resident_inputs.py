"""Inputs that stay on the device for many candidates, with digests that are checked before and after each use. Imports
torch.

On the worker's side. A set has slots, each with one full set of forward's arguments. Every tensor lies between red
zones of its own. A write to a slot is found by the next check, and the slot is then filled again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from hipwright.device.placement import page_aligned_bytes
from hipwright.digest import digests, finished, sums
from hipwright.records import TensorSpec
from hipwright.tensors import BITS, HostTensor, Tree
from hipwright.torchio import DTYPES
from hipwright.verify.gpu.bridge.worker_end import part
from hipwright.verify.worker.trees import tensors_of

ZONE = 4096  # bytes of red zone before and after each tensor
ZONE_BYTE = 0xA5


@dataclass
class InputSlot:
    """One set of arguments.

    wholes: each tensor's memory, zones included. digests: the expected digests of the spans.
    """

    arguments: list[Any]
    wholes: list[Any]
    seed: int
    digests: tuple[int, ...] | None = None

    def tensors(self) -> list[Any]:
        """The tensor leaves in order."""
        return tensors_of(self.arguments)

    def hashes(self) -> tuple[int, ...]:
        """The current digests."""
        return tuple(digests(list(self.tensors()), self.seed))

    def changed(self) -> list[int]:
        """Leaves whose values have changed."""
        return find_writes([self])[0][1]

    def strays(self) -> list[int]:
        """Leaves next to which something was written; restores the zones."""
        return find_writes([self])[0][0]


def find_writes(slots: Sequence[InputSlot]) -> list[tuple[list[int], list[int]]]:
    """(strays, changed) of each slot, with one wait for the device, as many processes share it."""
    zones = [[(torch.cat(_zones(whole)) != ZONE_BYTE).any() for whole in slot.wholes] for slot in slots]
    totals = [sums(slot.tensors(), slot.seed) if slot.digests is not None else [] for slot in slots]
    asked = [flag.to(torch.int64) for flags in zones for flag in flags] + [one for some in totals for one in some]
    values = iter(torch.stack(asked).tolist() if asked else [])
    strays = [[leaf for leaf, wrong in enumerate([next(values) for _ in flags]) if wrong] for flags in zones]
    found = []
    for slot, leaves in zip(slots, strays, strict=True):
        for leaf in leaves:
            for zone in _zones(slot.wholes[leaf]):
                zone.fill_(ZONE_BYTE)
        found.append((leaves, _changed(slot, values)))
    return found


def _changed(slot: InputSlot, values: Iterator[int]) -> list[int]:
    tensors = slot.tensors()
    if slot.digests is None:
        return list(range(len(tensors)))
    now = [finished(tensor, next(values)) for tensor in tensors]
    return [leaf for leaf, (one, was) in enumerate(zip(now, slot.digests, strict=True)) if one != was]


class ResidentInputs:
    """The resident sets of one worker, by name."""

    def __init__(self, device: str) -> None:
        self.device = device
        self._slots: dict[str, dict[int, InputSlot]] = {}

    def open(self, name: str, number: int, arguments: Tree, seed: int) -> None:
        """Allocates a slot, or prepares to overwrite it at its addresses where it has the same tensors."""
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
        """Writes bytes of a leaf's span (hipwright.digest.span)."""
        body = self.part(name, number, leaf, offset, chunk.numel)
        body.copy_(torch.from_numpy(chunk.storage[: chunk.numel]))

    def part(self, name: str, number: int, leaf: int, offset: int, nbytes: int) -> Any:
        """Bytes of a leaf's span, to be written."""
        return part(self.slot(name, number).tensors()[leaf], offset, nbytes)

    def done(self, name: str, number: int, digests: tuple[int, ...] | None) -> bool:
        """Whether the slot holds what was sent.

        Without digests to compare with, the current values count as correct.
        """
        slot = self.slot(name, number)
        found = slot.hashes()
        slot.digests = found if digests is None else digests
        return slot.digests == found

    def slot(self, name: str, number: int) -> InputSlot:
        """The slot. KeyError if there is none."""
        return self._slots[name][number]

    def stale(self, name: str, slots: int) -> list[int]:
        """Slots that are missing or were changed."""
        known = self._slots.get(name, {})
        there = [n for n in range(slots) if n in known]
        whole = {
            n
            for n, (zones, values) in zip(there, find_writes([known[n] for n in there]), strict=True)
            if not zones and not values
        }
        return [n for n in range(slots) if n not in whole]

    def audit(self) -> list[list[Any]]:
        """[set, slot, leaf, "value" or "zone"] of everything that was written to; drops changed slots."""
        found: list[list[Any]] = []
        places = [(name, number, slot) for name, slots in self._slots.items() for number, slot in slots.items()]
        filled = [place for place in places if place[2].digests is not None]
        for (name, number, slot), (zones, values) in zip(
            filled, find_writes([slot for *_, slot in filled]), strict=True
        ):
            found += [[name, number, leaf, "zone"] for leaf in zones]
            found += [[name, number, leaf, "value"] for leaf in values]
            if values:
                slot.digests = None
        return found

    def free(self, name: str) -> None:
        """Frees a set."""
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
    """The form of the tensors of a nesting, equal for torch tensors and their specs."""
    if isinstance(tree, (tuple, list)):
        return [_shapes(item) for item in tree]
    if isinstance(tree, dict):
        return [[key, _shapes(item)] for key, item in tree.items()]
    if isinstance(tree, TensorSpec):
        return [tree.dtype, list(tree.shape), list(tree.stride)]
    if isinstance(tree, torch.Tensor):
        return [str(tree.dtype).removeprefix("torch."), list(tree.shape), list(tree.stride())]
    return [tree]
