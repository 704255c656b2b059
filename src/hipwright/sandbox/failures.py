"""Errors of a session. They tell what happened; the caller decides whose fault it is."""

from __future__ import annotations

import signal as signals
from typing import Any

from hipwright.errors import WorkerError


class RemoteFailure(WorkerError):
    """The service raised something that is not a HipwrightError. The session is still alive."""

    def __init__(self, type_name: str, text: str, traceback_tail: str = "") -> None:
        super().__init__(f"{type_name}: {text}" if text else type_name)
        self.type_name = type_name
        self.text = text
        self.traceback_tail = traceback_tail
        self.evidence = {"type": type_name, "traceback": traceback_tail}


class WorkerDied(WorkerError):
    """The process ended in the middle of a call. `note` is the JSON it left in its crash page, if any.

    signal: what killed it, or None; returncode: its own exit status, or None; both None when neither is known.
    """

    def __init__(self, signal: int | None, returncode: int | None, stderr: str = "", note: Any = None) -> None:
        super().__init__("the worker process " + _cause(signal, returncode))
        self.signal = signal
        self.returncode = returncode
        self.stderr = stderr
        self.note = note
        self.evidence = {"signal": signal, "returncode": returncode, "stderr": stderr, "note": note}


class WorkerTimeout(WorkerError):
    """A call took longer than its limit, and the process was killed."""

    status = "timeout"

    def __init__(self, method: str, seconds: float, stderr: str = "", note: Any = None) -> None:
        super().__init__(f"{method} took longer than {seconds:g} s")
        self.stderr = stderr
        self.note = note
        self.evidence = {"seconds": seconds, "stderr": stderr, "note": note}


class WorkerFlood(WorkerDied):
    """A session started more threads or processes than it may: it and its whole zygote were killed."""

    def __init__(self, tasks: int, stderr: str = "", note: Any = None) -> None:
        super().__init__(int(signals.SIGKILL), None, stderr, note)
        self.args = (f"the worker was killed for starting {tasks} threads and processes or more",)
        self.message = self.args[0]
        self.evidence["tasks"] = tasks


def _cause(signal: int | None, returncode: int | None) -> str:
    if signal is not None:
        try:
            return f"was killed by {signals.Signals(signal).name}"
        except ValueError:
            return f"was killed by signal {signal}"
    return "vanished" if returncode is None else f"exited with status {returncode}"
