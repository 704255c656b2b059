"""Pinned host memory through which inputs and results are copied without a wait of their own. Imports torch.

A copy from or to ordinary host memory is waited for, and on a GPU that many processes share each wait is a context
switch. With one piece of pinned memory for each direction a call waits once, for everything.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from hipwright.targets import TORCH_GPU

Tensor = Any
MOST_BYTES = 64 << 20
"""Of each direction; what does not fit is copied from or to ordinary memory."""
ALIGN = 64


class PinnedStaging:
    """One worker's pinned memory. device: "cuda:0"; "cpu" for tests, which need no pinned memory.

    `begin` starts a call: what was staged before is overwritten from then on.
    """

    def __init__(self, device: str) -> None:
        self._device = torch.device(device)
        self._on_gpu = self._device.type == TORCH_GPU
        self._up, self._down = _StagingBuffer(self._on_gpu), _StagingBuffer(self._on_gpu)
        self._sent: Any = torch.cuda.Event() if self._on_gpu else None  # recorded after the last upload

    def begin(self) -> None:
        """Starts a call. Waits only where an earlier one was abandoned before the device had read its inputs."""
        if self._sent is not None:
            self._sent.synchronize()
        for piece in (self._up, self._down):
            piece.restart()

    @property
    def fits(self) -> bool:
        """Whether this call, and those that followed it, fitted."""
        return self._up.fits and self._down.fits

    def upload(self, raw: Tensor) -> Tensor:
        """A host tensor of bytes (uint8, 1-D) on the device; the host's may change afterwards."""
        staged = self._up.take(raw.numel())
        if staged is None:
            return raw.to(self._device, non_blocking=True, copy=True)  # copied before it returns
        made = torch.empty_like(staged, device=self._device)
        made.copy_(staged.copy_(raw), non_blocking=True)
        if self._sent is not None:
            self._sent.record()
        return made

    def download(self, flat: Tensor) -> Callable[[], Tensor]:
        """Starts to copy a 1-D contiguous tensor to the host; returns a function that gives it in memory of its own, to
        be called after a wait for the device.
        """
        staged = self._down.take(flat.nbytes)
        if staged is None:
            return lambda: flat.cpu()
        typed = staged.view(flat.dtype)
        typed.copy_(flat, non_blocking=True)
        return lambda: typed.clone()


class _StagingBuffer:
    """Memory that is allocated from its front, and grows between calls to what the largest one needed."""

    def __init__(self, pinned: bool) -> None:
        self._pinned = pinned
        self._memory = torch.empty(0, dtype=torch.uint8)
        self._used = self._most = 0

    def restart(self) -> None:
        """Allocates from the front again; nothing that was allocated may be in use.

        A GPU can read this memory, so it is cleared: no program may find another one's results there.
        """
        self._memory[: self._used].zero_()
        self._most, self._used = max(self._most, self._used), 0
        size = min(self._most, MOST_BYTES)
        if size > self._memory.numel():
            self._memory = torch.empty(1 << (size - 1).bit_length(), dtype=torch.uint8, pin_memory=self._pinned)

    @property
    def fits(self) -> bool:
        """Whether all that was requested fitted."""
        return self._used <= int(self._memory.numel())

    def take(self, nbytes: int) -> Tensor | None:
        """The next bytes; None where they do not fit."""
        start = self._used
        self._used += -(-nbytes // ALIGN) * ALIGN
        return self._memory[start : start + nbytes] if self._used <= self._memory.numel() else None
