"""Ctrl-C and SIGTERM: a command ends within two seconds, and all its processes with it.

The first signal raises KeyboardInterrupt in the main thread, so that a command stores and says what it has so far. A
command that is not done after `GRACE_S`, or a second signal, ends at once: everything stored before is durable, as
after a power cut. The exit code is 128 + the signal's number, as in a shell.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, NoReturn, Self

GRACE_S = 1.2
WRITING_S = 0.3
KEPT = "what was stored is kept; --resume goes on, where the command has it"
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class StopSignals:
    """Handles SIGINT and SIGTERM while a command runs. A context manager, for the main thread.

    json_mode: where a command is ended without its own answer, stdout gets the JSON object of an interruption.
    """

    current: StopSignals | None = None

    def __init__(self, *, json_mode: bool = False) -> None:
        self.json_mode = json_mode
        self.received = 0
        self._last_word = [True]  # taken by the one that says the last word: pop is atomic among threads
        self.answered = False  # the command prints its JSON object or its line itself
        self.kept = KEPT
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        self._before = {number: signal.signal(number, self._on_signal) for number in _SIGNALS}
        StopSignals.current = self
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)
        StopSignals.current = None

    @property
    def exit_code(self) -> int:
        """128 + the number of the signal received; that of SIGINT without one."""
        return 128 + (self.received or signal.SIGINT)

    def take_last_word(self) -> bool:
        """Whether the caller is the first to take the last word; one alone may write it."""
        try:
            return self._last_word.pop()
        except IndexError:
            return False

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self.received:
            self._end()
        self.received = number
        timer = threading.Timer(GRACE_S, self._end, (WRITING_S,))
        timer.daemon = True
        timer.start()
        raise KeyboardInterrupt

    def _end(self, writing_s: float = 0.0) -> None:
        """Ends the process. Where the command is writing its own last word, it has `writing_s` more for it."""
        if not self.take_last_word():
            time.sleep(writing_s)
        else:
            name = signal.Signals(self.received).name
            os.write(2, f"interrupted by {name}: {self.kept}\n".encode())
            if self.json_mode:
                os.write(1, json.dumps(interrupted_object(self.exit_code), indent=2).encode() + b"\n")
        kill_descendants()
        os._exit(self.exit_code)


def interrupted_code() -> int:
    """The exit code of a command that says itself that it was interrupted: 143 by SIGTERM, else 130."""
    note_answer()
    return StopSignals.current.exit_code if StopSignals.current is not None else 128 + signal.SIGINT


def note_answer() -> None:
    """Notes that the command prints its own last word, so that an interruption adds none.

    Where its time was over and the last word is being written for it, the caller waits here for the process's end.
    """
    stop = StopSignals.current
    if stop is None or stop.answered:
        return
    if not stop.take_last_word():
        threading.Event().wait()
    stop.answered = True


def note_resume(command: str) -> None:
    """Notes the command that goes on with what is stored; an interruption names it, also one that is cut off."""
    if StopSignals.current is not None:
        StopSignals.current.kept = f"nothing is lost. Go on with: {command}"


def interrupted_object(code: int) -> dict[str, Any]:
    """The JSON object of a command that was interrupted before it had a result."""
    return {"status": "unscorable", "fault": None, "interrupted": True, "exit_code": code}


def end_process(code: int) -> NoReturn:
    """Ends this process after an interruption: no thread and no child is waited for; files in /tmp are removed."""
    kill_descendants()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError):
            stream.flush()
    atexit._run_exitfuncs()
    os._exit(code)


def kill_descendants() -> None:
    """Kills every process that this one started, directly or not."""
    for pid in reversed(_descendants(os.getpid())):
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)


def _descendants(root: int) -> list[int]:
    """The processes below `root`, parents first."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:  # it has ended
                continue
            children.setdefault(int(fields[1]), []).append(int(entry.name))
    found = [root]
    for pid in found:
        found += children.get(pid, [])
    return found[1:]
