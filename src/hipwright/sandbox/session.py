"""A session's parent side: one contained process that serves one object."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import time
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from hipwright.errors import WorkerError
from hipwright.sandbox import protocol
from hipwright.sandbox.child import CRASH_PAGE_BYTES
from hipwright.sandbox.failures import WorkerDied, WorkerFlood, WorkerTimeout
from hipwright.sandbox.keeper import STDERR_BYTES, printable
from hipwright.sandbox.limits import Limits
from hipwright.tensors import Tree

if TYPE_CHECKING:
    from hipwright.sandbox.zygote import Zygote

GLANCE_S = 0.1  # between two looks at how many processes a zygote that may fork has


class Session:
    """One process that serves one object. Use as a context manager; not for several threads at once.

    pid: its number there, and in which life of the zygote. late: asked, again and again, when a call's time is over;
    while it says True the call is waited for still.
    """

    late: Callable[[], bool] | None = None

    def __init__(
        self,
        zygote: Zygote,
        channel: socket.socket,
        pid: tuple[int, int],
        pidfd: int,
        stderr: int,
        crash: int,
        limits: Limits,
    ) -> None:
        self._zygote = zygote
        self._channel = channel
        self._pid, self._life = pid
        self._pidfd = pidfd
        self._stderr = stderr
        self._crash = crash
        self._reply_limit = limits.memory_mb << 20
        self._alive = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def __del__(self) -> None:
        with contextlib.suppress(Exception):
            self.close()

    @property
    def alive(self) -> bool:
        """False once the process has ended or was killed."""
        return self._alive

    @property
    def running(self) -> bool:
        """Whether the process runs now, as the system says."""
        if not self._alive:
            return False
        watch = select.poll()
        watch.register(self._pidfd, select.POLLIN)
        return not watch.poll(0)

    def call(
        self, method: str, header: dict[str, Any] | None = None, bundle: Tree = None, *, timeout_s: float
    ) -> tuple[dict[str, Any], Tree]:
        """method(header, bundle) in the session.

        Raises the service's own HipwrightError, RemoteFailure for its other exceptions, WorkerDied, WorkerTimeout, and
        WorkerError for a reply that is malformed or larger than the memory limit; after the last three it is dead.
        """
        if not self._alive:
            raise WorkerError("the session has ended")
        ask = protocol.request(method, header or {}, bundle)
        reply = protocol.memory_file("reply")
        try:
            self._exchange(method, ask, reply, timeout_s)
            return protocol.read_reply(reply, self._reply_limit)
        except BaseException as error:
            if type(error) is WorkerError or not isinstance(error, Exception):
                self.close()
            raise
        finally:
            os.close(ask)
            os.close(reply)

    def quick(self, method: str, header: dict[str, Any], *, timeout_s: float) -> dict[str, Any]:
        """A call without tensors in either direction, plain JSON: a fraction of the time of `call`. Raises as that."""
        if not self._alive:
            raise WorkerError("the session has ended")
        try:
            told = self._told(method, [protocol.quick(method, header)], [], timeout_s)
            if told != protocol.LARGE:
                return protocol.read_quick(told)
            reply = protocol.memory_file("reply")
            try:
                self._finished(self._told(method, [protocol.LARGE], [reply], timeout_s))
                return protocol.read_reply(reply, self._reply_limit)[0]
            finally:
                os.close(reply)
        except BaseException as error:
            if type(error) is WorkerError or not isinstance(error, Exception):
                self.close()
            raise

    def _exchange(self, method: str, ask: int, reply: int, timeout_s: float) -> None:
        self._finished(self._told(method, [protocol.CALL], [ask, reply], timeout_s))

    def _finished(self, told: bytes) -> None:
        if told != protocol.DONE:
            raise WorkerError("malformed reply from a worker: not an answer")

    def _told(self, method: str, message: list[bytes], fds: list[int], timeout_s: float) -> bytes:
        """What the session answers to a message, within the time."""
        deadline = time.monotonic() + timeout_s
        try:
            socket.send_fds(self._channel, message, fds)
        except OSError:
            raise self._died() from None
        if not self._wait(deadline):
            self._kill()
            stderr, note = self._last_words()
            self.close()
            raise WorkerTimeout(method, timeout_s, stderr, note)
        try:
            told = self._channel.recv(protocol.QUICK_BYTES, socket.MSG_DONTWAIT)
        except OSError:
            told = b""
        if not told:
            raise self._died()
        return told

    def _wait(self, deadline: float) -> bool:
        """Whether it answered, or ended, in time. Raises WorkerFlood, after ending its zygote, for a fork bomb."""
        watch = select.poll()
        watch.register(self._channel, select.POLLIN)
        watch.register(self._pidfd, select.POLLIN)
        while True:
            left = max(0.0, deadline - time.monotonic())
            slice_s = min(left, GLANCE_S) if self._zygote.watched else left
            if watch.poll(slice_s * 1000):
                return True
            if left <= slice_s:
                if self.late is None or not self.late():
                    return False
                deadline = time.monotonic() + GLANCE_S
            if flood := self._zygote.flooded():
                self._zygote.close()
                stderr, note = self._last_words()
                self._kill()
                self._release()
                raise WorkerFlood(flood, stderr, note)

    def close(self) -> None:
        """Kill the process, wait for its end, release everything."""
        if not self._alive:
            return
        self._kill()
        self._zygote._reap(self._pid, self._life)
        self._release()

    def _died(self) -> WorkerDied:
        self._kill()  # it may only have closed its socket
        code = self._zygote._reap(self._pid, self._life)
        stderr, note = self._last_words()
        self._release()
        if code is None:
            return WorkerDied(None, None, stderr, note)
        return WorkerDied(-code if code < 0 else None, code if code >= 0 else None, stderr, note)

    def _kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
        gone = select.poll()
        gone.register(self._pidfd, select.POLLIN)
        gone.poll(30_000)

    def _last_words(self) -> tuple[str, Any]:
        """The tail of its stderr, and the JSON in its crash page."""
        text = printable(os.pread(self._stderr, STDERR_BYTES, 0).rstrip(b"\0"))[-protocol.TEXT_LIMIT :]
        page = os.pread(self._crash, CRASH_PAGE_BYTES, 0).split(b"\0", 1)[0]
        try:
            note = json.loads(page) if page else None
        except (ValueError, RecursionError):
            note = None
        return text, note

    def _release(self) -> None:
        self._alive = False
        self._channel.close()
        for fd in (self._pidfd, self._stderr, self._crash):
            os.close(fd)
