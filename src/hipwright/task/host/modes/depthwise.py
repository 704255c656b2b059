"""Convolutions by channel in float64 on the processor, where PyTorch calls a product of matrices for each group.

A network like EfficientNet has 55 of them with up to 3840 channels; they are most of a run of its reference. Here a
convolution by channel is a sum over the taps of its window: one multiply-add of shifted inputs for each.
"""

from __future__ import annotations

from itertools import product
from math import prod
from typing import Any

import torch

LEAST_GROUPS, MOST_TAPS = 8, 512
"""Fewer groups cost PyTorch little; so many taps are passes over the tensor."""


def called(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """The result of an operator: of a convolution by channel as this module computes it, else its own."""
    if func is torch.ops.aten.convolution.default and not kwargs and len(args) == 9 and _is_by_channel(*args):
        return by_channel(*args[:6])
    return func(*args, **kwargs)


def _is_by_channel(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool,
    output_padding: Any,
    groups: int,
) -> bool:
    return (
        not transposed
        and x.dtype == weight.dtype == torch.float64
        and x.device.type == "cpu"
        and type(x) is torch.Tensor
        and x.dim() == weight.dim() >= 3
        and groups == x.shape[1] >= LEAST_GROUPS
        and weight.shape[0] % groups == 0
        and x.numel() > 0
        and x.is_contiguous()
        and prod(weight.shape[2:]) <= MOST_TAPS
        and not any(one.requires_grad for one in (x, weight) if torch.is_grad_enabled())
        and all(size > 0 for size in _sizes(x, weight, stride, padding, dilation))
    )


def _sizes(x: torch.Tensor, weight: torch.Tensor, stride: Any, padding: Any, dilation: Any) -> list[int]:
    """The places of the window along each dimension; 0 or less where PyTorch refuses."""
    of_each = zip(x.shape[2:], weight.shape[2:], stride, padding, dilation, strict=True)
    return [(size + 2 * around - apart * (taps - 1) - 1) // step + 1 for size, taps, step, around, apart in of_each]


def by_channel(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, stride: Any, padding: Any, dilation: Any
) -> torch.Tensor:
    """A convolution whose groups are single channels. x: (batch, channels, *sizes), contiguous; weight: (a multiple of
    the channels, 1, *taps); stride, padding, dilation: one for each size. Returns a contiguous tensor.
    """
    sizes, many = _sizes(x, weight, stride, padding, dilation), weight.shape[0] // x.shape[1]
    around = [width for each in reversed(padding) for width in (each, each)]
    padded = torch.nn.functional.pad(x, around) if any(around) else x
    padded = padded.repeat_interleave(many, 1) if many > 1 else padded
    column = (1, -1, *(1,) * len(sizes))
    out = x.new_zeros((x.shape[0], weight.shape[0], *sizes))
    if bias is not None:
        out += bias.view(column)
    for tap in product(*map(range, weight.shape[2:])):
        starts = [place * apart for place, apart in zip(tap, dilation, strict=True)]
        ends = [start + step * (size - 1) + 1 for start, step, size in zip(starts, stride, sizes, strict=True)]
        window = tuple(slice(*each) for each in zip(starts, ends, stride, strict=True))
        out.addcmul_(padded[(slice(None), slice(None), *window)], weight[(slice(None), 0, *tap)].view(column))
    return out
