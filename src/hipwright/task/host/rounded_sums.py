"""Moves what operators sum, as a kernel that adds in another order rounds it. Runs in the task host.

Nudged inputs do not show every rounding: where two products of the same matrix are subtracted, both move alike, while
their rounding errors are independent. `RoundedSums` moves the result of every sum in a nudged float64 run by itself.
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


class RoundedSums:
    """Moves the results of products, convolutions and reductions.

    dtype: the narrowest of the task's floats, by name. seed: draws the errors. size: how many roundings; a negative one
    is the same draw the other way.
    """

    def __init__(self, dtype: str, seed: int, size: float) -> None:
        kind = getattr(torch, dtype)
        self._unit = size * torch.finfo(kind).eps / 2
        self._grows = kind in (torch.float32, torch.float64)
        self._seed = seed
        self._generator: torch.Generator | None = None

    def called(self, func: Any, args: Any, out: Any) -> None:
        """Moves `out`, the result of an operator, in place where that sums."""
        if not isinstance(out, torch.Tensor) or not out.is_floating_point() or not out.numel():
            return
        if out.layout is not torch.strided:
            return
        terms = _terms(func._schema.name.rpartition("::")[2], args, out)
        if terms < 2:
            return
        if self._generator is None:
            self._generator = torch.Generator(out.device).manual_seed(self._seed)
        step = self._unit * (max(1.0, sqrt(min(terms, LONGEST)) / 3) if self._grows else 1.0)
        flat = span(out).view(out.dtype)
        for start in range(0, flat.numel(), BLOCK):
            part = flat[start : start + BLOCK]
            part *= torch.empty_like(part).uniform_(-1.0, 1.0, generator=self._generator).mul_(step).add_(1.0)


def _terms(name: str, args: Any, out: torch.Tensor) -> int:
    """How many terms an element of the result is the sum of; 0 for an operator that sums nothing."""
    if name in _PRODUCTS:
        return int(args[_PRODUCTS[name]].shape[-1])
    if name == "convolution":
        return int(args[1].numel()) // max(int(args[1].shape[0]), 1)
    return int(args[0].numel()) // out.numel() if name in _REDUCTIONS and isinstance(args[0], torch.Tensor) else 0
