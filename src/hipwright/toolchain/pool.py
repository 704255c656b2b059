"""Warm compile sessions: a compiler library is loaded once in a contained process and used for many compiles.

A session serves one compile at a time, for one service ("module:Class"). It is replaced after `RECYCLE` compiles, a
timeout or a crash, so that damage by a hostile source to the compiler's heap does not persist.
"""

from __future__ import annotations

import json
import threading
from types import TracebackType
from typing import Any, Self

from hipwright.errors import WorkerError
from hipwright.sandbox import Limits, Session, WorkerTimeout, Zygote
from hipwright.tensors import Tree

RECYCLE = 200  # compiles of one session
COMPILE_LIMIT_S = 60.0
KILLS = 8  # killed compiles, each of which may leave temporary files, before all sessions are restarted
LIMITS = Limits(wall_s=120.0, cpu_s=3600.0, memory_mb=4096)


class CompilePool:
    """At most `size` compiles at once, in sessions of one zygote that stay warm. Methods may be called from any thread.

    zygote: can read (`ro`) the files that its services load; it needs no torch and no GPU. The caller closes it.
    limit_s: wall seconds of one compile.
    """

    def __init__(self, zygote: Zygote, size: int, *, limit_s: float = COMPILE_LIMIT_S) -> None:
        if size < 1:
            raise ValueError("a compile pool has at least one session")
        self.size = size
        self.limit_s = limit_s
        self._killed = 0
        self._zygote = zygote
        self._slots = threading.BoundedSemaphore(size)
        self._lock = threading.Lock()
        self._refreshing = threading.Lock()
        self._idle: list[tuple[str, Session, int]] = []  # service and settings, session, compiles so far
        self._warming: list[threading.Thread] = []
        self._closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def call(
        self, service: str, init: dict[str, Any], method: str, header: dict[str, Any]
    ) -> tuple[dict[str, Any], Tree]:
        """service(init).method(header) in a warm session; waits while all are busy.

        Raises the errors of Session.call; the session is then replaced, except after an error of the service itself.
        """
        kind = json.dumps([service, init], sort_keys=True)
        try:
            with self._slots:
                session, used = self._take(kind) or (self._zygote.session(service, init, limits=LIMITS), 0)
                try:
                    return session.call(method, header, timeout_s=self.limit_s)
                finally:
                    self._put(kind, session, used + 1)
        except WorkerTimeout:
            self._count_killed()
            raise

    def _count_killed(self) -> None:
        """Count a killed compiler, which leaves temporary files; after `KILLS` of them, restart all sessions."""
        with self._lock:
            self._killed += 1
            full = self._killed >= KILLS
            self._killed %= KILLS
        if full:
            self.refresh()

    def refresh(self) -> None:
        """End all sessions and their zygote, and with it the private /tmp that they share.

        Waits for running compiles; the next compile starts the zygote again.
        """
        with self._refreshing:
            for _ in range(self.size):
                self._slots.acquire()
            try:
                with self._lock:
                    idle, self._idle = self._idle, []
                for _, session, _ in idle:
                    session.close()
                self._zygote.close()
            finally:
                for _ in range(self.size):
                    self._slots.release()

    def warm(self, service: str, init: dict[str, Any]) -> threading.Thread:
        """Start every session in the background, ahead of the first compiles."""

        def begin() -> None:
            for _ in range(self.size):
                if self._closed:
                    return
                try:
                    session = self._zygote.session(service, init, limits=LIMITS)
                except Exception:  # the first compile raises it again
                    return
                self._put(json.dumps([service, init], sort_keys=True), session, 0)

        thread = threading.Thread(target=begin, name="warm compilers", daemon=True)
        self._warming.append(thread)
        thread.start()
        return thread

    def close(self) -> None:
        """End the idle sessions; busy ones end when their compile does.

        Waits for a session that `warm` is starting, which would restart the zygote after the caller has closed it.
        """
        self._closed = True
        for thread in self._warming:
            thread.join()
        with self._lock:
            idle, self._idle = self._idle, []
        for _, session, _ in idle:
            session.close()

    def _take(self, kind: str) -> tuple[Session, int] | None:
        """An idle session of this kind, None without one; then one of another kind is ended where there are `size`."""
        spare: Session | None = None
        with self._lock:
            if self._closed:
                raise WorkerError("the compile pool is closed")
            for index in range(len(self._idle) - 1, -1, -1):
                if self._idle[index][0] == kind:
                    _, session, used = self._idle.pop(index)
                    return session, used
            if len(self._idle) >= self.size:
                spare = self._idle.pop(0)[1]
        if spare is not None:
            spare.close()
        return None

    def _put(self, kind: str, session: Session, used: int) -> None:
        with self._lock:
            keep = session.alive and used < RECYCLE and not self._closed and len(self._idle) < self.size
            if keep:
                self._idle.append((kind, session, used))
        if not keep:
            session.close()
