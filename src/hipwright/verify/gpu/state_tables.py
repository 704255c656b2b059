"""State tables that stay on a worker's device between candidates. Imports torch."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from hipwright.digest import digests
from hipwright.records import TensorSpec
from hipwright.tensors import Tree
from hipwright.torchio import DTYPES
from hipwright.verify.gpu.bridge.worker_end import part
from hipwright.verify.worker.trees import on_device, tensors_of

STATE_SEED = 0x5EED
STATES = 4  # state tables that stay on the device


class StateTables:
    """The latest tables by the parent's keys, each with digests, as a candidate may have written to one."""

    def __init__(self, device: str) -> None:
        self._device = device
        self._tables: dict[str, Tree] = {}

    def open(self, key: str, table: Tree, places: Mapping[str, str]) -> None:
        """Allocates a table whose parameters will be filled. table: with a spec for each; places: by path, the path
        whose memory it shares.
        """
        made: dict[str, torch.Tensor] = {}
        for path, place in places.items():
            made[path] = made[place] if place in made else _empty(table["params"][path], self._device)
        self._make_room()
        self._tables[key] = {**table, "params": made, "buffers": on_device(table["buffers"], self._device)}

    def part(self, key: str, path: str, offset: int, nbytes: int) -> torch.Tensor:
        """Bytes of a parameter's span, to be written."""
        return part(self._tables[key]["params"][path], offset, nbytes)

    def done(self, key: str) -> None:
        """Everything is written: from here on a change is a candidate's."""
        self._tables[key]["digests"] = _digests(self._tables[key])

    def get(self, key: str, table: Tree) -> Tree | None:
        """The table of that key on the device, if it is there and unchanged."""
        if table is not None:
            self._make_room()
            held = {**table, **on_device({k: table[k] for k in ("params", "buffers")}, self._device)}
            self._tables[key] = held
            held["digests"] = _digests(held)
            return {k: v for k, v in held.items() if k != "digests"}  # nothing could write to it in between
        known = self._tables.get(key)
        if known is not None and known.get("digests") != _digests(known):
            known = self._tables.pop(key) and None
        return {k: v for k, v in known.items() if k != "digests"} if known is not None else None

    def _make_room(self) -> None:
        while len(self._tables) >= STATES:
            self._tables.pop(next(iter(self._tables)))


def _empty(spec: TensorSpec, device: str) -> torch.Tensor:
    extent = 1 + sum((n - 1) * s for n, s in zip(spec.shape, spec.stride, strict=True)) if 0 not in spec.shape else 0
    flat = torch.zeros(extent, dtype=DTYPES[spec.dtype], device=device)
    return torch.as_strided(flat, spec.shape, spec.stride)


def _digests(table: Tree) -> list[int]:
    """The digest of every parameter and buffer."""
    return digests(list(tensors_of([table["params"], table["buffers"]])), STATE_SEED)
