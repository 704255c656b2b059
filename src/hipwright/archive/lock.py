"""An exclusive lock on a run: an flock, which the kernel releases when its process ends in any way."""

from __future__ import annotations

import fcntl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from hipwright.errors import BadInput

_PROBE_GRACE = 0.25  # seconds; `is_locked` of another process holds the lock for microseconds


@contextmanager
def run_lock(path: Path, run: str) -> Iterator[None]:
    """Holds the run's lock file. BadInput when another process holds it."""
    with _lock_file(path) as stream:
        deadline = time.monotonic() + _PROBE_GRACE
        while not _try(stream.fileno(), fcntl.LOCK_EX):
            if time.monotonic() > deadline:
                raise BadInput(
                    f"run {run} is being worked on by another process",
                    hint="wait for it, or stop it; what it has done so far is kept",
                )
            time.sleep(0.01)
        yield


def _lock_file(path: Path) -> IO[str]:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return path.open("w")
    except OSError as error:
        raise BadInput(
            f"cannot write {path}: {error.strerror}", hint="check its permissions and the free space"
        ) from error


def is_locked(path: Path) -> bool:
    """Whether some process holds the lock."""
    try:
        with path.open("r") as stream:
            return not _try(stream.fileno(), fcntl.LOCK_SH)
    except OSError:  # there is no lock file, or it is another user's
        return False


def _try(descriptor: int, mode: int) -> bool:
    try:
        fcntl.flock(descriptor, mode | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
