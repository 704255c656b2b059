"""Graphs of a GPU: the launches of one call, recorded once and started by one call of the driver.

`DeviceGraphs` is what a caller needs of them, so that tests can do without a GPU; `CudaGraphs` is torch's, on CUDA and
HIP alike.
"""

from __future__ import annotations

import contextlib
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol, TypeVar

import torch

from hipwright.device.graph_pool import GraphPool

T = TypeVar("T")
SHARE = 32
"""Inputs and outputs that graphs keep are at most this part of a device's memory."""


class DeviceGraphs(Protocol):
    """How calls are captured and replayed on the current stream of a device."""

    def capturing(self, device: torch.device) -> bool:
        """Whether the caller captures the current stream: what is launched now becomes part of the caller's graph."""
        ...

    def stream(self, device: torch.device) -> int:
        """A number of the current stream. Graphs of one stream never run at the same time."""
        ...

    def capture(self, device: torch.device, call: Callable[[], T]) -> tuple[Callable[[], None], T]:
        """(starts the graph on the current stream, what call() returned, into which each replay writes).

        call() runs twice, once before the capture. Raises what call() or the driver raises; nothing is captured then.
        """
        ...

    def reserve(self, device: torch.device, size: int) -> bool:
        """Takes bytes for what graphs keep beside their own memory; False where all graphs together keep too much."""
        ...

    def release(self, device: torch.device, size: int) -> None:
        """Gives the bytes of a graph back that is forgotten."""
        ...


@dataclass(frozen=True)
class _Place:
    """Where the graphs of one stream are captured, and the memory that they share."""

    side: torch.cuda.Stream
    pool: GraphPool


class CudaGraphs:
    """torch's graphs. One for a process, as its streams and pools are (`cuda_graphs`); for several threads."""

    def __init__(self) -> None:
        self._places: dict[tuple[int, int], _Place] = {}
        self._kept = Counter[int]()  # bytes, by the device's number
        self._lock = threading.Lock()
        self._counting = threading.RLock()  # a graph may be forgotten, by the garbage collector, while one is counted

    def capturing(self, device: torch.device) -> bool:
        """As `DeviceGraphs.capturing`."""
        if torch.cuda.current_device() == device.index:
            return bool(torch.cuda.is_current_stream_capturing())
        with torch.cuda.device(device):
            return bool(torch.cuda.is_current_stream_capturing())

    def stream(self, device: torch.device) -> int:
        """The current stream's handle."""
        return int(torch._C._cuda_getCurrentRawStream(device.index))

    def capture(self, device: torch.device, call: Callable[[], T]) -> tuple[Callable[[], None], T]:
        """As `DeviceGraphs.capture`: on a stream of its own, which waits for the current one and is waited for.

        Other threads may allocate meanwhile (capture_error_mode "thread_local").
        """
        with torch.cuda.device(device), self._lock:
            current, key = torch.cuda.current_stream(device), (device.index, self.stream(device))
            place = self._places.get(key) or _Place(torch.cuda.Stream(device), GraphPool(str(device)))
            self._places.pop(key, None)  # a place in which a capture failed is not used again
            pool, graph = place.pool.handle(), torch.cuda.CUDAGraph()
            place.side.wait_stream(current)
            try:
                with torch.cuda.stream(place.side):
                    call()  # libraries make their workspaces of this stream now
                    result = _recorded(graph, pool, device, call)
            finally:
                current.wait_stream(place.side)
            self._places[key] = place
        return graph.replay, result

    def reserve(self, device: torch.device, size: int) -> bool:
        """As `DeviceGraphs.reserve`: together a `SHARE`th of the device's memory."""
        with self._counting:
            most = int(torch.cuda.get_device_properties(device).total_memory) // SHARE
            fits = self._kept[device.index] + size <= most
            self._kept[device.index] += size if fits else 0
            return fits

    def release(self, device: torch.device, size: int) -> None:
        """As `DeviceGraphs.release`."""
        with self._counting:
            self._kept[device.index] -= size


def _recorded(graph: torch.cuda.CUDAGraph, pool: Any, device: torch.device, call: Callable[[], T]) -> T:
    graph.capture_begin(pool=pool, capture_error_mode="thread_local")
    try:
        result = call()
    except BaseException:
        _abandon(graph, pool, device)
        raise
    try:
        graph.capture_end()
    except RuntimeError:
        _end_allocating(pool, device)
        raise
    return result


def _abandon(graph: torch.cuda.CUDAGraph, pool: Any, device: torch.device) -> None:
    """Ends a capture in which a call failed."""
    try:
        graph.capture_end()
    except RuntimeError:  # it is invalid, which is said once more
        _end_allocating(pool, device)


def _end_allocating(pool: Any, device: torch.device) -> None:
    """Tells torch's allocator that a capture is over whose end failed, which torch leaves out then."""
    with contextlib.suppress(RuntimeError, AttributeError):
        torch._C._cuda_endAllocateToPool(device.index, pool)


@cache
def cuda_graphs() -> CudaGraphs:
    """The graphs of this process."""
    return CudaGraphs()
