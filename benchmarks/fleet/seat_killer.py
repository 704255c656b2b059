"""Kills the processes of a fleet's seats, of this run alone, which a variable of their environment marks."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

END_S = 5.0


def marked(name: str, value: str) -> dict[int, bytes]:
    """The processes whose environment has the variable, and those that they started: command lines by number.

    Ray's workers write their title over their environment, so they are found by the process that started them.
    """
    parents, found = {}, set()
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            if f"{name}={value}".encode() in (folder / "environ").read_bytes().split(b"\0"):
                found.add(int(folder.name))
    while more := {pid for pid, parent in parents.items() if parent in found and pid not in found}:
        found |= more
    lines = {}
    for pid in found:
        with suppress(OSError):
            lines[pid] = Path(f"/proc/{pid}/cmdline").read_bytes()
    return lines


def end_marked(name: str, value: str) -> None:
    """Ends them: by SIGTERM, and what is left after END_S by SIGKILL."""
    known = marked(name, value)
    for number in (signal.SIGTERM, signal.SIGKILL):
        until = time.monotonic() + END_S
        for pid in known:
            with suppress(OSError):
                os.kill(pid, number)
        while known and time.monotonic() < until:
            time.sleep(0.2)
            known = {pid: line for pid, line in known.items() if _line(pid) == line} | marked(name, value)


def _line(pid: int) -> bytes:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


class SeatKiller(threading.Thread):
    """SIGKILL to a random seat's process every so many seconds, while the context is open.

    kills: how many; evaluating: how many of them while the seat evaluated an order, as Ray titles the process.
    """

    def __init__(self, name: str, value: str, every_s: float) -> None:
        super().__init__(daemon=True)
        self._mark, self._every_s = (name, value), every_s
        self._ended = threading.Event()
        self.kills = self.evaluating = 0

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._ended.set()
        self.join(END_S)

    def run(self) -> None:
        """The thread."""
        while not self._ended.wait(self._every_s):
            seats = [(pid, line) for pid, line in marked(*self._mark).items() if line.startswith(b"ray::SeatProcess")]
            if not seats:
                continue
            pid, line = random.choice(seats)
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)
                self.kills += 1
                self.evaluating += b".evaluate" in line
