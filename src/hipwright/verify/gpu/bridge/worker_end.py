"""The worker's end of a bridge: it allocates the memory and exports it. Imports torch."""

from __future__ import annotations

from typing import Any

import torch

from hipwright.device.shared_memory import SharedMemory
from hipwright.digest import span
from hipwright.errors import DeviceError
from hipwright.sandbox import attach_fd, given_fd
from hipwright.targets import TORCH_GPU


class WorkerEnd:
    """One piece of memory on the worker's device, which holds inputs on their way in and results on their way out.

    It holds nothing that the candidate may not know, and is cleared after each use: the next candidate finds nothing of
    the last one there.
    """

    def __init__(self, device: str) -> None:
        self._device = torch.device(device)
        self._memory: SharedMemory | None = None

    def open(self, nbytes: int) -> dict[str, Any]:
        """{"opened"}: exported with the answer on a GPU, given with the call on the CPU; "why" not."""
        on_gpu = self._device.type == TORCH_GPU
        try:
            self._memory = SharedMemory(str(self._device), nbytes, None if on_gpu else given_fd())
            if on_gpu:
                attach_fd(self._memory.export())
        except (DeviceError, OSError, torch.OutOfMemoryError) as error:
            self._memory = None
            return {"opened": False, "why": str(error)[:200]}
        return {"opened": True}

    def take(self, into: torch.Tensor) -> None:
        """Copies what came into bytes on the device."""
        data = self._data(into.numel())
        into.copy_(data)
        data.zero_()
        self._wait()

    def put(self, raw: torch.Tensor) -> None:
        """Copies bytes of the device out; returns when they are there."""
        self._data(raw.numel()).copy_(raw)
        self._wait()

    def clear(self, nbytes: int) -> None:
        """Clears what was put."""
        self._data(nbytes).zero_()
        self._wait()

    def _data(self, nbytes: int) -> Any:
        if self._memory is None or nbytes > self._memory.bytes:
            raise ValueError("no bridge of that size")
        return self._memory.data[:nbytes]

    def _wait(self) -> None:
        if self._device.type == TORCH_GPU:
            torch.cuda.synchronize(self._device)


def part(tensor: torch.Tensor, offset: int, nbytes: int) -> torch.Tensor:
    """Some bytes of a tensor's span."""
    return span(tensor)[offset : offset + nbytes].data
