"""Shapes of operators that torch gives none for, although they follow from those of the operands. Imports torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

aten = torch.ops.aten


def _ctc_loss(log_probs: Any, targets: Any, *rest: Any, **options: Any) -> tuple[Any, Any]:
    """Losses, one a sequence, and log_alpha, whose last size is that of the longest target.

    Only the size of log_alpha depends on values, and only the gradient reads it: the longest that fits stands for it.
    """
    time, batch = (log_probs.shape[0], log_probs.shape[1] if log_probs.dim() == 3 else 1)
    return log_probs.new_empty((batch,)), log_probs.new_empty((batch, time, 2 * targets.shape[-1] + 1))


def _lstsq(a: Any, b: Any, rcond: Any = None, *, driver: str | None = None) -> tuple[Any, Any, Any, Any]:
    """(solutions, residuals, ranks, singular values) of at::linalg_lstsq on a CPU, whose own driver is "gelsy".

    Values decide whether "gelsd" and "gelss" give residuals: here they do, as of a matrix of full rank.
    """
    m, n = a.shape[-2:]
    singular, residuals = driver in ("gelsd", "gelss"), driver not in (None, "gelsy") and m > n
    vectors = b.ndim == 1 or (b.ndim == a.ndim - 1 and tuple(b.shape) == tuple(a.shape[:-1]))
    columns = () if vectors else b.shape[-1:]
    batch = torch.broadcast_shapes(a.shape[:-2], b.shape[:-1] if vectors else b.shape[:-2])
    none, real = (0,), a.dtype.to_real()
    return (
        a.new_empty((*batch, n, *columns)),
        a.new_empty((*batch, *(columns or (1,))) if residuals else none, dtype=real),
        a.new_empty(none if driver == "gels" else a.shape[:-2], dtype=torch.int64),
        a.new_empty((*a.shape[:-2], min(m, n)) if singular else none, dtype=real),
    )


UNSHAPED: dict[Any, Callable[..., Any]] = {
    aten._ctc_loss.default: _ctc_loss,
    aten._ctc_loss.Tensor: _ctc_loss,
    aten.linalg_lstsq.default: _lstsq,
}
"""By operator, what gives tensors of its results' shapes, without their values; a further one is a function and a line
here."""
