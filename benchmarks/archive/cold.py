"""Drops an archive's files from memory, so that what a first command waits for can be measured; Linux.

All pages of the machine's page cache where this process may (root, /proc/sys/vm/drop_caches), else the files' own
(posix_fadvise). What stays in memory nevertheless is looked for, and named.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Iterable
from pathlib import Path

from hipwright.errors import BadInput

_DROP = Path("/proc/sys/vm/drop_caches")
_PAGE = mmap.PAGESIZE
MOST_LEFT = 0.02
"""The share of an archive's pages that may stay: another process may hold some."""


def drop(folder: Path) -> None:
    """Drops the files under a folder from memory. BadInput where the system keeps them."""
    files = [path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()]
    for path in files:
        with path.open("rb") as stream:
            os.fsync(stream.fileno())  # a page that is not written yet cannot be dropped
            os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    if may_drop_all():
        _DROP.write_text("1")
    left, pages = resident(files)
    if left > max(64, MOST_LEFT * pages):
        raise BadInput(
            f"{left} of {pages} pages of {folder} stay in memory: the system does not drop them, so no cold figure",
            hint="run it as root on Linux, on a disk (not tmpfs), while nothing else uses the archive",
        )


def may_drop_all() -> bool:
    """Whether this process may drop the machine's whole page cache."""
    return os.access(_DROP, os.W_OK)


def way() -> str:
    """How files are dropped here, in words."""
    return "drop_caches" if may_drop_all() else "posix_fadvise (file system metadata stays)"


def resident(files: Iterable[Path]) -> tuple[int, int]:
    """(pages of the files that are in memory, all of their pages), by mincore."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    libc.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]
    libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    left = pages = 0
    for path in files:
        size = path.stat().st_size
        if not size:
            continue
        count = -(-size // _PAGE)
        found = (ctypes.c_ubyte * count)()
        with path.open("rb") as stream:
            at = libc.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, stream.fileno(), 0)
            if at == ctypes.c_void_p(-1).value:
                raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), str(path))
            done = libc.mincore(at, size, found)
            libc.munmap(at, size)
        if done:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), str(path))
        left, pages = left + bytes(found).count(1), pages + count
    return left, pages


def reads() -> tuple[int, int]:
    """(read calls of this process so far, bytes that it has fetched from disks), of /proc/self/io."""
    lines = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(lines["syscr"]), int(lines["read_bytes"])
