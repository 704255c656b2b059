"""Operators of torch that read outside their operands, without an error, for values or strides that do not fit. Imports
torch.

At other shapes than its own a task's integers may not fit, and in other layouts an operator may be wrong: such a run
proves nothing about any program, and is refused here as torch refuses an index that is out of range.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.overrides import TorchFunctionMode

from hipwright.higher_order import OperatorMode


@contextmanager
def values_checked(source: str) -> Iterator[None]:
    """torch.ctc_loss raises ValueError for labels that are no class, and for lengths beyond the sequences; quantiles do
    outside of [0, 1], where the task file's text `source` names them.
    """
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
        with _QuantileChecks() if "quantile" in source else nullcontext():
            yield
    finally:
        torch.ctc_loss = unchecked


class _QuantileChecks(TorchFunctionMode):  # type: ignore[misc,unused-ignore]  # torch is untyped here
    """Checks which quantiles are asked for.

    torch does not on a GPU, nor in a mode that sees its operators, where their operands may have no values.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if getattr(func, "__name__", "") in ("quantile", "nanquantile"):
            q = args[1] if len(args) > 1 else kwargs.get("q")
            if _has_values(q) and not bool(((q >= 0) & (q <= 1)).all()):
                raise ValueError(f"{func.__name__}: a quantile is outside of [0, 1]")
        return func(*args, **kwargs)


def check_operands(func: Any, args: Any, kwargs: Any) -> None:
    """Raises ValueError where an operator of ATen would read outside the operands that it is called with.

    Of tensors without values (on the meta device, or fake) nothing is known.
    """
    check = _CHECKS.get(func._schema.name)
    if check is not None:
        names = (argument.name for argument in func._schema.arguments)
        check(**{**dict(zip(names, args, strict=False)), **(kwargs or {})})


class OperandChecks(OperatorMode):
    """A mode in which every operator's operands are checked first (`check_operands`)."""

    def _call(self, func: Any, args: Any, kwargs: Any) -> Any:
        check_operands(func, args, kwargs)
        return func(*args, **kwargs)


def _check_segments(data: Any, lengths: Any = None, offsets: Any = None, axis: int = 0, **_: Any) -> None:
    """Of `segment_reduce`: lengths are only checked without `unsafe`, and offsets never."""
    size = data.shape[axis]
    for what, values in (("lengths", lengths), ("offsets", offsets)):
        if not _has_values(values):
            continue
        ends = values.sum(-1) if what == "lengths" else values
        if int(values.min()) < 0 or int(ends.max()) > size:
            raise ValueError(f"segment_reduce: {what} of up to {int(ends.max())} are out of range: {size} elements")


def _check_strides(self: Any, dim: Any = None, **_: Any) -> None:
    """Of `median`: along a dimension whose elements share memory it reads other memory (torch 2.13, processor)."""
    along = isinstance(dim, int) and self.dim() > 0 and self.device.type == "cpu"
    if along and self.stride(dim) == 0 and self.shape[dim] > 1:
        raise ValueError("median: torch gives no defined result along an expanded dimension")


def _check_places(self: Any, indices: Any, kernel_size: Any, **_: Any) -> None:
    """Of the gradient of a max pooling: of a window that is all padding the forward gives a place behind the plane."""
    size = math.prod(self.shape[-len(kernel_size) :])
    if _has_values(indices) and not 0 <= int(indices.min()) <= int(indices.max()) < size:
        raise ValueError(f"the gradient of a max pooling: index {int(indices.max())} is out of range: {size} elements")


def _has_values(tensor: Any) -> bool:
    held = isinstance(tensor, torch.Tensor) and not isinstance(tensor, FakeTensor) and not tensor.is_meta
    return held and tensor.numel() > 0


_CHECKS: dict[str, Callable[..., None]] = {
    "aten::segment_reduce": _check_segments,
    "aten::max_pool2d_with_indices_backward": _check_places,
    "aten::max_pool3d_with_indices_backward": _check_places,
    "aten::median": _check_strides,
    "aten::nanmedian": _check_strides,
}
"""By the names of operators."""
