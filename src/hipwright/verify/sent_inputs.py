"""Inputs that a candidate worker keeps after they were sent, as every program of a task runs on the same ones."""

from __future__ import annotations

import itertools
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field

from hipwright.tensors import Tree, tensor_leaves

KEPT_BYTES = 256 << 20  # in a worker's host memory
LARGE_BYTES = 16 << 20  # inputs above this are sent each time


@dataclass
class SentInputs:
    """The names of the inputs that one worker process holds, kept in the parent.

    A tree is identified by its id, and kept alive as long as its name is used, so that no other tree can have the same
    id.
    """

    _known: OrderedDict[int, tuple[str, Tree, int]] = field(default_factory=OrderedDict)
    _ids: itertools.count[int] = field(default_factory=lambda: itertools.count(1))
    _drop: list[str] = field(default_factory=list)

    def request(self, inputs: Sequence[Tree]) -> tuple[list[str], list[str], list[Tree]]:
        """(a name for each, "" for what is not kept; names to forget; trees to send, None for what the worker has)."""
        names: list[str] = []
        bundle: list[Tree] = []
        for tree in inputs:
            found = self._known.get(id(tree))
            if found is not None:
                self._known.move_to_end(id(tree))
                names.append(found[0])
                bundle.append(None)
                continue
            size = sum(tensor.storage.nbytes for tensor in tensor_leaves(tree))
            name = f"{next(self._ids)}" if size <= LARGE_BYTES else ""
            if name:
                self._known[id(tree)] = name, tree, size
            names.append(name)
            bundle.append(tree)
        drop, self._drop = [*self._drop, *self._over(set(names))], []
        return names, drop, bundle

    def clear(self) -> None:
        """Empties the list, for a new process."""
        self._known.clear()
        self._drop.clear()

    def retire(self) -> None:
        """Marks all inputs of a finished task; the worker forgets them with the next request."""
        self._drop += [name for name, _, _ in self._known.values()]
        self._known.clear()

    def _over(self, needed: set[str]) -> list[str]:
        """Names of the oldest trees beyond `KEPT_BYTES`; never those of the current request."""
        dropped = []
        held = sum(size for _, _, size in self._known.values())
        for key, (name, _, size) in list(self._known.items()):
            if held <= KEPT_BYTES:
                break
            if name not in needed:
                del self._known[key]
                dropped.append(name)
                held -= size
        return dropped
