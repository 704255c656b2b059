"""The process in which a task's code runs: requests to it, and the states that it keeps. Does not import torch."""

from __future__ import annotations

import threading
from collections import OrderedDict
from itertools import count
from signal import SIGABRT
from typing import Any

from hipwright.errors import TaskError, WorkerError
from hipwright.sandbox import Limits, RemoteFailure, Session, WorkerDied, WorkerTimeout, Zygote
from hipwright.tensors import Tree

_SERVICE = "hipwright.task.host.server:TaskHost"
_HOST_CPU_S = 24 * 3600.0
QUOTED = 200
"""Characters of what an aborted process said that its error quotes."""
NUMBERED = 16
"""States that are not sent again: a verification has three, and each of them nudged in three ways."""


class ReferenceHost:
    """One session of a task. Usable from several threads, one call at a time.

    A process that dies or exceeds its time is replaced by the next call; the call itself raises TaskError, because only
    the task's code runs there. limits.wall_s bounds each call.
    """

    def __init__(self, name: str, source: str, zygote: Zygote, limits: Limits) -> None:
        self._name, self._source, self._zygote = name, source, zygote
        # one host serves the whole task: its time is limited call by call, by the wall clock
        self._limits = Limits(wall_s=limits.wall_s, cpu_s=_HOST_CPU_S, memory_mb=limits.memory_mb)
        self._session: Session | None = None
        self._closed = False
        self._lock = threading.RLock()
        self._numbered: OrderedDict[int, tuple[int, Tree]] = OrderedDict()  # states and their numbers, by id
        self._numbers = count()

    def close(self) -> None:
        """Ends the process for good."""
        with self._lock:
            self._closed = True
            if self._session is not None:
                self._session.close()
                self._session = None

    def ask(
        self, method: str, header: dict[str, Any] | None = None, bundle: Tree = None
    ) -> tuple[dict[str, Any], Tree]:
        """The reply of a method of the service. Raises TaskError, WorkerError once it is closed: work in the background
        would start a process that nobody ends."""
        with self._lock:
            if self._closed:
                raise WorkerError(f"the task {self._name} is closed")
            try:
                if self._session is None or not self._session.alive:
                    init = {"name": self._name, "source": self._source}
                    self._session = self._zygote.session(_SERVICE, init, limits=self._limits)
                return self._session.call(method, header, bundle, timeout_s=self._limits.wall_s)
            except (WorkerDied, WorkerTimeout, RemoteFailure) as error:
                raise self._blame(error) from error

    def run(self, header: dict[str, Any], inputs: Tree, state: Tree) -> Any:
        """The reply to "run". A state is sent once, as long as the process keeps it."""
        with self._lock:
            known, place = None, id(state)
            if place not in self._numbered:
                self._numbered[place], known = (next(self._numbers), state), state  # kept alive: its id is its own
            self._numbered.move_to_end(place)
            if len(self._numbered) > NUMBERED:
                self._numbered.popitem(last=False)
            header = {**header, "token": self._numbered[place][0]}
            reply, told = self.ask("run", header, [inputs, known])
            if reply.get("unknown_state"):
                told = self.ask("run", header, [inputs, state])[1]
            return told

    def _blame(self, error: WorkerDied | WorkerTimeout | RemoteFailure) -> TaskError:
        if isinstance(error, RemoteFailure):
            return TaskError(f"{self._name}: {error.message}", evidence=error.evidence)
        phase = error.note.get("phase", "running") if isinstance(error.note, dict) else "running"
        if isinstance(error, WorkerTimeout):
            return TaskError(
                f"{self._name}: {phase} took longer than {self._limits.wall_s:g} s",
                hint="give get_input_groups() with smaller inputs",
                evidence=error.evidence,
            )
        why = _reason(error.stderr) if error.signal == SIGABRT else ""
        return TaskError(f"{self._name}: {phase}: {error.message}{why}", evidence=error.evidence)


def _reason(stderr: str) -> str:
    """Why an aborted process gave up, after a colon: the text of an exception of C++, which a stack follows, else the
    last line."""
    said = [line.strip() for line in stderr.splitlines() if line.strip()]
    thrown = [line.partition("what():")[2].strip() for line in said if "what():" in line]
    last = (thrown or said)[-1:]
    return f": {last[0][:QUOTED]}" if last else ""
