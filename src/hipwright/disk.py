"""Errors of a full disk name the path: the operating system's own name none for a write to an open file."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from hipwright.errors import HipwrightError, InfrastructureError

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
FREE_BYTES = 64 << 10  # a file system with less free space counts as full
HINT = "free some space there and give the command again, with --resume where it has one: what was stored is kept"


@contextmanager
def naming(path: Path | str) -> Iterator[None]:
    """Adds the path to an OSError that names none."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = str(path)
        raise


def is_full(path: Path | str) -> bool:
    """Whether the file system of a path, or of its nearest folder that exists, has no space left."""
    place = Path(path).absolute()
    while not place.exists() and place != place.parent:
        place = place.parent
    try:
        found = os.statvfs(place)
    except OSError:
        return False
    return found.f_bavail * found.f_frsize < FREE_BYTES


def file_error(error: OSError, places: Iterable[Path | str]) -> HipwrightError:
    """An error of a file as one of ours, exit 3. places: where a command may write, for an error that names no path."""
    if error.errno not in FULL:
        return HipwrightError(str(error), hint="check the path, its permissions and the free space")
    full = [str(place) for place in dict.fromkeys(map(str, places)) if is_full(place)]
    path = error.filename or (full[0] if full else "a file or stdout")
    return InfrastructureError(f"cannot write {path}: {error.strerror}", hint=HINT)
