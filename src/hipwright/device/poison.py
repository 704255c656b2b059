"""Poison: the contents of memory that no kernel has written yet, alike on the CPU and on a GPU. Imports torch."""

from __future__ import annotations

import torch

NOISE = 0x100
"""Added to a poison byte: fresh tensors hold plausible numbers drawn with the byte as the seed."""


def pattern(poison: int) -> int:
    """The 16-bit word that fresh memory repeats, made from a poison byte.

    From 0x80 on it is a NaN as float64, float32, float16 and bfloat16; below, a huge finite number (1e38 and more as
    float32 and bfloat16, 1e304 as float64) except as float16, where it is a NaN too. As an integer it is out of any
    index range. `NOISE` changes the contents of tensors, not this word (red zones, LDS).
    """
    return 0x7FF0 | (poison & 0x0F) if poison & 0x80 else 0x7F00 | (poison & 0xFF)


def plausible(tensor: torch.Tensor, seed: int) -> torch.Tensor:
    """Fill a tensor with numbers that look like results: (-1, 1), or small integers."""
    generator = torch.Generator(device=tensor.device).manual_seed(seed)
    if tensor.is_complex():
        torch.view_as_real(tensor).uniform_(-1.0, 1.0, generator=generator)
        return tensor
    if tensor.is_floating_point() and tensor.element_size() == 1:
        return tensor.copy_(torch.empty_like(tensor, dtype=torch.float32).uniform_(-1.0, 1.0, generator=generator))
    if tensor.is_floating_point():
        return tensor.uniform_(-1.0, 1.0, generator=generator)
    return tensor.random_(0, 2 if tensor.dtype == torch.bool else 100, generator=generator)


def contiguous(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Row-major strides, in elements."""
    strides: list[int] = []
    step = 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))
