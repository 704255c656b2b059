"""A zygote's operating-system process: started and held by a thread of its own, observed through /proc."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import threading
from collections.abc import Mapping
from pathlib import Path

from hipwright.errors import InfrastructureError
from hipwright.sandbox.cgroup import TaskGroup

STDERR_BYTES = 64 << 10
END_S = 10.0


class ZygoteProcess(threading.Thread):
    """Starts a zygote's process and waits for its end: PR_SET_PDEATHSIG fires when the starting *thread* ends.

    max_tasks: threads and processes that the kernel allows it when root starts it; 0 for no limit.
    """

    def __init__(self, command: list[str], control_fd: int, env: Mapping[str, str], max_tasks: int = 0) -> None:
        super().__init__(name="hipwright-zygote", daemon=True)
        self._log = os.memfd_create("zygote-log")
        # RLIMIT_NPROC, which bounds a user's processes, spares root: root needs a control group
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
        """Start the process and wait for its end."""
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
        """The process's number; None where it did not start."""
        return self._process.pid if self._process is not None else None

    def end(self) -> None:
        """Kill the process; its namespace, and every process in it, ends with it."""
        if self._process is not None:
            self._process.kill()
            self.join()
        if self._group is not None:
            self._group.remove()

    def log(self) -> str:
        """What it printed, at most STDERR_BYTES."""
        return printable(os.pread(self._log, STDERR_BYTES, 0))

    def __del__(self) -> None:
        os.close(self._log)


class LentProcess:
    """The process of a zygote that another one forked for this process, by its pidfd, which this object closes."""

    def __init__(self, pidfd: int) -> None:
        self._pidfd = pidfd

    @property
    def pid(self) -> int | None:
        """The process's number as this process sees it; None where it has ended, or the system does not tell."""
        with contextlib.suppress(OSError, ValueError):
            for line in Path(f"/proc/self/fdinfo/{self._pidfd}").read_text().splitlines():
                if line.startswith("Pid:"):
                    return number if (number := int(line.split()[1])) > 0 else None
        return None

    def end(self) -> None:
        """Kill the process, and with it its sessions; waits for its end, at most END_S."""
        with contextlib.suppress(OSError):  # it has ended
            signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
        ended = select.poll()
        ended.register(self._pidfd, select.POLLIN)
        ended.poll(END_S * 1000)

    def log(self) -> str:
        """Empty: what it printed went to the zygote that lent it."""
        return ""

    def __del__(self) -> None:
        os.close(self._pidfd)


def count_tasks(root: int, enough: int) -> int:
    """Counts the threads of process `root` and of all its descendants, until there are more than `enough`."""
    waiting, seen = [root], 0
    while waiting and seen <= enough:
        try:
            for task in Path(f"/proc/{waiting.pop()}/task").iterdir():
                seen += 1
                waiting += [int(child) for child in (task / "children").read_text().split()]
        except OSError:
            continue  # the process has ended meanwhile
    return seen


def printable(raw: bytes) -> str:
    """Text with control characters replaced by "?", fit for a terminal."""
    return "".join(c if c.isprintable() or c in "\n\t" else "?" for c in raw.decode(errors="replace"))
