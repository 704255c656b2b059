"""One GPU that several processes of a command share: its timing lock and its memory are kept in one of them.

The keeper has a `SharedGpu`, and a `GpuVisitor` for each process that visits it, which has a `GpuLine` to it
(`visiting.py`); whatever carries JSON objects joins the two. Each thread of a visiting process has a thread of its own
at the keeper's, which holds what it holds: `TimingLock` and `DeviceMemory` are the same for one process and for
several. What a visiting process held is given back when it ends in any way.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import queue
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from hipwright.evaluation.gpu.memory import DeviceMemory, Reservation
from hipwright.evaluation.gpu.timing_lock import TimingLock

Send = Callable[[dict[str, Any]], None]
PAGE = mmap.PAGESIZE


class KeptLock(TimingLock):
    """A timing lock that shows in a page of shared memory whether a timing waits, so that asking costs no message.

    fd: of the page; closed with the process.
    """

    def __init__(self) -> None:
        super().__init__()
        self.fd = os.memfd_create("timings that wait")
        os.ftruncate(self.fd, PAGE)
        self._page = mmap.mmap(self.fd, PAGE)

    def _count_waiting(self, more: int) -> None:
        super()._count_waiting(more)
        self._page[0] = min(self._waiting, 255)

    def close(self) -> None:
        """Gives the page back."""
        self._page.close()
        os.close(self.fd)


class SharedGpu:
    """What the keeper has of one GPU. memory_bytes: of the device; 0 where it is not known, and nothing is reserved."""

    def __init__(self, memory_bytes: int) -> None:
        self.lock = KeptLock()
        self.memory = DeviceMemory(memory_bytes) if memory_bytes else None


class GpuVisitor:
    """One visiting process, at the keeper's. send: carries an answer to its `GpuLine`."""

    def __init__(self, gpu: SharedGpu, send: Send) -> None:
        self._gpu, self._send = gpu, send
        self._threads: dict[int, _VisitorThread] = {}
        self._rooms: dict[int, Reservation] = {}
        self._lock = threading.Lock()
        self.ended = False

    def take(self, message: dict[str, Any]) -> None:
        """A message of the line; returns at once. From one thread only."""
        number = message["thread"]
        if number not in self._threads:
            self._threads[number] = _VisitorThread(self)
        self._threads[number].asked.put(message)
        if message["op"] == "gone":
            del self._threads[number]

    def end(self) -> None:
        """The process has ended: gives back what it holds. From the thread that calls `take`."""
        self.ended = True
        for thread in self._threads.values():
            thread.asked.put(None)
        self._threads.clear()
        with self._lock:
            rooms, self._rooms = list(self._rooms.values()), {}
        for room in rooms:
            room.leave()

    def answer(self, message: dict[str, Any], value: Any) -> None:
        """Answers a question."""
        with contextlib.suppress(OSError):  # it has just ended
            self._send({"type": "gpu", "id": message["id"], "value": value})

    def opened(self, message: dict[str, Any]) -> AbstractContextManager[Any]:
        """The block that a thread enters."""
        match message["op"]:
            case "shared":
                return self._gpu.lock.shared(gives_way=message["gives_way"])
            case "exclusive":
                return self._gpu.lock.exclusive()
            case _:
                assert self._gpu.memory is not None
                room = self._rooms[message["room"]]
                return self._gpu.memory.spare(room, message["wanted"], self._gpu.lock.give_way)

    def told(self, message: dict[str, Any]) -> Any:
        """What is asked outside blocks."""
        memory, number = self._gpu.memory, message.get("room", 0)
        match message["op"]:
            case "give way":
                self._gpu.lock.give_way()
            case "reserve":
                assert memory is not None
                found = memory.reserve(message["need"], again=message["again"])
                with self._lock:
                    if not self.ended:
                        self._rooms[number] = found
                        return None
                found.leave()
            case "leave room":
                with self._lock:
                    room = self._rooms.pop(number, None)
                if room is not None:
                    room.leave()
            case "accompanied":
                return number in self._rooms and self._rooms[number].accompanied
        return None


class _VisitorThread:
    """Does at the keeper's what one thread of a visiting process asks for, and holds what it holds."""

    def __init__(self, visitor: GpuVisitor) -> None:
        self.asked: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        self._visitor = visitor
        threading.Thread(target=self._run, name="visitor of the GPU", daemon=True).start()

    def _run(self) -> None:
        blocks: list[contextlib.ExitStack] = []
        while (message := self.asked.get()) is not None and message["op"] != "gone":
            if message["op"] == "leave":
                blocks.pop().close()
            elif message["op"] in ("shared", "exclusive", "spare"):
                blocks.append(contextlib.ExitStack())
                self._visitor.answer(message, blocks[-1].enter_context(self._visitor.opened(message)))
            else:
                self._visitor.answer(message, self._visitor.told(message))
        for block in reversed(blocks):
            block.close()
