"""What a forward returns: tensors, which are copied out of a graph, and what stands around them."""

from __future__ import annotations

import io
import pickle
from typing import Any, NamedTuple

import torch
from torch.utils import _pytree as pytree

PLAIN = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device)
"""Leaves of arguments and results beside tensors."""


class Holder(NamedTuple):
    """An object around tensors, as a cache of keys and values is. places: of its tensors among those of the result."""

    pickled: bytes
    places: list[int]

    def around(self, tensors: list[torch.Tensor]) -> Any:
        """A new object of the kind, with these tensors of the result."""
        return _Opening(self.pickled, [tensors[place] for place in self.places]).load()


class Forwarded(NamedTuple):
    """What a forward returned. tensors: of it, each once; leaves: places in these, holders, or plain values as
    (value,)."""

    value: Any
    tensors: list[torch.Tensor]
    leaves: list[int | Holder | tuple[Any]]
    structure: Any

    @classmethod
    def of(cls, value: Any) -> Forwarded:
        """Of a module's result. Objects that hold tensors and can be pickled are holders."""
        leaves, structure = pytree.tree_flatten(value)
        tensors: list[torch.Tensor] = []
        places: dict[int, int] = {}

        def place(tensor: torch.Tensor) -> int:
            if id(tensor) not in places:
                places[id(tensor)] = len(tensors)
                tensors.append(tensor)
            return places[id(tensor)]

        found: list[int | Holder | tuple[Any]] = []
        for leaf in leaves:
            held = _held(leaf) if not isinstance(leaf, (torch.Tensor, *PLAIN)) else None
            if isinstance(leaf, torch.Tensor):
                found.append(place(leaf))
            else:
                found.append((leaf,) if held is None else Holder(held[0], [place(one) for one in held[1]]))
        return cls(value, tensors, found, structure)

    def all_leaves(self) -> list[Any]:
        """Tensors and plain values."""
        return [*self.tensors, *(one[0] for one in self.leaves if not isinstance(one, (int, Holder)))]

    def copied(self) -> Forwarded:
        """The same result in memory of its own."""
        tensors = [one.clone() for one in self.tensors]

        def leaf(one: int | Holder | tuple[Any]) -> Any:
            if isinstance(one, Holder):
                return one.around(tensors)
            return tensors[one] if isinstance(one, int) else one[0]

        value = pytree.tree_unflatten([leaf(one) for one in self.leaves], self.structure)
        return self._replace(value=value, tensors=tensors)


class _Closing(pickle.Pickler):
    """Leaves the tensors out, and keeps them in order."""

    def __init__(self) -> None:
        self.file, self.tensors = io.BytesIO(), list[torch.Tensor]()
        super().__init__(self.file, pickle.HIGHEST_PROTOCOL)

    def persistent_id(self, value: Any) -> int | None:
        """The number of a tensor; None for all else, which is pickled."""
        if not isinstance(value, torch.Tensor):
            return None
        self.tensors.append(value)
        return len(self.tensors) - 1


class _Opening(pickle.Unpickler):
    """Puts tensors back."""

    def __init__(self, pickled: bytes, tensors: list[torch.Tensor]) -> None:
        super().__init__(io.BytesIO(pickled))
        self._tensors = tensors

    def persistent_load(self, number: Any) -> torch.Tensor:
        """The tensor of a number."""
        return self._tensors[number]


def _held(value: Any) -> tuple[bytes, list[torch.Tensor]] | None:
    """(an object without its tensors, these); None for one that holds none, is a module, or cannot be pickled."""
    closing = _Closing()
    try:
        if not isinstance(value, torch.nn.Module):
            closing.dump(value)
    except Exception:  # classes of a function, open files, locks and the like
        return None
    return (closing.file.getvalue(), closing.tensors) if closing.tensors else None
