"""Operators that read only selected elements of a tensor, and how much of it they read. Imports no torch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import prod

from hipwright.measure.cost import ITEM_BYTES, OpCall, Spec, base_name, tensor_bytes
from hipwright.task.placed import PLACED

_BAGS = frozenset({"embedding_bag", "_embedding_bag", "_embedding_bag_forward_only"})
GATHERS = _BAGS | {"embedding", "gather", "index", "_unsafe_index", "index_select", "take", "take_along_dim"}
"""Their first argument is the tensor, and a gather reads an element of it for each one of the result; a bag of an
embedding reads one for each index and column.
"""


def picked_bytes(ops: Iterable[OpCall]) -> Callable[[Spec], int]:
    """Counts, of a tensor that these operators use, the bytes that are read or written in place: where gathers and
    writes at some places alone use it, what these select; else all of it.

    The operators are gone through once, as a network has thousands, and as many parameters.
    """
    users: dict[tuple[str, int], list[OpCall]] = {}
    for call in ops:
        for key in {like(one) for one in call["in"]}:
            users.setdefault(key, []).append(call)
    known: dict[tuple[str, int], int | None] = {}

    def count(spec: Spec) -> int:
        key, whole = like(spec), tensor_bytes(spec)
        if key not in known:
            known[key] = _selected(key, users.get(key, []))
        selected = known[key]
        return whole if selected is None else min(whole, selected)

    return count


def _selected(key: tuple[str, int], users: Sequence[OpCall]) -> int | None:
    """Bytes that gathers and writes at some places select; None where others use the tensor too."""
    if not users or any(base_name(c["op"]) not in GATHERS | PLACED or like(c["in"][0]) != key for c in users):
        return None
    gathers = [call for call in users if base_name(call["op"]) in GATHERS and call["out"]]
    placed = sum(tensor_bytes(call["in"][-1]) for call in users if base_name(call["op"]) in PLACED)
    return ITEM_BYTES.get(key[0], 8) * sum(map(_elements, gathers)) + placed


def like(spec: Spec) -> tuple[str, int]:
    """The key of a tensor: dtype and number of elements, as records of operators do not name tensors."""
    return str(spec["dtype"]), prod(map(int, spec["shape"]))


def _elements(call: OpCall) -> int:
    if base_name(call["op"]) in _BAGS:
        return prod(map(int, call["in"][1]["shape"])) * int(call["out"][0]["shape"][-1])
    return prod(map(int, call["out"][0]["shape"]))
