"""Opens the archive's SQLite file, and turns errors of SQLite and the file system into one-line errors of ours."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hipwright.archive.place import NoArchive
from hipwright.archive.sqlite import schema
from hipwright.archive.sqlite.read_only import cannot_open_to_write, cannot_write, open_read_only
from hipwright.disk import HINT as DISK_HINT
from hipwright.disk import is_full
from hipwright.errors import BadInput, InfrastructureError

BROKEN_HINT = "move the file away to start a new archive; `sqlite3 FILE .recover` may save what it holds"
_BUSY_SECONDS = 30.0


def open_file(path: Path, *, create: bool) -> tuple[sqlite3.Connection, bool]:
    """(a connection, whether it only reads). create: make a missing file; the file must then be writable.

    Raises BadInput (not an archive, too new, not writable) and InfrastructureError (damaged).
    """
    with archive_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        db = sqlite3.connect(path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False)
        try:
            _check(path, db)
        except sqlite3.OperationalError as error:
            db.close()
            if not cannot_open_to_write(error) or not path.exists():
                raise
            found = _only_reading(path)
            if not create:
                return found, True
            found.close()
            raise not_writable(path) from error
        except BaseException:
            db.close()
            raise
        return db, False


def not_writable(path: Path) -> BadInput:
    """The error for storing something in an archive that can only be read."""
    return BadInput(
        f"the archive {path} is read-only here: nothing can be stored in it",
        hint="point HIPWRIGHT_HOME to a folder that can be written, or copy the archive's folder to one",
    )


@contextmanager
def archive_errors(path: Path) -> Iterator[None]:
    """Turns errors of SQLite and the file system into errors of ours that name the file."""
    try:
        yield
    except sqlite3.OperationalError as error:
        if cannot_write(error):
            raise not_writable(path) from error
        hint = DISK_HINT if is_full(path) else "check its permissions and the free space"
        raise InfrastructureError(f"cannot use the archive {path}: {error}", hint=hint) from error
    except sqlite3.DatabaseError as error:
        raise InfrastructureError(f"the archive {path} is damaged: {error}", hint=BROKEN_HINT) from error
    except OSError as error:
        raise BadInput(
            f"cannot use {path.parent} as the archive's folder: {error.strerror}",
            hint="point HIPWRIGHT_HOME to a folder that can be written",
        ) from error


def _only_reading(path: Path) -> sqlite3.Connection:
    db = open_read_only(path, _BUSY_SECONDS)
    try:
        if _is_new(path, db):
            raise NoArchive(str(path.parent))
    except BaseException:
        db.close()
        raise
    return db


def _check(path: Path, db: sqlite3.Connection) -> None:
    """Checks that the file is an archive before writing to it; creates the schema in a new file."""
    db.execute("BEGIN")  # one consistent read: another process may be creating the schema
    try:
        new = _is_new(path, db)
    finally:
        db.execute("ROLLBACK")
    if new:
        _enter_wal(db)
        db.execute("BEGIN IMMEDIATE")
        if _is_new(path, db):  # another process may have created it
            schema.create(db)
        db.execute("COMMIT")
    db.execute("PRAGMA synchronous = FULL")
    db.execute("PRAGMA foreign_keys = ON")


def _is_new(path: Path, db: sqlite3.Connection) -> bool:
    identity = db.execute("PRAGMA application_id").fetchone()[0]
    version = db.execute("PRAGMA user_version").fetchone()[0]
    if identity == schema.APPLICATION_ID and version > schema.SCHEMA_VERSION:
        raise BadInput(
            f"{path} was written by a newer hipwright (schema {version}, this one reads up to {schema.SCHEMA_VERSION})",
            hint="upgrade hipwright, or point HIPWRIGHT_HOME to another folder",
        )
    if identity == schema.APPLICATION_ID:
        return False
    if identity or version or db.execute("SELECT 1 FROM sqlite_master").fetchone():
        raise BadInput(f"{path} is another program's database", hint="point HIPWRIGHT_HOME to another folder")
    return True


def _enter_wal(db: sqlite3.Connection) -> None:
    """Switches to WAL; SQLite does not wait for other processes here, so this retries."""
    deadline = time.monotonic() + _BUSY_SECONDS
    while True:
        try:
            db.execute("PRAGMA journal_mode = WAL").fetchone()
            return
        except sqlite3.OperationalError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)
