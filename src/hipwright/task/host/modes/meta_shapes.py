"""Batch norms of tensors without data, by their shapes: torch finds them by ten operators written in Python.

A network of two hundred batch norms is run on shapes alone some fifty times to derive its workloads, most of the time
for these. Entered before other modes, which see the operator itself. Runs in the task host.
"""

from __future__ import annotations

from typing import Any

import torch

from hipwright.higher_order import OperatorMode

_BATCH_NORM = torch.ops.aten.native_batch_norm.default
_TYPES = (torch.float32, torch.float64)  # halves keep statistics in another type


class MetaShapes(OperatorMode):
    """Gives `native_batch_norm` of a meta tensor its results without computing their shapes operator by operator.

    What does not fit is left to torch, which says why. Source: aten/src/ATen/native/native_functions.yaml.
    """

    def _call(self, func: Any, args: Any, kwargs: Any) -> Any:
        """The operator's result."""
        if func is _BATCH_NORM and not kwargs and _fits(*args):
            return (torch.empty_like(args[0]), *(args[0].new_empty(args[0].shape[1]) for _ in range(2)))
        return func(*args, **kwargs)


def _fits(given: torch.Tensor, weight: Any, bias: Any, mean: Any, variance: Any, training: bool, *_: float) -> bool:
    vectors = [one for one in (weight, bias, mean, variance) if one is not None]
    return (
        given.is_meta
        and given.dtype in _TYPES
        and given.dim() > 1
        and given.numel() > given.shape[1]  # one value a channel is refused in training
        and (training or (mean is not None and variance is not None))
        and all(one.is_meta and one.dtype == given.dtype and one.shape == given.shape[1:2] for one in vectors)
    )
