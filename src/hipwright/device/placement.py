"""Alignment of inputs, alike for a candidate and its baselines: large ones begin a page of the GPU. Imports torch.

A library's product of two float32 matrices takes 2 % longer where they begin 4 KiB behind a page of 2 MiB than where
they begin one, as torch's own large blocks do (measured on an H200: `python -m benchmarks aa --candidate`).
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import torch

from hipwright.digest import span
from hipwright.torchio import map_torch

PAGE = 2 << 20  # bytes
LARGE = 1 << 20  # bytes from which a tensor begins a page; torch packs smaller ones together


def page_aligned_bytes(nbytes: int, device: Any, margin: int = 0) -> torch.Tensor:
    """Fresh memory (1-D uint8) of `nbytes` and a margin on both sides; a large one begins a page behind the margin."""
    if nbytes < LARGE:
        return torch.empty(nbytes + 2 * margin, dtype=torch.uint8, device=device)
    raw = torch.empty(nbytes + 2 * margin + PAGE, dtype=torch.uint8, device=device)
    begin = -(raw.data_ptr() + margin) % PAGE
    return raw[begin : begin + nbytes + 2 * margin]


def page_aligned(arguments: Any) -> Any:
    """The same nesting with large tensors moved to the beginning of a page; views and special tensors stay."""
    owners: Counter[int] = Counter()
    map_torch(arguments, lambda tensor: owners.update([_storage(tensor)]))

    def one(tensor: torch.Tensor) -> torch.Tensor:
        return _moved(tensor) if owners[_storage(tensor)] == 1 and _plain(tensor) else tensor

    return map_torch(arguments, one)


def _plain(tensor: torch.Tensor) -> bool:
    ordinary = type(tensor) is torch.Tensor and tensor.layout == torch.strided
    return ordinary and not (tensor.requires_grad or tensor.is_conj() or tensor.is_neg())


def _storage(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage().data_ptr()) if tensor.layout == torch.strided else 0


def _moved(tensor: torch.Tensor) -> torch.Tensor:
    raw = span(tensor)
    if raw.numel() < LARGE or tensor.data_ptr() % PAGE == 0:
        return tensor
    flat = page_aligned_bytes(raw.numel(), tensor.device).copy_(raw)
    made = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
    offset = flat.storage_offset() // tensor.element_size()
    return made.set_(flat.untyped_storage(), offset, tensor.shape, tensor.stride())
