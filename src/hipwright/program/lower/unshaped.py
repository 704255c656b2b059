"""Shapes of operators that torch gives none for, although they follow from those of the operands. Imports torch."""

from __future__ import annotations

from typing import Any

import torch

aten = torch.ops.aten


def _ctc_loss(log_probs: Any, targets: Any, *rest: Any, **options: Any) -> tuple[Any, Any]:
    """Losses, one a sequence, and log_alpha, whose last size is that of the longest target.

    Only the size of log_alpha depends on values, and only the gradient reads it: the longest that fits stands for it.
    """
    time, batch = (log_probs.shape[0], log_probs.shape[1] if log_probs.dim() == 3 else 1)
    return log_probs.new_empty((batch,)), log_probs.new_empty((batch, time, 2 * targets.shape[-1] + 1))


UNSHAPED = {aten._ctc_loss.default: _ctc_loss, aten._ctc_loss.Tensor: _ctc_loss}
"""By operator, what gives tensors of its results' shapes, without their values; a further one is a function and a line
here."""
