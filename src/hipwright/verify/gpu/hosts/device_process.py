"""The process of a `DeviceReference`: started where it is not running, replaced after a fault.

Does not import torch.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from math import inf
from types import TracebackType
from typing import Any, Self

from hipwright.errors import DeviceError, HipwrightError, TaskError
from hipwright.sandbox import Limits, RemoteFailure, Session, WorkerDied, WorkerTimeout, Zygote
from hipwright.tensors import Tree
from hipwright.verify.gpu.hosts.shared_hosts import HostedTask, SharedHosts

Hosts = Zygote | SharedHosts
"""Where device hosts are opened."""
_SERVICE = "hipwright.task.device.server:DeviceHost"


class Crowded(DeviceError):
    """The device had no room beside other tasks: the task comes back for more. error: what the process said."""

    def __init__(self, error: HipwrightError) -> None:
        super().__init__(
            f"the device has no room beside other tasks: {error.message[:300]}",
            hint="fewer tasks at a time, or a device with more memory",
            evidence=dict(error.evidence),
        )


class DeviceProcess:
    """One session of the device host for one task. Safe to use from several threads, one call at a time.

    init: of `task.device.server.DeviceHost`. generation: counts the sessions; what one held is gone with it. crowded():
    whether other tasks share the device, so that a want of memory is nobody's fault: then it raises Crowded.
    give_way(): is called before each request, outside the lock that a request takes: what it waits for may wait for a
    thread that closes this process. share(): bytes of device memory that the process may keep, 0 for all;
    spare(wanted): bytes beyond them that it may use until the block ends.
    """

    def __init__(
        self,
        zygote: Hosts,
        init: dict[str, Any],
        limits: Limits,
        share: Callable[[], int] = lambda: 0,
    ) -> None:
        self.device = str(init["device"])
        self.generation = 0
        self._zygote, self._init, self._limits = zygote, init, limits
        self._session: Session | HostedTask | None = None
        self._lock = threading.RLock()  # of one request
        self._turn = threading.RLock()  # of several in a row; taken before the lock
        self._done_bridges: list[int] = []
        self.crowded: Callable[[], bool] = lambda: False
        self.give_way: Callable[[], None] = lambda: None
        self.share = share
        self.spare: Callable[[int], AbstractContextManager[int]] = lambda wanted: nullcontext(0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Ends the host."""
        with self._lock:
            if self._session is not None:
                self._session.close()
                self._session = None

    def started_again(self) -> None:
        """Forgets what an earlier session held."""

    def _alive(self) -> Session | HostedTask:
        with self._lock:
            if self._session is None or not self._session.alive:
                self.started_again()
                self.generation += 1
                init = {**self._init, "share_bytes": self.share()}
                self._session = self._zygote.session(_SERVICE, init, limits=self._limits)
            return self._session

    @contextmanager
    def with_spare(self, wanted: int) -> Iterator[None]:
        """A context in which the process may use up to so many bytes that nobody has reserved."""
        share = self.share()
        with self.spare(wanted) as more:
            self.ask("allow", {"bytes": share and share + more}, json_only=True)
            try:
                yield
            finally:
                if self._session is not None and self._session.alive:
                    with suppress(HipwrightError):
                        self.ask("allow", {"bytes": share}, json_only=True)

    def map_bridge(self, number: int, nbytes: int, fd: int) -> bool:
        """See `bridge.parent.BridgedHost`."""
        done, self._done_bridges = self._done_bridges, []
        header = {"bridge": number, "bytes": nbytes, "done": done}
        return self.ask("bridge", header, json_only=True, give=fd)[0]["mapped"] is True

    def forget_bridge(self, number: int) -> None:
        """See `bridge.parent.BridgedHost`."""
        self._done_bridges.append(number)

    def ask(
        self,
        method: str,
        header: dict[str, Any] | None = None,
        bundle: Tree = None,
        *,
        json_only: bool = False,
        give: int | None = None,
        limit_s: float = inf,
    ) -> tuple[dict[str, Any], Tree]:
        """A request to the host, started where it is not running. Raises TaskError, DeviceError.

        json_only: without tensors; give: with a file descriptor; limit_s: wall seconds for this one, after which the
        host ends. The error's cause is then a WorkerTimeout.
        """
        self.give_way()
        with self._lock:
            try:
                session, wall_s = self._alive(), min(self._limits.wall_s, limit_s)
                if json_only:
                    return session.call_json(method, header or {}, timeout_s=wall_s, give=give), None
                return session.call(method, header, bundle, timeout_s=wall_s)
            except (WorkerDied, WorkerTimeout, RemoteFailure) as error:
                raise self._blame(error) from error
            except HipwrightError as error:
                if "out_of_memory" in error.evidence and self.crowded():
                    raise Crowded(error) from error
                if self._session is not None and (isinstance(error, DeviceError) or error.evidence.get("broken")):
                    self._session.close()  # a context with an error cannot be used again
                raise

    def _blame(self, error: WorkerDied | WorkerTimeout | RemoteFailure) -> TaskError:
        name = self._init["name"]
        if isinstance(error, RemoteFailure):
            return TaskError(f"{name}: on {self.device}: {error.message}", evidence=error.evidence)
        phase = error.note.get("phase", "running") if isinstance(error.note, dict) else "running"
        return TaskError(f"{name}: {phase} on {self.device}: {error.message}", evidence=error.evidence)
