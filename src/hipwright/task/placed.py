"""Operators that write to some elements of a tensor in place, and inputs that a forward writes as a whole. No torch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import prod
from typing import Any

from hipwright.records import TensorSpec

PLACED = frozenset({"index_copy_", "index_put_", "_index_put_impl_", "scatter_", "index_fill_"})
"""Operators that write to some elements of their first argument, and read none of it."""


def whole(spec: TensorSpec, calls: Iterable[Mapping[str, Any]]) -> bool:
    """Whether an operator in place writes to every element of an input of this form. calls: records of `OpTrace`."""
    for call in calls:
        name = str(call["op"]).replace("::", ".").split(".")[1:2]
        if call["in"] and name and name[0].endswith("_") and name[0] not in PLACED:
            first = call["in"][0]
            if first["dtype"] == spec.dtype and prod(first["shape"]) == prod(spec.shape):
                return True
    return False
