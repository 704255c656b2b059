"""Device hosts that several tasks share: the parent's side of `hipwright.task.device.room`. No torch."""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Iterator
from typing import Any, Self

from hipwright.errors import DeviceError, HipwrightError, WorkerError
from hipwright.sandbox import Limits, Session, Zygote
from hipwright.tensors import Tree

_SERVICE = "hipwright.task.device.room:DeviceRoom"
_LEAVING_S = 60.0


class SharedHosts:
    """A few processes for the device hosts of many tasks; `session` is Zygote's, and gives a Guest of the emptiest.

    For tasks that trust each other: one that changes torch changes it for all guests of its room.
    """

    def __init__(self, zygote: Zygote, count: int) -> None:
        self._rooms = [_Room(zygote) for _ in range(max(1, count))]
        self._lock = threading.Lock()

    def session(self, service: str, init: dict[str, Any], *, limits: Limits) -> Guest:
        """A guest that serves `init`. service: always the device host's. Raises as `Zygote.session`."""
        with self._lock:
            room = min(self._rooms, key=lambda one: one.coming + len(one.guests))
            room.coming += 1
        try:
            return room.enter(init, limits)
        finally:
            with self._lock:
                room.coming -= 1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End every process; a later guest starts one again."""
        for room in self._rooms:
            room.close()


class _Room:
    """One process, started with its first guest, and again when it died. One call at a time."""

    def __init__(self, zygote: Zygote) -> None:
        self.guests: set[int] = set()
        self.coming = 0
        self.lock = threading.RLock()
        self._zygote = zygote
        self._session: Session | None = None
        self._numbers = itertools.count(1)

    def close(self) -> None:
        """End the process."""
        with self.lock:
            if self._session is not None:
                self._session.close()
                self._session = None

    def enter(self, init: dict[str, Any], limits: Limits) -> Guest:
        """See `SharedHosts.session`."""
        with self.lock:
            if self._session is None or not self._session.alive:
                self._session = self._zygote.session(_SERVICE, {}, limits=limits)
                self.guests.clear()
            guest = Guest(self, self._session, next(self._numbers))
            with guest.watched():
                self._session.call("enter", {"guest": guest.number, "init": init}, timeout_s=limits.wall_s)
            self.guests.add(guest.number)
            return guest


class Guest:
    """One task's device host in a room, as a Session. A fault of the device ends the room, with all of its guests."""

    def __init__(self, room: _Room, session: Session, number: int) -> None:
        self.number = number
        self._room, self._session = room, session
        self._here = True

    @property
    def alive(self) -> bool:
        """False once it left, or the process ended."""
        return self._here and self._session.alive

    def call(
        self, method: str, header: dict[str, Any] | None = None, bundle: Tree = None, *, timeout_s: float
    ) -> tuple[dict[str, Any], Tree]:
        """As `Session.call`; the time begins when the room is free."""
        with self._room.lock, self.watched():
            return self._session.call("ask", self._asked(method, header), bundle, timeout_s=timeout_s)

    def quick(self, method: str, header: dict[str, Any], *, timeout_s: float) -> dict[str, Any]:
        """As `Session.quick`."""
        with self._room.lock, self.watched():
            return self._session.quick("ask", self._asked(method, header), timeout_s=timeout_s)

    def close(self) -> None:
        """Leave; the process stays."""
        with self._room.lock:
            if self._here:
                self._here = False
                self._room.guests.discard(self.number)
                if self._session.alive:
                    with contextlib.suppress(HipwrightError):
                        self._session.call("leave", {"guest": self.number}, timeout_s=_LEAVING_S)

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """A context with an error is of no more use to anybody."""
        try:
            yield
        except HipwrightError as error:
            if isinstance(error, DeviceError) or error.evidence.get("broken"):
                self._session.close()
            raise

    def _asked(self, method: str, header: dict[str, Any] | None) -> dict[str, Any]:
        if not self._here:
            raise WorkerError("the session has ended")
        return {"guest": self.number, "method": method, "header": header or {}}
