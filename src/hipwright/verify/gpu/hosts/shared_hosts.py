"""Device hosts that several tasks share: the parent's side of `hipwright.task.device.shared_host`.

Does not import torch.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Iterator
from typing import Any, Self

from hipwright.errors import DeviceError, HipwrightError, WorkerError
from hipwright.sandbox import Limits, Session, Zygote
from hipwright.tensors import Tree

_SERVICE = "hipwright.task.device.shared_host:SharedDeviceHost"
_CLOSE_S = 60.0


class SharedHosts:
    """A few processes that serve the device hosts of many tasks; `session` has the signature of `Zygote.session`.

    A new task goes to the process with the fewest tasks. Only for tasks that trust each other: one that changes torch
    changes it for all tasks of its process.
    """

    def __init__(self, zygote: Zygote, count: int) -> None:
        self._processes = [_HostProcess(zygote) for _ in range(max(1, count))]
        self._lock = threading.Lock()

    def session(self, service: str, init: dict[str, Any], *, limits: Limits) -> HostedTask:
        """Opens the task of `init`. service: always the device host's. Raises as `Zygote.session`."""
        with self._lock:
            process = min(self._processes, key=lambda one: one.starting + len(one.tasks))
            process.starting += 1
        try:
            return process.open(init, limits)
        finally:
            with self._lock:
                process.starting -= 1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends every process; a later task starts one again."""
        for process in self._processes:
            process.close()


class _HostProcess:
    """One process, started with its first task and restarted after it died. Serves one call at a time."""

    def __init__(self, zygote: Zygote) -> None:
        self.tasks: set[int] = set()
        self.starting = 0
        self.lock = threading.RLock()
        self._zygote = zygote
        self._session: Session | None = None
        self._numbers = itertools.count(1)

    def close(self) -> None:
        """Ends the process."""
        with self.lock:
            if self._session is not None:
                self._session.close()
                self._session = None

    def open(self, init: dict[str, Any], limits: Limits) -> HostedTask:
        """See `SharedHosts.session`."""
        with self.lock:
            if self._session is None or not self._session.alive:
                self._session = self._zygote.session(_SERVICE, {}, limits=limits)
                self.tasks.clear()
            task = HostedTask(self, self._session, next(self._numbers))
            with task.closing_on_fault():
                self._session.call("open", {"task": task.number, "init": init}, timeout_s=limits.wall_s)
            self.tasks.add(task.number)
            return task


class HostedTask:
    """One task's device host in a shared process, with the interface of Session.

    A fault of the device ends the process, with all of its tasks.
    """

    def __init__(self, process: _HostProcess, session: Session, number: int) -> None:
        self.number = number
        self._process, self._session = process, session
        self._open = True

    @property
    def alive(self) -> bool:
        """False once it was closed, or the process ended."""
        return self._open and self._session.alive

    def call(
        self, method: str, header: dict[str, Any] | None = None, bundle: Tree = None, *, timeout_s: float
    ) -> tuple[dict[str, Any], Tree]:
        """As `Session.call`; the time limit starts when the process is free."""
        with self._process.lock, self.closing_on_fault():
            return self._session.call("call", self._request(method, header), bundle, timeout_s=timeout_s)

    def call_json(
        self, method: str, header: dict[str, Any], *, timeout_s: float, give: int | None = None
    ) -> dict[str, Any]:
        """As `Session.call_json`."""
        with self._process.lock, self.closing_on_fault():
            return self._session.call_json("call", self._request(method, header), timeout_s=timeout_s, give=give)

    def close(self) -> None:
        """Closes the task; the process stays."""
        with self._process.lock:
            if self._open:
                self._open = False
                self._process.tasks.discard(self.number)
                if self._session.alive:
                    with contextlib.suppress(HipwrightError):
                        self._session.call("close", {"task": self.number}, timeout_s=_CLOSE_S)

    @contextlib.contextmanager
    def closing_on_fault(self) -> Iterator[None]:
        """A context that ends the process after a fault of the device, whose context cannot be used any more."""
        try:
            yield
        except HipwrightError as error:
            if isinstance(error, DeviceError) or error.evidence.get("broken"):
                self._session.close()
            raise

    def _request(self, method: str, header: dict[str, Any] | None) -> dict[str, Any]:
        if not self._open:
            raise WorkerError("the session has ended")
        return {"task": self.number, "method": method, "header": header or {}}
