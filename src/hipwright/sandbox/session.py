"""The parent's side of a session: one contained process that serves one object."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

from hipwright.errors import WorkerError
from hipwright.sandbox import protocol
from hipwright.sandbox.child import CRASH_PAGE_BYTES
from hipwright.sandbox.failures import WorkerDied, WorkerFlood, WorkerTimeout
from hipwright.sandbox.limits import Limits
from hipwright.sandbox.zygote_process import STDERR_BYTES, printable
from hipwright.tensors import Tree

COUNT_PERIOD_S = 0.1
"""Seconds between two counts of the tasks of a zygote whose sessions may fork."""


class SessionHost(Protocol):
    """What a session needs of the zygote that forked it."""

    @property
    def watched(self) -> bool:
        """Whether sessions may start processes, so that tasks must be counted."""
        ...

    def flooded(self) -> int:
        """The number of tasks where it is over the limit, else 0."""
        ...

    def reap(self, pid: int, generation: int) -> int | None:
        """The exit code of an ended session (minus the signal), None where it cannot be told."""
        ...

    def close(self) -> None:
        """Kill the zygote and all its sessions."""
        ...


class Session:
    """One process that serves one object. Use as a context manager; not for several threads at once.

    pid: (process number, the zygote's generation in which it holds). extend: called repeatedly when a call's time is
    over; the call is waited for as long as it returns True.
    """

    extend: Callable[[], bool] | None = None

    def __init__(
        self,
        zygote: SessionHost,
        channel: socket.socket,
        pid: tuple[int, int],
        pidfd: int,
        stderr: int,
        crash: int,
        limits: Limits,
    ) -> None:
        self._zygote = zygote
        self._channel = channel
        self._pid, self._generation = pid
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
        """Whether the operating system still runs the process."""
        if not self._alive:
            return False
        watch = select.poll()
        watch.register(self._pidfd, select.POLLIN)
        return not watch.poll(0)

    def call(
        self, method: str, header: dict[str, Any] | None = None, bundle: Tree = None, *, timeout_s: float
    ) -> tuple[dict[str, Any], Tree]:
        """Call method(header, bundle) of the service; returns its (header, bundle).

        Raises the service's own HipwrightError, RemoteFailure for its other exceptions, WorkerDied, WorkerTimeout, and
        WorkerError for a reply that is malformed or larger than the memory limit; after the last three the session has
        ended.
        """
        if not self._alive:
            raise WorkerError("the session has ended")
        request = protocol.request(method, header or {}, bundle)
        reply = protocol.memory_file("reply")
        try:
            self._exchange(method, request, reply, timeout_s)
            return protocol.read_reply(reply, self._reply_limit)
        except BaseException as error:
            if type(error) is WorkerError or not isinstance(error, Exception):
                self.close()
            raise
        finally:
            os.close(request)
            os.close(reply)

    def call_json(
        self,
        method: str,
        header: dict[str, Any],
        *,
        timeout_s: float,
        give: int | None = None,
        take: list[int] | None = None,
    ) -> dict[str, Any]:
        """A call whose headers are JSON and that carries no tensors; takes a fraction of the time of `call`. Raises the
        same errors.

        give: a file descriptor for the call (`sandbox.given_fd`). take: is filled with those of the answer
        (`attach_fd`), at most one, which the caller closes; without it they are dropped.
        """
        if not self._alive:
            raise WorkerError("the session has ended")
        given = [] if give is None else [give]
        try:
            answer = self._send(method, [protocol.json_call(method, header)], given, timeout_s, take)
            if answer != protocol.LARGE:
                return protocol.read_json_answer(answer)
            reply = protocol.memory_file("reply")
            try:
                self._check_done(self._send(method, [protocol.LARGE], [reply], timeout_s))
                return protocol.read_reply(reply, self._reply_limit)[0]
            finally:
                os.close(reply)
        except BaseException as error:
            if type(error) is WorkerError or not isinstance(error, Exception):
                self.close()
            raise

    def _exchange(self, method: str, request: int, reply: int, timeout_s: float) -> None:
        self._check_done(self._send(method, [protocol.CALL], [request, reply], timeout_s))

    def cpu_seconds(self) -> float | None:
        """Processor time that the process has used, of all its threads; None where the system does not tell."""
        try:
            told = Path(f"/proc/self/fdinfo/{self._pidfd}").read_text().split()
            fields = Path(f"/proc/{told[told.index('Pid:') + 1]}/stat").read_text().rpartition(")")[2].split()
        except (OSError, ValueError, IndexError):
            return None
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")  # utime and stime

    def _check_done(self, answer: bytes) -> None:
        if answer != protocol.DONE:
            raise WorkerError("malformed reply from a worker: not an answer")

    def _send(
        self, method: str, message: list[bytes], fds: list[int], timeout_s: float, take: list[int] | None = None
    ) -> bytes:
        """Send a message and return the answer. Raises WorkerDied, WorkerTimeout, WorkerFlood."""
        deadline = time.monotonic() + timeout_s
        try:
            socket.send_fds(self._channel, message, fds)
        except OSError:
            raise self._died() from None
        if not self._wait(deadline):
            self._kill()
            stderr, note = self._diagnostics()
            self.close()
            raise WorkerTimeout(method, timeout_s, stderr, note)
        try:
            if take is None:
                answer = self._channel.recv(protocol.MESSAGE_BYTES, socket.MSG_DONTWAIT)
            else:
                answer, came, _, _ = socket.recv_fds(self._channel, protocol.MESSAGE_BYTES, 1, socket.MSG_DONTWAIT)
                take.extend(came)
        except OSError:
            answer = b""
        if not answer:
            raise self._died()
        return answer

    def _wait(self, deadline: float) -> bool:
        """Whether the process answered or ended in time. Ends the zygote of a fork bomb and raises WorkerFlood."""
        watch = select.poll()
        watch.register(self._channel, select.POLLIN)
        watch.register(self._pidfd, select.POLLIN)
        while True:
            left = max(0.0, deadline - time.monotonic())
            slice_s = min(left, COUNT_PERIOD_S) if self._zygote.watched else left
            if watch.poll(slice_s * 1000):
                return True
            if left <= slice_s:
                if self.extend is None or not self.extend():
                    return False
                deadline = time.monotonic() + COUNT_PERIOD_S
            if flood := self._zygote.flooded():
                self._zygote.close()
                stderr, note = self._diagnostics()
                self._kill()
                self._release()
                raise WorkerFlood(flood, stderr, note)

    def close(self) -> None:
        """Kill the process, wait for its end, release everything."""
        if not self._alive:
            return
        self._kill()
        self._zygote.reap(self._pid, self._generation)
        self._release()

    def _died(self) -> WorkerDied:
        self._kill()  # it may only have closed its socket
        code = self._zygote.reap(self._pid, self._generation)
        stderr, note = self._diagnostics()
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

    def _diagnostics(self) -> tuple[str, Any]:
        """(the tail of its stderr, the JSON in its crash page)."""
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
