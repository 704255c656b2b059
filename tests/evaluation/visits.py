"""A GPU that a keeper shares with a visiting process, both in this one: messages go through threads, as JSON."""

from __future__ import annotations

import json
import os
import queue
import threading
from types import TracebackType
from typing import Any, Self

from hipwright.evaluation.gpu.shared_gpu import GpuVisitor, SharedGpu
from hipwright.evaluation.gpu.visiting import GpuLine, VisitorLock, VisitorMemory


class Visit:
    """One visit. total: bytes of the device, 0 for none known."""

    def __init__(self, total: int = 0, gpu: SharedGpu | None = None) -> None:
        self.gpu = gpu or SharedGpu(total)
        self._up: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self.visitor = GpuVisitor(self.gpu, lambda message: self.line.take(json.loads(json.dumps(message))))
        self.line = GpuLine(lambda message: self._up.put(json.dumps(message)), os.dup(self.gpu.lock.fd))
        self.lock = VisitorLock(self.line)
        self.memory = VisitorMemory(self.line, total) if total else None
        self._thread = threading.Thread(target=self._carry, daemon=True)

    def _carry(self) -> None:
        while (message := self._up.get()) is not None:
            found: dict[str, Any] = json.loads(message)
            self.visitor.take(found)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.end()

    def end(self) -> None:
        """The visiting process ends, at whatever it does."""
        self._up.put(None)
        self._thread.join()
        self.line.end()
        self.visitor.end()
