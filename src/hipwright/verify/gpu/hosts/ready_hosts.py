"""Device hosts that are started ahead, one process for each task. Does not import torch.

A process needs seconds before it can use a GPU: its context, and torch's libraries at their first use. Nothing of a
task runs in it before the one that it is for.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Self

from hipwright.sandbox import Limits, Session, Zygote
from hipwright.verify.gpu.hosts.shared_hosts import SHARED_SERVICE, HostedTask, HostProcess
from hipwright.verify.standby import Standby


class ReadyHosts:
    """Keeps `count` idle processes; `session` has the signature of `Zygote.session`.

    device: torch's name. limits: of every process. around: the context of each start in the background.
    """

    def __init__(
        self,
        zygote: Zygote,
        device: str,
        count: int,
        limits: Limits,
        around: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self._zygote, self._init, self._limits = zygote, {"device": device}, limits
        self.standby = Standby(self._start, count, around)

    def _start(self) -> Session:
        return self._zygote.session(SHARED_SERVICE, self._init, limits=self._limits)

    def session(self, service: str, init: dict[str, Any], *, limits: Limits) -> HostedTask:
        """Opens the task of `init` in a process of its own. service: always the device host's. Raises as
        `Zygote.session`.
        """
        process = _OwnProcess(self._zygote, self.standby.take())
        try:
            return process.open(init, limits)
        except BaseException:
            process.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the idle processes; those of tasks end with their task."""
        self.standby.close()


class _OwnProcess(HostProcess):
    """The process of one task, which ends with it."""

    def __init__(self, zygote: Zygote, session: Session) -> None:
        super().__init__(zygote)
        self._session = session

    def ended(self, number: int, session: Session) -> None:
        """See `HostProcess`."""
        session.close()
