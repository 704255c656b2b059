"""Moves what operators sum, as a kernel that adds in another order rounds it. Runs in the task host.

Nudged inputs do not show every rounding: where two products of the same matrix are subtracted, both move alike, while
their rounding errors are independent. `RoundedSums` moves the result of every sum in a nudged float64 run by itself.
A norm subtracts the mean of its row from the row: where the mean is large beside the spread, the mean's own error is
what its result is off by.
"""

from __future__ import annotations

from math import sqrt
from typing import Any

import torch

from hipwright.digest import span

BLOCK = 1 << 22
LONGEST = 8192
"""Terms that are added one after the other at most: more reach the cap of the floor (`verify.tolerance.FLOOR_CAP`)."""
_PRODUCTS = {"mm": 0, "bmm": 0, "mv": 0, "dot": 0, "addmm": 1, "baddbmm": 1, "addmv": 1}
"""Products by name: the place of the factor whose last dimension is summed."""
_REDUCTIONS = frozenset({"sum", "mean", "var", "std"})
_NORMS = {
    "native_layer_norm": 2,
    "native_group_norm": 1,
    "native_batch_norm": 1,
    "cudnn_batch_norm": 1,
    "miopen_batch_norm": 1,
    "_batch_norm_with_update": 1,
    "_native_batch_norm_legit": 1,
}
"""Norms by name, whose first three results are the normed values, the means and the reciprocal deviations: the place of
the weight."""


class RoundedSums:
    """Moves the results of products, convolutions and reductions.

    dtype: the narrowest of the task's floats, by name. seed: draws the errors. size: how many roundings; a negative one
    is the same draw the other way.
    """

    def __init__(self, dtype: str, seed: int, size: float) -> None:
        kind = getattr(torch, dtype)
        self._unit = size * torch.finfo(kind).eps / 2
        self._grows = kind in (torch.float32, torch.float64)
        self._inside = size * torch.finfo(kind if self._grows else torch.float32).eps / 2
        self._seed = seed
        self._generator: torch.Generator | None = None

    def called(self, func: Any, args: Any, out: Any) -> None:
        """Moves `out`, the result of an operator, in place where that sums."""
        name = func._schema.name.rpartition("::")[2]
        if name in _NORMS and isinstance(out, (tuple, list)):
            self._move_norm(name, args, out)
            return
        if not isinstance(out, torch.Tensor) or not out.is_floating_point() or not out.numel():
            return
        if out.layout is not torch.strided:
            return
        terms = _terms(name, args, out)
        if terms < 2:
            return
        step = _grown(self._unit, terms) if self._grows else self._unit
        flat = span(out).view(out.dtype)
        for start in range(0, flat.numel(), BLOCK):
            part = flat[start : start + BLOCK]
            part *= self._errors(part).mul_(step).add_(1.0)

    def _errors(self, like: torch.Tensor) -> torch.Tensor:
        """Numbers from -1 to 1 in the form of a tensor."""
        if self._generator is None:
            self._generator = torch.Generator(like.device).manual_seed(self._seed)
        return torch.empty_like(like).uniform_(-1.0, 1.0, generator=self._generator)

    def _move_norm(self, name: str, args: Any, out: Any) -> None:
        """Moves normed values as errors of their means do, which no kernel rounds to a half type."""
        values, means, scales = out[:3]
        if not means.numel() or not values.is_floating_point() or means.shape != scales.shape:
            return  # statistics that were given
        weight = args[_NORMS[name]]
        by = means * scales * self._errors(means).mul_(_grown(self._inside, values.numel() // means.numel()))
        if name == "native_group_norm":
            by = by.repeat_interleave(values.shape[1] // by.shape[1], 1)
        if name != "native_layer_norm":
            ones = (1,) * (values.dim() - 2)
            by = by.reshape(-1, values.shape[1], *ones)
            weight = weight.reshape(-1, *ones) if weight is not None else None
        values.sub_(by) if weight is None else values.addcmul_(by, weight.to(values.dtype), value=-1.0)


def _grown(unit: float, terms: int) -> float:
    """The largest relative error of a sum of so many terms."""
    return unit * max(1.0, sqrt(min(terms, LONGEST)) / 3)


def _terms(name: str, args: Any, out: torch.Tensor) -> int:
    """How many terms an element of the result is the sum of; 0 for an operator that sums nothing."""
    if name in _PRODUCTS:
        return int(args[_PRODUCTS[name]].shape[-1])
    if name == "convolution":
        return int(args[1].numel()) // max(int(args[1].shape[0]), 1)
    return int(args[0].numel()) // out.numel() if name in _REDUCTIONS and isinstance(args[0], torch.Tensor) else 0
