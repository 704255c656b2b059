"""Alignment of the tensors that a library operator is given. Imports torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from hipwright.targets import TORCH_GPU

ALIGNMENT = 16
"""Bytes that the widest vectorised load needs."""


def on_aligned(call: Callable[..., Any]) -> Callable[..., Any]:
    """`call` with copies of the device tensors whose first element is not at a multiple of `ALIGNMENT` bytes.

    torch's attention backends read 16 bytes at once without a test of the address: on a view that begins at an odd
    element their result is wrong (measured on an H100: bfloat16 and float16, an offset of one element).
    """

    def aligned(*args: Any, **kwargs: Any) -> Any:
        return call(*map(_aligned, args), **{name: _aligned(value) for name, value in kwargs.items()})

    return aligned


def _aligned(value: Any) -> Any:
    if isinstance(value, torch.Tensor) and value.device.type == TORCH_GPU and value.data_ptr() % ALIGNMENT:
        return value.clone()
    return value
