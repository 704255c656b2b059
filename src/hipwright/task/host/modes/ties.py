"""Marks the choices among equals that a reference makes: indices on which honest kernels may differ. Runs in the task
host.

The index of a largest element is not determined where another element is equal up to rounding: the kernel before it may
have rounded otherwise, and torch's choice among equals is arbitrary. `TieMarker` runs inside the float64 reference and
adds the length of the dimension to such an index, so that it differs from the baseline's, and the element is not judged
(`tolerance.strict_rule`), except by the value that it selects where that can be told. Where an element that is *not*
the same as the chosen one is equal to it up to rounding, the index is marked by its complement, a negative number: no
index among those can be told from another by value, so the element is never judged. Marks reach outputs
only: an operator that computes with a marked index gets the true one.

A value that is rounded to a whole number is not determined either where it lies half way up to rounding: quantised
outputs differ there by one step. Such a result is marked by a number two away, which no honest kernel returns, and the
mark follows it through what quantisation does with whole numbers (bounds, zero points, packing of bits).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch.utils import _pytree as pytree

from hipwright.task.host.modes import depthwise

ROUNDINGS, OF_EXPONENTS, OF_DISTANCE = 8.0, 32.0, 4.0
"""Unit roundoffs by which two equals may differ: an honest exp and sum cost two to four each. In float32 and float64,
of which kernels round every step, the difference that exp is taken of is rounded, and its product by log2(e), where a
kernel uses exp2. Two numbers that round to the same one differ by two roundings, so each of these costs two for each
unit of the distance from the row's largest value, which is the logarithm of their quotient where none is negative.
"""
_FARTHEST = 110.0
"""The largest such distance: exponents below are zero in float32."""

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
_SAME = 4.0
"""Roundings of float64 by which results of the reference for the same inputs differ: vectors and their remainders."""
_HALF_WAY = 32.0
"""Unit roundoffs of float32 by which a rounded value may differ from one half way: a norm, a scale and a quotient."""
_WHOLE_NUMBERS = _KEEP | {
    "add",
    "bitwise_and",
    "bitwise_left_shift",
    "bitwise_or",
    "bitwise_xor",
    "cat",
    "clamp",
    "clamp_max",
    "clamp_min",
    "maximum",
    "minimum",
    "stack",
    "sub",
    "__and__",
    "__lshift__",
    "__or__",
    "__xor__",
}
"""Operators that pass the mark of a rounded value on."""
_WITH_VALUES = frozenset({"topk", "sort", "max", "min", "kthvalue", "median", "nanmedian", "mode"})
_ALONE = frozenset({"argmax", "argmin"})


class TieMarker:
    """Watches operators.

    dtype: the narrowest of the task's floats, by name. inputs: have not been rounded, so a choice among them is the
    candidate's alone. equals: whether a choice among the same values alone is marked too, not only among near ones.
    """

    def __init__(self, dtype: str, inputs: Iterable[torch.Tensor], *, equals: bool = True) -> None:
        limits = torch.finfo(getattr(torch, dtype))
        self._rounds_all = limits.bits >= 32
        self._unit, self._smallest = limits.eps / 2, limits.tiny
        self._same = min(_SAME * torch.finfo(torch.float64).eps, self._unit)
        self._known = frozenset(tensor.untyped_storage().data_ptr() for tensor in inputs)
        self._half_way = _HALF_WAY * torch.finfo(torch.float64 if dtype == "float64" else torch.float32).eps / 2
        self._true: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}  # id of a marked tensor: (it, the true one)
        self._equals = equals
        self._rounded: set[int] = set()  # ids of those that hold rounded values

    def called(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """Runs an operator; returns its result, marked where it chose among equals."""
        name = func._schema.name.rpartition("::")[2]
        # most references mark nothing, and walking the arguments costs as much as a small operator
        true_args, true_kwargs = pytree.tree_map(self._unmarked, (args, kwargs)) if self._true else (args, kwargs)
        out = depthwise.called(func, true_args, true_kwargs)
        first = args[0] if args else None
        if func._schema.is_mutable and isinstance(first, torch.Tensor) and id(first) in self._true:
            return self._in_place(func, args, kwargs)
        if self._rounded and name in _WHOLE_NUMBERS and self._holds_rounded((args, kwargs)):
            return self._put_rounded(func(*args, **kwargs), out)
        if name == "round" and isinstance(first, torch.Tensor):
            return self._half_ways(true_args, out)
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

    def settled(self, leaf: torch.Tensor) -> torch.Tensor:
        """An output: a mark stays on whole numbers alone, as a float's is what results are compared with."""
        return leaf if not leaf.is_floating_point() else self._unmarked(leaf)

    def _in_place(self, func: Any, args: Any, kwargs: dict[str, Any]) -> torch.Tensor:
        """The marked tensor, after an operator changed the true one in place."""
        marked, true = self._true[id(args[0])]
        if id(marked) in self._rounded and func._schema.name.rpartition("::")[2][:-1] in _WHOLE_NUMBERS:
            func(*args, **kwargs)
        else:
            marked.copy_(true)
        return marked

    def _holds_rounded(self, given: Any) -> bool:
        """Whether of the marked tensors among the arguments all hold rounded values, and there is one."""
        marked = [id(leaf) for leaf in pytree.tree_leaves(given) if id(leaf) in self._true]
        return bool(marked) and all(one in self._rounded for one in marked)

    def _half_ways(self, args: Any, out: torch.Tensor) -> torch.Tensor:
        """The rounded values, marked where honest kernels may round to the other side."""
        source = args[0]
        if len(args) > 1 or not source.is_floating_point() or source.untyped_storage().data_ptr() in self._known:
            return out
        away = (source - source.floor() - 0.5).abs()
        near = away <= source.abs() * self._half_way
        if not bool(near.any()):
            return out
        other = torch.where(out.abs() < 2.0, out + 2.0 * torch.where(out < 0.0, -1.0, 1.0), out - 2.0 * out.sign())
        return self._put_rounded(torch.where(near, other, out), out)

    def _put_rounded(self, marked: torch.Tensor, true: torch.Tensor) -> torch.Tensor:
        self._rounded.add(id(marked))
        return self._put(marked, true)

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
        several, near = (
            found.movedim(-1, dim).reshape(true.shape)
            for found in self._rivals(source.movedim(dim, -1), values.movedim(dim, -1))
        )
        marked = true + size * several.to(true.dtype) if self._equals else true
        return self._put(torch.where(near, true.bitwise_not(), marked), true)

    def _rivals(self, source: torch.Tensor, values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Where more than one element of a row of `source` is equal to the value up to rounding, and where one of them
        is not the same, both [..., k].
        """
        ordered = source.sort(-1).values.contiguous()

        def within(margin: torch.Tensor) -> torch.Tensor:
            margin = torch.where(values.isinf(), 0.0, margin)
            low = torch.searchsorted(ordered, (values - margin).contiguous())
            return torch.searchsorted(ordered, (values + margin).contiguous(), right=True) - low

        close = within(values.abs() * self._roundings(ordered, values) * self._unit + self._smallest)
        return close > 1, close > within(values.abs() * self._same)

    def _roundings(self, ordered: torch.Tensor, values: torch.Tensor) -> torch.Tensor | float:
        """How many unit roundoffs two equals may differ by, for each value of the rows `ordered`."""
        if not self._rounds_all:
            return ROUNDINGS
        apart = (ordered[..., -1:] / values.clamp(min=self._smallest)).log().nan_to_num().clamp(0.0, _FARTHEST)
        return torch.where(ordered[..., :1] < 0.0, 0.0, ROUNDINGS + OF_DISTANCE * apart).clamp(min=OF_EXPONENTS)


def _dim(func: Any, args: Any, kwargs: dict[str, Any]) -> int | None:
    """The dimension an operator chooses along; None for a form without one."""
    names = [argument.name for argument in func._schema.arguments]
    if "dim" not in names or not isinstance(args[0], torch.Tensor):
        return None
    place = names.index("dim")
    given = args[place] if place < len(args) else kwargs.get("dim", func._schema.arguments[place].default_value)
    return given if isinstance(given, int) else None
