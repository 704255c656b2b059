"""Device memory that successive graphs of one process share. Imports torch.

torch refuses to capture into a pool whose last graph was destroyed while its memory is still cached (an internal
assertion on the pool's use count), and allocating from the driver again takes milliseconds. So a pool keeps a small
graph of its own.
"""

from __future__ import annotations

from typing import Any

import torch


class GraphPool:
    """One pool of one device, created by the first call of `handle`."""

    def __init__(self, device: str) -> None:
        self._device = device
        self._handle: Any = None
        self._anchor: tuple[Any, torch.Tensor] | None = None

    def handle(self) -> Any:
        """The `pool` argument of `capture_begin`. Graphs of one pool must not run at the same time."""
        if self._anchor is None:
            handle, graph = torch.cuda.graph_pool_handle(), torch.cuda.CUDAGraph()
            value = torch.zeros(1, device=self._device)
            stream = torch.cuda.Stream(self._device)
            stream.wait_stream(torch.cuda.current_stream(self._device))
            with torch.cuda.stream(stream):
                graph.capture_begin(pool=handle, capture_error_mode="thread_local")
                try:
                    value.add_(1.0)
                finally:
                    graph.capture_end()
            self._handle, self._anchor = handle, (graph, value)
        return self._handle

    def release(self) -> None:
        """Free the memory as soon as no graph uses it; the next handle is a new pool's."""
        self._handle = self._anchor = None
