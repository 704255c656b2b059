"""The timing lock and the memory of a GPU that another process of the command keeps (`shared_gpu.py`)."""

from __future__ import annotations

import contextlib
import itertools
import mmap
import os
import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from hipwright.errors import WorkerError
from hipwright.evaluation.gpu.memory import GpuMemory, Reservation
from hipwright.evaluation.gpu.shared_gpu import PAGE, Send
from hipwright.evaluation.gpu.timing_lock import GpuLock
from hipwright.evaluation.gpu.waits import WAITS


class GpuLine:
    """A visiting process's way to the keeper. send: carries a message; page: the fd of `KeptLock`, which it closes."""

    def __init__(self, send: Send, page: int) -> None:
        self._send = send
        self._page = mmap.mmap(page, PAGE, prot=mmap.PROT_READ)
        os.close(page)
        self._numbers, self._own = itertools.count(), threading.local()
        self._waiting: dict[int, queue.SimpleQueue[dict[str, Any]]] = {}
        self._lock, self._broken = threading.Lock(), False

    @property
    def timing_waits(self) -> bool:
        """Whether a timing waits for the work of any process."""
        return bool(self._page[0])

    def tell(self, op: str, **data: Any) -> None:
        """Sends a message that has no answer."""
        self._send({"type": "gpu", "thread": self._thread, "op": op, **data})

    def ask(self, op: str, **data: Any) -> Any:
        """The answer to a question. Raises WorkerError where the keeper has ended."""
        number, answer = next(self._numbers), queue.SimpleQueue()  # type: int, queue.SimpleQueue[dict[str, Any]]
        with self._lock:
            if self._broken:
                raise WorkerError("the process that keeps the GPU has ended")
            self._waiting[number] = answer
        with contextlib.suppress(OSError):  # the keeper has ended, and `end` says so
            self.tell(op, id=number, **data)
        found = answer.get()
        if "value" not in found:
            raise WorkerError("the process that keeps the GPU has ended")
        return found["value"]

    def take(self, message: dict[str, Any]) -> None:
        """An answer of the keeper."""
        with self._lock:
            waiting = self._waiting.pop(message["id"])
        waiting.put(message)

    def end(self) -> None:
        """The keeper has ended: those that wait for its answers raise."""
        with self._lock:
            self._broken, waiting = True, list(self._waiting.values())
        for answer in waiting:
            answer.put({})

    @contextmanager
    def block(self, op: str, **data: Any) -> Iterator[Any]:
        """A block that the keeper enters for this thread; the time until then is waited."""
        with WAITS.waiting():
            value = self.ask(op, **data)
        try:
            yield value
        finally:
            with contextlib.suppress(OSError):
                self.tell("leave")

    @property
    def _thread(self) -> int:
        if not hasattr(self._own, "mark"):
            self._own.mark = _ThreadMark(self)
        mark: _ThreadMark = self._own.mark
        return mark.number

    def gone(self, number: int) -> None:
        """A thread has ended, and holds nothing."""
        with contextlib.suppress(OSError):
            self._send({"type": "gpu", "thread": number, "op": "gone"})


class _ThreadMark:
    """Lives as long as a thread; the keeper's thread for it ends with it."""

    _numbers = itertools.count()

    def __init__(self, line: GpuLine) -> None:
        self.number, self._line = next(self._numbers), line

    def __del__(self) -> None:
        self._line.gone(self.number)


class VisitorLock(GpuLock):
    """The keeper's timing lock, in a visiting process."""

    def __init__(self, line: GpuLine) -> None:
        super().__init__()
        self._line = line

    @property
    def timing_waits(self) -> bool:
        """As of GpuLock."""
        return self._line.timing_waits

    def exclusive(self) -> AbstractContextManager[None]:
        """As of GpuLock."""
        return self._line.block("exclusive")

    def _held(self, gives_way: bool) -> AbstractContextManager[None]:
        return self._line.block("shared", gives_way=gives_way)

    def _come_again(self) -> None:
        with WAITS.waiting():
            self._line.ask("give way")


class VisitorMemory(GpuMemory):
    """The keeper's memory of a GPU, in a visiting process. total: bytes of the device."""

    def __init__(self, line: GpuLine, total: int) -> None:
        super().__init__(total)
        self._line = line
        self._rooms, self._numbers = dict[Reservation, int](), itertools.count()

    def _wait(self, one: Reservation) -> None:
        number = next(self._numbers)
        with WAITS.waiting():
            self._line.ask("reserve", room=number, need=one.need, again=one.again)
        self._rooms[one] = number

    @contextmanager
    def spare(self, one: Reservation, wanted: int, pause: Callable[[], None]) -> Iterator[int]:
        """As of GpuMemory; the keeper's lock is what gives way meanwhile."""
        if one not in self._rooms:
            yield 0
            return
        with self._line.block("spare", room=self._rooms[one], wanted=wanted) as more:
            yield more

    def accompanies(self, one: Reservation) -> bool:
        """As of GpuMemory."""
        return one in self._rooms and bool(self._line.ask("accompanied", room=self._rooms[one]))

    def _leave(self, one: Reservation) -> None:
        if (number := self._rooms.pop(one, None)) is not None:
            self._line.ask("leave room", room=number)
