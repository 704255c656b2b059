"""Parameters that stay in the process that made them: the parent has their specs, and a recipe that makes them again.

Parameters of gigabytes are neither sent nor changed in the parent. Bytes are fetched where a tensor's storage is read,
as when it is sent to a process that has no other way to it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import inf
from typing import Any, Protocol
from weakref import WeakValueDictionary

import numpy as np
import numpy.typing as npt

from hipwright.records import TensorSpec
from hipwright.tensors import HostTensor, Tree

Recipe = Mapping[str, Any]
"""{"kind": how, its arguments, "of": the recipe of the table it begins with}, as `task.device.made_states` has them."""


class HeldTensor(HostTensor):
    """A tensor whose bytes are elsewhere: from its first element to its last they are fetched when they are read.

    place: the path under which they are kept; tied parameters have one.
    """

    def __init__(self, spec: TensorSpec, place: str, table: HeldTable) -> None:
        for name, value in (("dtype", spec.dtype), ("shape", spec.shape), ("stride", spec.stride), ("offset", 0)):
            object.__setattr__(self, name, value)
        object.__setattr__(self, "place", place)
        object.__setattr__(self, "table", table)

    place: str
    table: HeldTable

    @property
    def storage(self) -> npt.NDArray[np.uint8]:
        """The bytes, fetched now unless someone still has them."""
        return self.table.bytes_of(self.place)


@dataclass(frozen=True)
class HeldBy:
    """Who holds tables.

    make: the tensors of a recipe, path -> (spec, place); fetch: the bytes of one place; host: the process (of
    `verify.gpu.bridge`); bridged(recipe, place, bridge, offset, bytes): puts some of them into a bridge.
    """

    make: Callable[[Recipe], Mapping[str, tuple[TensorSpec, str]]]
    fetch: Callable[[Recipe, str], npt.NDArray[np.uint8]]
    host: Callable[[], Any]
    bridged: Callable[[Recipe, str, int, int, int], None]


class HeldTable(dict[str, HostTensor]):
    """The parameters of a state table, by path, all of them held. recipe: makes them."""

    def __init__(self, holder: HeldBy, recipe: Recipe) -> None:
        super().__init__()
        self.holder, self.recipe = holder, recipe
        self._fetched: WeakValueDictionary[str, npt.NDArray[np.uint8]] = WeakValueDictionary()
        for path, (spec, place) in holder.make(recipe).items():
            self[path] = HeldTensor(spec, place, self)

    def changed(self, kind: str, **arguments: Any) -> HeldTable:
        """The table that a change of this one gives."""
        return HeldTable(self.holder, {"kind": kind, **arguments, "of": self.recipe})

    def bytes_of(self, place: str) -> npt.NDArray[np.uint8]:
        """The bytes at a place."""
        found = self._fetched.get(place)
        if found is None:
            found = self._fetched[place] = self.holder.fetch(self.recipe, place)
        return found


def held(state: Tree) -> HeldTable | None:
    """The held parameters of a state table; None where they are at hand."""
    params = state.get("params")
    return params if isinstance(params, HeldTable) else None


def key_of(recipe: Recipe) -> str:
    """The name of what a recipe makes."""
    return json.dumps(recipe, sort_keys=True)


@dataclass(frozen=True)
class HeldFrom:
    """From which bytes of parameters, or operations of a forward, on the reference runs in the device host.

    slow: from which bytes on every run takes seconds there too. outputs: elements of outputs above which the task's own
    workloads are judged there alone.
    """

    bytes: int
    operations: float
    slow: float = inf
    outputs: float = inf


ON_GPU = HeldFrom(32 << 20, float(1 << 30), outputs=float(1 << 21))
"""On a GPU: so many operations take seconds in float64 on two processors, milliseconds there. Six results of so many
elements, in float64, and their budgets fill 150 MB of the parent for each case."""
ON_CPU = HeldFrom(256 << 20, inf, slow=128 << 20)
"""In a process on the CPU: a parent that changes five tables of gigabytes itself fills a laptop's memory."""


class ReferenceElsewhere(Protocol):
    """Runs of the reference outside the task host, on states whose parameters stay there."""

    def init_state(self, seed: int) -> Tree | None:
        """The state table of a Model constructed under a seed; None where it cannot be held."""

    def run(self, header: Mapping[str, Any], inputs: Tree, state: Tree) -> Any:
        """(outputs, buffers, info) of one run, as the task host returns them."""
