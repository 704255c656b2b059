"""Reading an archive that this process may not write: a folder without write permission, or a read-only mount.

SQLite keeps the index of a WAL beside the file, so that it cannot open a WAL database in a folder where it may create
nothing. In order of preference: the index of a live writer (mode=ro), the file alone where there is no WAL
(immutable=1), and a copy of file and WAL in a temporary folder (sqlite.org/wal.html, section 5).
"""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote


def cannot_write(error: sqlite3.OperationalError) -> bool:
    """Whether SQLite failed because it may not write the file."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM)


def cannot_open_to_write(error: sqlite3.OperationalError) -> bool:
    """Whether SQLite failed because it may not write the file or create its index in the folder."""
    return cannot_write(error) or getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_CANTOPEN


def open_read_only(path: Path, timeout_s: float) -> sqlite3.Connection:
    """A connection that only reads. Raises sqlite3.Error or OSError where the file cannot be read either."""
    failed: Exception | None = None
    for db in _ways(path, timeout_s):
        try:
            db.execute("SELECT name FROM sqlite_master").fetchall()
        except sqlite3.OperationalError as error:
            db.close()
            failed = error
        else:
            return db
    assert failed is not None
    raise failed


def _ways(path: Path, timeout_s: float) -> Iterator[sqlite3.Connection]:
    yield _connect(path, "mode=ro", timeout_s)
    wal = path.with_name(f"{path.name}-wal")
    if not wal.exists() or wal.stat().st_size == 0:
        yield _connect(path, "mode=ro&immutable=1", timeout_s)
        return
    with tempfile.TemporaryDirectory(prefix="hipwright-archive-") as folder:
        for file in (path, wal):
            shutil.copyfile(file, Path(folder) / file.name)
        memory = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        with sqlite3.connect(Path(folder) / path.name) as copied:
            copied.backup(memory)
        copied.close()
        yield memory


def _connect(path: Path, how: str, timeout_s: float) -> sqlite3.Connection:
    uri = f"file:{quote(str(path))}?{how}"
    return sqlite3.connect(uri, uri=True, timeout=timeout_s, isolation_level=None, check_same_thread=False)
