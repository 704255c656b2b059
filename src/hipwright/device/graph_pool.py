"""Device memory that graphs of one process share, one after another. Imports torch.

torch refuses to capture into a pool whose last graph is gone while its memory is still kept (an internal assertion on
the pool's use count), and asking the driver for memory anew takes milliseconds. So a pool holds a graph of its own.
"""

from __future__ import annotations

from typing import Any

import torch


class GraphPool:
    """One pool of one device, made when it is first asked for."""

    def __init__(self, device: str) -> None:
        self._device = device
        self._handle: Any = None
        self._anchor: tuple[Any, torch.Tensor] | None = None

    def handle(self) -> Any:
        """What `capture_begin` takes as its pool. Graphs with the same handle must not run at the same time."""
        if self._anchor is None:
            handle, graph = torch.cuda.graph_pool_handle(), torch.cuda.CUDAGraph()
            value = torch.zeros(1, device=self._device)
            stream = torch.cuda.Stream(self._device)
            stream.wait_stream(torch.cuda.current_stream(self._device))
            with torch.cuda.stream(stream):
                graph.capture_begin(pool=handle)
                try:
                    value.add_(1.0)
                finally:
                    graph.capture_end()
            self._handle, self._anchor = handle, (graph, value)
        return self._handle

    def release(self) -> None:
        """Let go of the memory, as soon as no graph uses it; the next handle is another pool's."""
        self._handle = self._anchor = None
