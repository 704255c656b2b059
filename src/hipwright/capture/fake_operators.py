"""Operators that torch cannot trace although their results have fixed shapes. Imports torch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch._subclasses import fake_impls
from torch._subclasses.fake_tensor import DynamicOutputShapeException

from hipwright.capture import composite_forms
from hipwright.program.lower.unshaped import UNSHAPED


@contextmanager
def lengths_as_tensors() -> Iterator[None]:
    """A context in which torch.ctc_loss takes lengths that are lists as tensors: its means read those of lists."""
    usual = torch.ctc_loss

    def ctc_loss(log_probs: Any, targets: Any, *lengths: Any, **named: Any) -> Any:
        made = [torch.tensor(one) if isinstance(one, (list, tuple)) else one for one in lengths]
        listed = {name: torch.tensor(one) if isinstance(one, (list, tuple)) else one for name, one in named.items()}
        return usual(log_probs, targets, *made, **listed)

    torch.ctc_loss = ctc_loss
    try:
        yield
    finally:
        torch.ctc_loss = usual


def register() -> None:
    """Makes torch's tracers use the shapes of `program.lower.unshaped`, and these forms, in this process."""
    composite_forms.register()
    fake_impls.op_implementations_dict.update(
        {operator: partial(_fake, shaped) for operator, shaped in UNSHAPED.items()}
    )


def _fake(shaped: Any, mode: Any, func: Any, *args: Any, **kwargs: Any) -> Any:
    # the other drivers have residuals for some values only, or pivots that LAPACK is not given: bits differ by chance
    if func is torch.ops.aten.linalg_lstsq.default and kwargs.get("driver") != "gels":
        raise DynamicOutputShapeException(func)
    with mode:
        return shaped(*args, **kwargs)
