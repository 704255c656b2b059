"""Covariances and correlations as torch defines them, without the question whether the degrees of freedom are positive:
at::cov asks a tensor, which no capture can answer. Imports torch.
"""

from __future__ import annotations

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


FORMS = {aten.cov.default: covariance, aten.corrcoef.default: correlation}
"""{operator: its form}"""


def register() -> None:
    """Makes torch's tracers use these forms in this process."""
    for operator, form in FORMS.items():
        if DispatchKey.CompositeImplicitAutograd not in operator.py_kernels:
            operator.py_impl(DispatchKey.CompositeImplicitAutograd)(form)
