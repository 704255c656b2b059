"""Opens the archive of a URL: connects, checks the schema's version, and makes the schema where there is none."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING

from hipwright.archive.place import NoArchive, address_of
from hipwright.errors import HipwrightError

if TYPE_CHECKING:
    from hipwright.archive.postgres.database import PostgresDatabase
    from hipwright.archive.postgres.session import DatabaseSession

PACKAGES = ("sqlalchemy", "alembic", "psycopg")


def open_database(url: str, *, create: bool) -> PostgresDatabase:
    """The database of a URL. create: make the schema where it is missing; it must then be writable.

    Raises BadInput (a wrong URL, no archive, too old or too new, not writable) and InfrastructureError (no server).
    """
    session = connected(url)
    try:
        from hipwright.archive.postgres import versions
        from hipwright.archive.postgres.database import PostgresDatabase
        from hipwright.archive.postgres.faults import not_writable

        found = session.read(versions.revision_of(session.address))
        if found is None:
            if not create:
                raise NoArchive(session.address.shown)
            versions.upgrade(session)
            found = session.read(versions.revision_of(session.address))
        versions.must_be_current(session, found)
        if session.read(versions.only_reads):
            if create:
                raise not_writable(session.address)
            session.refuse_writes()
        return PostgresDatabase(session)
    except BaseException:
        session.close()
        raise


def connected(url: str) -> DatabaseSession:
    """A connection to the database of a URL, whatever is in it."""
    address = address_of(url)
    missing = [name for name in PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        raise HipwrightError(
            f"an archive in PostgreSQL needs {' and '.join(missing)}", hint="pip install 'hipwright[postgres]'"
        )
    from hipwright.archive.postgres.session import DatabaseSession

    return DatabaseSession(address)


def migrate(url: str) -> tuple[str, str]:
    """Brings the archive of a URL to the newest schema; returns its revision before, and after."""
    session = connected(url)
    try:
        from hipwright.archive.postgres import versions
        from hipwright.archive.postgres.digests import PostgresDigests
        from hipwright.archive.postgres.tables import HEAD

        before = session.read(versions.revision_of(session.address))
        if before is None:
            raise NoArchive(session.address.shown)
        if before in versions.revisions():
            versions.upgrade(session)
        versions.must_be_current(session, session.read(versions.revision_of(session.address)))
        if before != HEAD:
            PostgresDigests(session).keep_pages()
        return before, HEAD
    finally:
        session.close()
