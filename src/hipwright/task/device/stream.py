"""Copies chunks of bytes into and out of device memory. Runs in the device host."""

from __future__ import annotations

import torch

from hipwright.digest import span
from hipwright.targets import TORCH_GPU
from hipwright.task.device.compare import LeafComparison
from hipwright.task.device.leaf import BLOCK
from hipwright.tensors import HostTensor


class StreamBuffer:
    """One page-locked buffer on a GPU; copies through it are several times as fast as from ordinary memory."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._buffer = torch.empty(0, dtype=torch.uint8)

    def out(self, raw: torch.Tensor) -> HostTensor:
        """Bytes on the device as a HostTensor, in the buffer: to be sent before the next call."""
        staged = self._room(raw.numel()).copy_(raw).numpy()
        return HostTensor("uint8", (raw.numel(),), (1,), 0, staged)

    def into(self, chunk: HostTensor) -> torch.Tensor:
        """A uint8 HostTensor as bytes on the device."""
        staged = self._room(chunk.numel)
        staged.numpy()[...] = chunk.storage[chunk.offset : chunk.offset + chunk.numel]
        return staged.to(self._device, copy=True)  # returns when the copy is complete

    def _room(self, count: int) -> torch.Tensor:
        if self._buffer.numel() < count:
            self._buffer = torch.empty(count, dtype=torch.uint8, pin_memory=self._device.type == TORCH_GPU)
        return self._buffer[:count]


class Incoming:
    """One leaf of a candidate's outputs, received as chunks of its span.

    A row-major leaf is compared as it arrives. Any other layout is assembled first, so it needs its own size in device
    memory until the comparison is complete.
    """

    def __init__(self, check: LeafComparison, stride: list[int]) -> None:
        self._check = check
        self._stride = tuple(stride)
        leaf = check.leaf
        like = torch.empty(leaf.shape, dtype=leaf.dtype, device="meta")
        significant = zip(self._stride, like.stride(), leaf.shape, strict=True)
        self._whole: torch.Tensor | None = None
        self._due = 0
        if leaf.numel and not all(a == b or n == 1 for a, b, n in significant):
            elements = 1 + sum((n - 1) * s for n, s in zip(leaf.shape, self._stride, strict=True))
            flat = torch.empty(elements, dtype=leaf.dtype, device=leaf.want.device)
            self._whole = torch.as_strided(flat, leaf.shape, self._stride)

    def add(self, offset: int, raw: torch.Tensor) -> None:
        """Adds the next bytes. Raises ValueError for bytes out of order or beyond the leaf."""
        if offset != self._due or raw.numel() % self._check.leaf.dtype.itemsize:
            raise ValueError(f"{self._check.leaf.path}: bytes at {offset}, expected whole elements from {self._due}")
        self._due += raw.numel()
        if self._whole is None:
            self._check.add(raw.view(self._check.leaf.dtype))
        else:
            target = span(self._whole)
            if self._due > target.numel():
                raise ValueError(f"{self._check.leaf.path}: more bytes than it has")
            target[offset : self._due] = raw

    def result(self) -> dict[str, object]:
        """`LeafComparison.result`. Raises ValueError when bytes are missing."""
        if self._whole is not None:
            if self._due != span(self._whole).numel():
                raise ValueError(f"{self._check.leaf.path}: bytes are missing")
            self._compare_whole(self._whole)
            self._whole = None
        return self._check.result()

    def _compare_whole(self, whole: torch.Tensor) -> None:
        """Compares in logical order, block by block; places are computed, as reshaping would copy everything."""
        flat, count = span(whole).view(whole.dtype), whole.numel()
        for start in range(0, count, BLOCK):
            rest = torch.arange(start, min(start + BLOCK, count), device=whole.device)
            places = torch.zeros_like(rest)
            for size, stride in zip(reversed(whole.shape), reversed(whole.stride()), strict=True):
                places += rest % size * stride
                rest //= size
            self._check.add(flat[places])
