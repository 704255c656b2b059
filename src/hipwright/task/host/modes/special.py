"""What the reference's own calls say about values: numbers that it compares with, NaN and Inf, integer arithmetic."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch.overrides import TorchFunctionMode


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


NONFINITE = _names(
    """nan_to_num nan_to_num_ isnan isinf isfinite isposinf isneginf nansum nanmean nanmedian nanquantile fmax fmin"""
)
"""Operators whose contract treats NaN or Inf apart."""
COMPARISONS = _names(
    """eq ne lt le gt ge equal clamp clip clamp_ clip_ clamp_min clamp_max hardtanh hardtanh_ threshold threshold_
    hardshrink softshrink heaviside relu6 isin minimum maximum"""
)
NAMED = _names("ignore_index padding_idx min max min_val max_val threshold lambd value")
ARITHMETIC = _names(
    """add sub mul neg abs sign remainder fmod bitwise_and bitwise_or bitwise_xor bitwise_not and or xor invert eq ne lt
    le gt ge where clamp clip minimum maximum sum amax amin max min any all logical_and logical_or logical_not to type
    float double long int cumsum square reshape view flatten permute transpose contiguous unsqueeze squeeze radd rsub
    rmul mod rmod iadd isub imul expand size dim numel is_floating_point"""
)
"""Operators that give a result for any integers: no index, size or count among their arguments."""
MOST = 8  # numbers of a kind


class SpecialValues(TorchFunctionMode):  # type: ignore[misc,unused-ignore]  # torch is untyped here
    """A context that records what is passed to torch's functions beside tensors. source: the task file's text, in which
    a keyword such as `ignore_index` must occur: its default says nothing about the task.

    names: of the functions that were called.
    """

    def __init__(self, source: str) -> None:
        super().__init__()
        self._source = source
        self._integers: dict[int, None] = {}
        self._floats: dict[float, None] = {}
        self.names: set[str] = set()
        self._nonfinite = False

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Runs every function and records its numbers."""
        name = str(getattr(func, "__name__", "")).strip("_")
        kwargs = dict(kwargs or {})
        self._record(name, args, kwargs)
        return func(*args, **kwargs)

    def told(self) -> dict[str, Any]:
        """{"integers", "floats", "nonfinite", "arithmetic"}, as `verify.inputs.Special.of` reads them."""
        return {
            "integers": list(self._integers)[:MOST],
            "floats": [n for n in self._floats if math.isfinite(n)][:MOST],
            "nonfinite": self._nonfinite,
            "arithmetic": bool(self.names) and self.names <= ARITHMETIC,
        }

    def _record(self, name: str, args: Any, kwargs: dict[str, Any]) -> None:
        if name != "get":  # the attributes of a tensor
            self.names.add(name)
        tensors = [value for value in _flat((*args, *kwargs.values())) if isinstance(value, torch.Tensor)]
        self._nonfinite |= name in NONFINITE or (name == "ne" and len(tensors) == 2 and tensors[0] is tensors[1])
        numbers = list(_numbers(args)) if name in COMPARISONS else []
        for key, value in kwargs.items():
            if key in NAMED and (name in COMPARISONS or key in self._source):
                numbers += _numbers((value,))
        whole = any(not t.is_floating_point() and t.dtype != torch.bool for t in tensors)
        for number in numbers:
            if whole and float(number).is_integer():
                self._integers[int(number)] = None
            if any(t.is_floating_point() for t in tensors) and "index" not in name:
                self._floats[float(number)] = None


def _numbers(values: Any) -> Iterator[float]:
    for value in values:
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            yield value


def _flat(values: Any) -> Iterator[Any]:
    for value in values:
        if isinstance(value, (tuple, list)):
            yield from _flat(value)
        else:
            yield value
