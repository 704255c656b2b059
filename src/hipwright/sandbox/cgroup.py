"""A control group that limits a zygote's tasks when root starts it: RLIMIT_NPROC spares processes of root."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

_ENTER = 'echo $$ > "$0" && exec "$@"'
_PREFIX = "hipwright-"


class TaskGroup:
    """A new control group with at most `limit` tasks, below this process's group. `limited` is False where the system
    does not allow one (containers often mount control groups read-only)."""

    def __init__(self, limit: int, *, proc: Path = Path("/proc"), root: Path = Path("/sys/fs/cgroup")) -> None:
        self._folder: Path | None = None
        for base in _bases(proc, root):
            _remove_stale(base, proc)
            folder = base / f"{_PREFIX}{os.getpid()}-{time.monotonic_ns()}"
            try:
                folder.mkdir()
                with (folder / "pids.max").open("r+") as stream:  # opened, not created: only the kernel makes this file
                    stream.write(str(limit))
            except OSError:
                with contextlib.suppress(OSError):
                    folder.rmdir()
                continue
            self._folder = folder
            return

    @property
    def limited(self) -> bool:
        """Whether there is such a group."""
        return self._folder is not None

    def wrap(self, command: list[str]) -> list[str]:
        """`command`, started inside the group."""
        return ["/bin/sh", "-c", _ENTER, str(self._folder / "cgroup.procs"), *command] if self._folder else command

    def remove(self) -> None:
        """Remove the group once its processes have ended; waits up to a second for them."""
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
    """The folders of this process's groups of version 1 (controller pids) and version 2."""
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
    """Remove empty groups whose processes were killed before they could do so."""
    for folder in base.glob(f"{_PREFIX}*"):
        owner = folder.name.removeprefix(_PREFIX).partition("-")[0]
        if not (proc / owner).exists():
            with contextlib.suppress(OSError):
                folder.rmdir()
