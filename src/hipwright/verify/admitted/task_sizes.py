"""The sizes of one task that may change, and its workloads at chosen shapes, each asked for once."""

from __future__ import annotations

import threading

from hipwright.records import Workload
from hipwright.task import TaskHandle
from hipwright.task.sizes import Shapes
from hipwright.verify.admitted.size_space import SizeSpace


class TaskSizes:
    """Answers of the task host, kept for all programs of a task. Safe to use from several threads."""

    def __init__(self, handle: TaskHandle) -> None:
        self._handle = handle
        self._lock = threading.RLock()
        self._space: SizeSpace | None = None
        self._found: dict[tuple[Shapes, int], tuple[Workload | None, int]] = {}

    def space(self) -> SizeSpace:
        """The given shapes, and the sizes in them that the reference lets change."""
        with self._lock:
            if self._space is None:
                given, symbols = self._handle.free_sizes()
                self._space = SizeSpace(given, tuple(symbols))
            return self._space

    def at(self, shapes: Shapes, limit: int) -> tuple[Workload | None, int]:
        """(the workload of these shapes, its elements); no workload where it has more than `limit` elements.

        0 elements where the reference refuses the shapes.
        """
        with self._lock:
            if (shapes, limit) not in self._found:
                self._found[shapes, limit] = self._handle.at(shapes, limit)
            return self._found[shapes, limit]
