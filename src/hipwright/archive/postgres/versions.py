"""The version of an archive's schema: which revision it has, and Alembic to bring it to the newest."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, func, select
from sqlalchemy import text as sql

from hipwright.archive.place import DatabaseAddress
from hipwright.archive.postgres.session import DatabaseSession
from hipwright.archive.postgres.tables import HEAD
from hipwright.errors import BadInput

_SCHEMA_LOCK = 0x68697076
_STATE = sql("SELECT current_setting('server_encoding'), to_regclass('alembic_version') IS NOT NULL")
_OTHERS = sql(
    """SELECT EXISTS (SELECT 1 FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
    WHERE n.nspname = :schema AND c.relkind IN ('r', 'v', 'm', 'p'))"""
)
_ONLY_READS = sql(
    """SELECT pg_is_in_recovery() OR current_setting('default_transaction_read_only') = 'on'
    OR NOT (has_table_privilege('events', 'INSERT') AND has_table_privilege('locks', 'UPDATE'))"""
)


def revision_of(address: DatabaseAddress) -> Callable[[Connection], str | None]:
    """What reads the schema's revision; None where there is no archive. BadInput for another program's schema."""

    def read(db: Connection) -> str | None:
        encoding, there = db.execute(_STATE).one()
        if encoding != "UTF8":
            raise BadInput(f"the database of {address.shown} is not in UTF-8", hint="createdb --encoding UTF8")
        if not there:
            others = db.scalar(_OTHERS, {"schema": address.schema})
            if others and db.execute(_STATE).one()[1]:  # another process has just made the archive, all at once
                return read(db)
            if others:
                raise BadInput(
                    f"the schema {address.schema} of {address.shown} is another program's",
                    hint="name another one: ?schema=NAME",
                )
            return None
        return str(db.scalar(sql("SELECT version_num FROM alembic_version")))

    return read


def only_reads(db: Connection) -> bool:
    """Whether this connection cannot store events: a replica, or a user without the permission."""
    return bool(db.scalar(_ONLY_READS))


def must_be_current(session: DatabaseSession, found: str | None) -> None:
    """BadInput where the schema's revision is one of an older or a newer hipwright."""
    shown = session.address.shown
    if found == HEAD:
        return
    if found in revisions():
        raise BadInput(
            f"{shown} is of an older hipwright (schema {found}, this one needs {HEAD})",
            hint="`hipwright archive migrate URL` brings it up to date",
        )
    raise BadInput(
        f"{shown} was written by a newer hipwright (schema {found}, this one reads up to {HEAD})",
        hint="upgrade hipwright, or name another schema: ?schema=NAME",
    )


def upgrade(session: DatabaseSession) -> None:
    """Makes the schema, or brings it to the newest revision; one process at a time, in one transaction."""

    def work(db: Connection) -> None:
        db.execute(select(func.pg_advisory_xact_lock(_SCHEMA_LOCK)))
        db.execute(sql(f"CREATE SCHEMA IF NOT EXISTS {session.address.schema}"))
        config = _config()
        config.attributes.update(connection=db, schema=session.address.schema)
        command.upgrade(config, "head")

    session.write(work)


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
    config.set_main_option("path_separator", "os")
    return config


def revisions() -> set[str]:
    """The revisions that this version knows."""
    return {revision.revision for revision in ScriptDirectory.from_config(_config()).walk_revisions()}
