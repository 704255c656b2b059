"""The memory of candidates' workers that a device host has mapped, by the parent's numbers. Runs in the device host.

The host writes inputs and parameters there and copies results from there; nothing else ever lies in that memory.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from hipwright.device.shared_memory import SharedMemory
from hipwright.errors import DeviceError
from hipwright.targets import TORCH_GPU


class Bridges:
    """The mapped memory."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._mapped: dict[int, SharedMemory] = {}

    def map(self, number: int, nbytes: int, fd: int, done: Sequence[int]) -> bool:
        """Maps memory behind a descriptor, and unmaps others; False where the driver cannot."""
        for one in done:
            if (old := self._mapped.pop(one, None)) is not None:
                old.close()
        try:
            self._mapped[number] = SharedMemory(str(self._device), nbytes, fd)
        except (DeviceError, OSError, torch.OutOfMemoryError):
            return False
        return True

    def put(self, number: int, raw: torch.Tensor) -> None:
        """Copies bytes into it; returns when they are there."""
        self._mapped[number].data[: raw.numel()].copy_(raw)
        if self._device.type == TORCH_GPU:
            torch.cuda.synchronize(self._device)

    def taken(self, number: int, nbytes: int) -> torch.Tensor:
        """A copy of its first bytes, which the worker cannot change any more."""
        return self._mapped[number].data[:nbytes].clone()
