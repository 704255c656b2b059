"""Inputs that a call writes to, which not every operator reports. Runs in a task host."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from hipwright.task.host.modes.operator_watch import OperatorWatch
from hipwright.task.host.reference import named_leaves
from hipwright.torchio import INTEGERS

_FEW_STATISTICS = 1 << 16  # elements of an input whose values are compared before and after a call


def with_written(model: Callable[..., Any], args: Sequence[Any], found: set[str] | None = None) -> Any:
    """The outputs of a call; where it writes to inputs, (outputs, those inputs), which are outputs too."""
    outputs, written = and_written(model, args, found)
    return (outputs, written) if written else outputs


def and_written(
    model: Callable[..., Any], args: Sequence[Any], found: set[str] | None = None
) -> tuple[Any, list[torch.Tensor]]:
    """(outputs of a call, inputs that it writes to).

    found: takes their paths. Operators that count no version (native_batch_norm) are watched; what one writes to a view
    shows in the values of small tensors.
    """
    leaves = list(named_leaves("inputs", args))
    before = [(leaf._version, _small_copy(leaf)) for _, leaf in leaves]
    with OperatorWatch() as watch:
        outputs = model(*args)
    written = {
        path: leaf
        for (path, leaf), (version, copied) in zip(leaves, before, strict=True)
        if leaf._version != version
        or watch.wrote(leaf)
        or (copied is not None and not np.array_equal(copied, _bits(leaf)))
    }
    if found is not None:
        found |= set(written)
    return outputs, list(written.values())


def _small_copy(tensor: torch.Tensor) -> Any:
    """The bits of a small float tensor that has values, which no watch of operators sees, as NumPy's; else None."""
    small = tensor.is_floating_point() and tensor.numel() <= _FEW_STATISTICS
    holds = type(tensor) is torch.Tensor and tensor.device.type == "cpu"
    return _bits(tensor).copy() if small and holds else None


def _bits(tensor: torch.Tensor) -> Any:
    """A float tensor's values as NumPy's whole numbers: bfloat16 and 8-bit floats are none of NumPy's types."""
    return tensor.detach().view(INTEGERS[tensor.element_size()]).numpy()
