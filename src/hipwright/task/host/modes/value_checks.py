"""Operators of torch that read outside their operands for values that do not fit, without an error. Imports torch.

At other shapes than its own a task's integers may not fit: such a run proves nothing about any program, and is refused
here as torch refuses an index that is out of range.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch


@contextmanager
def values_checked() -> Iterator[None]:
    """torch.ctc_loss raises ValueError for labels that are no class, and for lengths beyond the sequences."""
    unchecked = torch.ctc_loss

    def ctc_loss(
        log_probs: Any, targets: Any, input_lengths: Any, target_lengths: Any, *more: Any, **named: Any
    ) -> Any:
        inputs, lengths = (torch.as_tensor(one).cpu() for one in (input_lengths, target_lengths))
        room = targets.shape[-1] if targets.dim() == 2 else targets.numel() - int(lengths.sum()) + int(lengths.max())
        for what, values, most in (
            ("a target", targets, log_probs.shape[-1] - 1),
            ("an input length", inputs, log_probs.shape[0]),
            ("a target length", lengths, room),
        ):
            if values.numel() and (int(values.max()) > most or int(values.min()) < 0):
                raise ValueError(f"ctc_loss: {what} of {int(values.max())} is out of range: at most {most}")
        return unchecked(log_probs, targets, input_lengths, target_lengths, *more, **named)

    torch.ctc_loss = ctc_loss
    try:
        yield
    finally:
        torch.ctc_loss = unchecked
