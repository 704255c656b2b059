"""The thread that holds a zygote's process, and what can be seen of that process from outside."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Mapping
from pathlib import Path

from hipwright.errors import InfrastructureError
from hipwright.sandbox.cgroup import TaskGroup

STDERR_BYTES = 64 << 10


class Keeper(threading.Thread):
    """The thread that starts the zygote and outlives it: PR_SET_PDEATHSIG fires when the starting *thread* ends."""

    def __init__(self, command: list[str], control_fd: int, env: Mapping[str, str], max_tasks: int = 0) -> None:
        super().__init__(name="hipwright-keeper", daemon=True)
        self._log = os.memfd_create("zygote-log")
        # only root escapes the kernel's own count of a user's processes
        self._group = TaskGroup(max_tasks) if max_tasks and os.geteuid() == 0 else None
        command = self._group.wrap(command) if self._group else command
        self._arguments = (command, control_fd, dict(env))
        self._launched = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._problem: OSError | None = None
        self.start()
        self._launched.wait()
        if self._problem is not None:
            raise InfrastructureError(f"cannot start {command[0]}: {self._problem}")

    def run(self) -> None:
        """The thread's own work: start the process and wait for its end."""
        command, control_fd, env = self._arguments
        try:
            self._process = subprocess.Popen(
                command,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=self._log,
                pass_fds=(control_fd,),
                start_new_session=True,
                cwd="/",
            )
        except OSError as error:
            self._problem = error
        finally:
            self._launched.set()
        if self._process is not None:
            self._process.wait()

    @property
    def pid(self) -> int | None:
        """The root of the tree of everything it started."""
        return self._process.pid if self._process is not None else None

    def end(self) -> None:
        """Kill it; its namespace dies with it."""
        if self._process is not None:
            self._process.kill()
            self.join()
        if self._group is not None:
            self._group.remove()

    def log(self) -> str:
        """What it printed last."""
        return printable(os.pread(self._log, STDERR_BYTES, 0))

    def __del__(self) -> None:
        os.close(self._log)


def count_tasks(root: int, enough: int) -> int:
    """Threads of `root` and of all that it started, counted until there are more than `enough`."""
    waiting, seen = [root], 0
    while waiting and seen <= enough:
        try:
            for task in Path(f"/proc/{waiting.pop()}/task").iterdir():
                seen += 1
                waiting += [int(child) for child in (task / "children").read_text().split()]
        except OSError:
            continue  # it has ended meanwhile
    return seen


def printable(raw: bytes) -> str:
    """Text without control characters: it ends up on terminals."""
    return "".join(c if c.isprintable() or c in "\n\t" else "?" for c in raw.decode(errors="replace"))
