"""Whether a model with programs in it still computes what it did: against float64, by eager's own error. Imports torch.

An output passes where its root mean square error, as a share of the float64 result's own root mean square, is at most
FACTOR times that of the eager model, or LEAST of its dtype. Without a float64 result the eager one is the truth, and
AGREES of the dtype the limit. Integers and booleans: the share of elements that differ.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from hipwright.api.live.result import AGREES
from hipwright.tensors import Tree
from hipwright.torchio import tree_to_torch

FACTOR = 3.0
LEAST = {torch.float16: 1e-3, torch.bfloat16: 8e-3, torch.float64: 1e-12}
"""Errors that pass whatever the eager model's is; others 1e-5. About one rounding of half types, of sums for others."""
LEAST_DIFFERENT = 1e-3
"""Share of integers that may differ: those decided by a rounding."""


@dataclass(frozen=True)
class OutputCheck:
    """One leaf of the model's result. error, eager, limit: as the module says; why: "" where it passes."""

    output: int
    error: float
    eager: float
    limit: float
    why: str = ""


def check_outputs(found: Tree, reference: Tree) -> list[OutputCheck]:
    """Each output of the model with programs. reference: {"eager", "exact"} of `ModelHost.reference`."""
    eager, exact = tree_to_torch(reference["eager"]), tree_to_torch(reference["exact"])
    got = tree_to_torch(found)
    if len(got) != len(eager):
        return [OutputCheck(0, 1.0, 0.0, 0.0, f"{len(got)} outputs instead of {len(eager)}")]
    truth: Sequence[Any] = exact if exact is not None and len(exact) == len(eager) else [None] * len(eager)
    return [_check(n, *three) for n, three in enumerate(zip(got, eager, truth, strict=True))]


def _check(number: int, got: Any, eager: Any, exact: Any) -> OutputCheck:
    if not isinstance(eager, torch.Tensor):
        return OutputCheck(number, 0.0, 0.0, 0.0, "" if got == eager else f"{got!r:.60} instead of {eager!r:.60}")
    if not isinstance(got, torch.Tensor) or got.shape != eager.shape or got.dtype != eager.dtype:
        return OutputCheck(number, 1.0, 0.0, 0.0, "another shape or dtype")
    if not (eager.is_floating_point() or eager.is_complex()):
        truth = exact if isinstance(exact, torch.Tensor) and exact.shape == eager.shape else eager
        error, own = _different(got, truth), _different(eager, truth)
        limit = max(2 * own, LEAST_DIFFERENT)
        return OutputCheck(number, error, own, limit, "" if error <= limit else "too many elements differ")
    if not torch.equal(torch.isfinite(got), torch.isfinite(eager)):
        return OutputCheck(number, 1.0, 0.0, 0.0, "finite elsewhere than the eager model")
    if isinstance(exact, torch.Tensor) and exact.shape == eager.shape:
        own = relative_error(eager, exact)
        error, limit = relative_error(got, exact), max(FACTOR * own, LEAST.get(eager.dtype, 1e-5))
    else:
        error, own, limit = relative_error(got, eager), 0.0, AGREES.get(eager.dtype, 1e-3)
    return OutputCheck(number, error, own, limit, "" if error <= limit else "the error is too large")


def relative_error(found: torch.Tensor, truth: torch.Tensor) -> float:
    """The root mean square of the difference, as a share of the truth's; over what is finite in both."""
    a, b = (torch.view_as_real(t.to(torch.complex128)) if t.is_complex() else t.double() for t in (found, truth))
    finite = torch.isfinite(a) & torch.isfinite(b)
    a, b = a[finite], b[finite]
    if not a.numel():
        return 0.0
    error, scale = float((a - b).square().mean().sqrt()), float(b.square().mean().sqrt())
    return error / scale if scale else float(error > 0.0)


def _different(found: torch.Tensor, truth: torch.Tensor) -> float:
    return float((found != truth).double().mean()) if found.numel() else 0.0
