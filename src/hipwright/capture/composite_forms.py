"""Operators as torch defines them, without what it asks a tensor, which no capture can answer: whether the degrees of
freedom of covariances are positive, and how many combinations a mask keeps. Imports torch.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import torch
from torch._C import DispatchKey

aten = torch.ops.aten


def covariance(x: Any, *, correction: int = 1, fweights: Any = None, aweights: Any = None) -> Any:
    """at::cov of rows of observations: the weights count them (fweights) or scale them (aweights)."""
    rows = x if x.ndim == 2 else x.view(1, -1)
    given = [w for w in (fweights, aweights) if w is not None]
    if not given:
        total = torch.scalar_tensor(rows.shape[1], dtype=torch.int64, device=x.device)
        centred = other = rows - (rows.sum(1) / total).unsqueeze(1)
    else:
        weights = given[0] if len(given) == 1 else given[0] * given[1]
        total = weights.sum()
        centred = rows - ((rows * weights).sum(1) / total).unsqueeze(1)
        other = centred * weights
    less = (weights * aweights).sum() * correction / total if aweights is not None and correction else correction
    return (centred @ other.t().conj() / (total - less).clamp(min=0)).squeeze()


def correlation(x: Any) -> Any:
    """at::corrcoef: covariances over the products of both deviations, between -1 and 1."""
    found = covariance(x)
    if found.ndim == 0:
        return found / found
    deviations = found.diagonal().real.sqrt() if found.is_complex() else found.diagonal().sqrt()
    scaled = found / deviations.unsqueeze(1) / deviations.unsqueeze(0)
    if scaled.is_complex():
        return torch.complex(scaled.real.clamp(-1, 1), scaled.imag.clamp(-1, 1))
    return scaled.clamp(-1, 1)


def combinations(x: Any, r: int = 2, with_replacement: bool = False) -> Any:
    """at::combinations: all choices of r elements of a vector in their order, one a row."""
    if r == 0:
        return x.new_empty((0,))
    n = x.shape[0]
    count = 1
    for taken in range(r):
        count = count * (n + taken if with_replacement else n - taken)
    places = torch.meshgrid([torch.arange(n, device=x.device)] * r, indexing="ij")
    kept = torch.ones([n] * r, dtype=torch.bool, device=x.device)
    for one, following in pairwise(places):
        kept = kept & (one <= following if with_replacement else one < following)
    return x[torch.nonzero_static(kept, size=count // math.factorial(r))]


FORMS = {aten.cov.default: covariance, aten.corrcoef.default: correlation}
"""{operator: its form}, of which a captured graph consists."""

_WHOLE = {aten.combinations.default: combinations}
"""Those whose form only says the sizes of results: they stay whole in a graph."""


def register() -> None:
    """Makes torch's tracers use these forms in this process."""
    for operator, form in (FORMS | _WHOLE).items():
        if DispatchKey.CompositeImplicitAutograd not in operator.py_kernels:
            operator.py_impl(DispatchKey.CompositeImplicitAutograd)(form)
