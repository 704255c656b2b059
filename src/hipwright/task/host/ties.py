"""Marks the choices among equals that a reference makes: indices on which honest kernels may differ. Runs in the task
host.

The index of a largest element is not determined where another element is equal up to rounding: the kernel before it may
have rounded otherwise, and torch's choice among equals is arbitrary. `TieMarker` runs inside the float64 reference on
nudged inputs and adds the length of the dimension to such an index, so that it differs from the index without the
nudge, and the element is not judged (`tolerance.strict_rule`). Marks reach outputs only: an operator that computes with
a marked index gets the true one.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch.utils import _pytree as pytree

ROUNDINGS = 8.0
"""Unit roundoffs by which two equals may differ: an honest exp and sum cost two to four each."""

_KEEP = frozenset(
    {
        "alias",
        "clone",
        "contiguous",
        "detach",
        "expand",
        "permute",
        "reshape",
        "select",
        "slice",
        "squeeze",
        "t",
        "transpose",
        "unsqueeze",
        "view",
        "_to_copy",
        "_unsafe_view",
        "_reshape_alias",
    }
)
"""Operators that pass a mark on."""
_WITH_VALUES = frozenset({"topk", "sort", "max", "min", "kthvalue", "median", "nanmedian", "mode"})
_ALONE = frozenset({"argmax", "argmin"})


class TieMarker:
    """Watches operators.

    dtype: the narrowest of the task's floats, by name. inputs: have not been rounded, so a choice among them is the
    candidate's alone.
    """

    def __init__(self, dtype: str, inputs: Iterable[torch.Tensor]) -> None:
        limits = torch.finfo(getattr(torch, dtype))
        self._close, self._smallest = ROUNDINGS * limits.eps / 2, limits.tiny
        self._known = frozenset(tensor.untyped_storage().data_ptr() for tensor in inputs)
        self._true: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}  # id of a marked tensor: (it, the true one)

    def called(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """Runs an operator; returns its result, marked where it chose among equals."""
        name = func._schema.name.rpartition("::")[2]
        # most references mark nothing, and walking the arguments costs as much as a small operator
        true_args, true_kwargs = pytree.tree_map(self._unmarked, (args, kwargs)) if self._true else (args, kwargs)
        out = func(*true_args, **true_kwargs)
        first = args[0] if args else None
        if name in _KEEP and isinstance(first, torch.Tensor) and id(first) in self._true:
            return self._put(func(*args, **kwargs), out)
        if name in _ALONE and isinstance(first, torch.Tensor):
            return self._alone(true_args, true_kwargs, out)
        if name in _WITH_VALUES and isinstance(out, tuple) and len(out) == 2 and first is not None:
            dim = _dim(func, true_args, true_kwargs)
            return out if dim is None else (out[0], self._marked(true_args[0], dim, out[0], out[1]))
        return out

    def _unmarked(self, value: Any) -> Any:
        return self._true[id(value)][1] if isinstance(value, torch.Tensor) and id(value) in self._true else value

    def _put(self, marked: torch.Tensor, true: torch.Tensor) -> torch.Tensor:
        self._true[id(marked)] = (marked, true)  # kept alive, so that the id stays unique
        return marked

    def _alone(self, args: Any, kwargs: dict[str, Any], out: torch.Tensor) -> torch.Tensor:
        source, dim = args[0], args[1] if len(args) > 1 else kwargs.get("dim")
        if dim is None:
            flat = source.reshape(-1)
            return self._marked(flat, 0, flat.take(out.reshape(1)), out.reshape(1), true=out) if flat.numel() else out
        values = source.gather(dim, out if out.dim() == source.dim() else out.unsqueeze(dim)) if source.dim() else out
        return self._marked(source, dim, values, out)

    def _marked(
        self,
        source: torch.Tensor,
        dim: int,
        values: torch.Tensor,
        index: torch.Tensor,
        true: torch.Tensor | None = None,
    ) -> torch.Tensor:
        true = index if true is None else true
        if not source.is_floating_point() or not source.dim() or not source.numel():
            return true
        if source.untyped_storage().data_ptr() in self._known:
            return true
        size = source.shape[dim]
        values = values if values.dim() == source.dim() else values.unsqueeze(dim)
        many = self._rivals(source.movedim(dim, -1), values.movedim(dim, -1)).movedim(-1, dim)
        return self._put(true + size * many.reshape(true.shape).to(true.dtype), true)

    def _rivals(self, source: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        """Where more than one element of a row of `source` is equal to the value up to rounding, [..., k]."""
        ordered = source.sort(-1).values.contiguous()
        margin = torch.where(values.isinf(), 0.0, values.abs() * self._close + self._smallest)
        low = torch.searchsorted(ordered, (values - margin).contiguous())
        high = torch.searchsorted(ordered, (values + margin).contiguous(), right=True)
        return high - low > 1


def _dim(func: Any, args: Any, kwargs: dict[str, Any]) -> int | None:
    """The dimension an operator chooses along; None for a form without one."""
    names = [argument.name for argument in func._schema.arguments]
    if "dim" not in names or not isinstance(args[0], torch.Tensor):
        return None
    place = names.index("dim")
    given = args[place] if place < len(args) else kwargs.get("dim", func._schema.arguments[place].default_value)
    return given if isinstance(given, int) else None
