"""A kernel limit on how many tasks a zygote has, for root: RLIMIT_NPROC spares processes whose real user is root."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

_ENTER = 'echo $$ > "$0" && exec "$@"'
_PREFIX = "hipwright-"


class TaskGroup:
    """A control group of its own with at most `limit` tasks, below this process's group; `made` is False where the
    system does not let us (containers often mount control groups read-only)."""

    def __init__(self, limit: int, *, proc: Path = Path("/proc"), root: Path = Path("/sys/fs/cgroup")) -> None:
        self._folder: Path | None = None
        for base in _bases(proc, root):
            _remove_stale(base, proc)
            folder = base / f"{_PREFIX}{os.getpid()}-{time.monotonic_ns()}"
            try:
                folder.mkdir()
                with (folder / "pids.max").open("r+") as stream:  # never created by us: only the kernel makes it
                    stream.write(str(limit))
            except OSError:
                with contextlib.suppress(OSError):
                    folder.rmdir()
                continue
            self._folder = folder
            return

    @property
    def made(self) -> bool:
        """Whether there is a limit."""
        return self._folder is not None

    def wrap(self, command: list[str]) -> list[str]:
        """`command`, begun inside the group."""
        return ["/bin/sh", "-c", _ENTER, str(self._folder / "cgroup.procs"), *command] if self._folder else command

    def remove(self) -> None:
        """Once its processes have ended; a second's wait for those that are ending."""
        deadline = time.monotonic() + 1
        while self._folder is not None:
            try:
                self._folder.rmdir()
            except OSError:
                if time.monotonic() < deadline and self._folder.exists():
                    time.sleep(0.01)
                    continue
            self._folder = None


def _bases(proc: Path, root: Path) -> list[Path]:
    """Where this process's own groups of version 1 (controller pids) and version 2 would be."""
    try:
        lines = (proc / "self/cgroup").read_text().splitlines()
    except OSError:
        return []
    found = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if "pids" in controllers.split(","):
            found.append(root / "pids" / path.strip("/"))
        elif not controllers:
            found.append(root / path.strip("/"))
    return found


def _remove_stale(base: Path, proc: Path) -> None:
    """Empty groups of processes that were killed before they could tidy up."""
    for folder in base.glob(f"{_PREFIX}*"):
        owner = folder.name.removeprefix(_PREFIX).partition("-")[0]
        if not (proc / owner).exists():
            with contextlib.suppress(OSError):
                folder.rmdir()
