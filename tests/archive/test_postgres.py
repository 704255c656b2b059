"""The archive in PostgreSQL: the contract; what the database refuses; servers that are away or not ours."""

from __future__ import annotations

import os
import subprocess
import sys
from hashlib import blake2b
from pathlib import Path
from typing import Any

import pytest
from archive_contract import a_run, program
from lease_contract import WholeContract
from sqlalchemy import Connection

from benchmarks.archive.server import Server
from hipwright.archive import Archive, NoArchive, Place
from hipwright.archive.postgres import versions
from hipwright.archive.postgres.opening import connected
from hipwright.archive.postgres.tables import HEAD
from hipwright.errors import BadInput, HipwrightError, InfrastructureError
from tests.cli import cli_tools


def schema_of(path: Path) -> str:
    return "t_" + blake2b(str(path).encode(), digest_size=8).hexdigest()


@pytest.fixture
def url(server: Server, tmp_path: Path) -> str:
    return server.url(schema_of(tmp_path))


class TestPostgresArchive(WholeContract):
    new_archives = 3

    @pytest.fixture(autouse=True)
    def _served(self, server: Server) -> None:
        self.server = server

    def place(self, home: Path) -> Place:
        return self.server.url(schema_of(home))


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE events SET number = 5",
        "DELETE FROM events",
        "TRUNCATE events CASCADE",
        "INSERT INTO events VALUES ('r1', 0, 'x', 0, '{}', 0, NULL)",
        "INSERT INTO events VALUES ('r1', 7, 'x', 0, '{}', 0, NULL)",
        "UPDATE runs SET data = ''",
        "DELETE FROM runs",
        "TRUNCATE runs CASCADE",
        "UPDATE blobs SET data = ''",
        "DELETE FROM blobs",
    ],
)
def test_nothing_is_changed_or_removed(server: Server, url: str, tmp_path: Path, statement: str) -> None:
    with Archive(url) as archive:
        archive.begin_run(a_run(), records=[program()])
        before = archive.events("r1")
        with pytest.raises(subprocess.CalledProcessError) as raised:
            server.psql(f"SET search_path = {schema_of(tmp_path)}; {statement}")
        assert "append" in raised.value.stderr
        assert archive.events("r1") == before and archive.program(program().key) == program()


def test_a_damaged_record_is_noticed_and_mended(server: Server, url: str, tmp_path: Path) -> None:
    with Archive(url) as archive:
        archive.begin_run(a_run(), records=[program()])
        change = "UPDATE blobs SET data = replace(data, 'program 0', 'program 1')"
        server.psql(f"SET search_path = {schema_of(tmp_path)}; SET hipwright.mend = 'on'; {change}")
        with pytest.raises(InfrastructureError, match="does not match"):
            archive.program(program().key)
        archive.put(program())
        assert archive.program(program().key) == program()


def test_it_is_usable_after_an_interrupted_transaction(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from hipwright.archive.postgres import database

    def interrupted(*args: object) -> None:
        raise KeyboardInterrupt

    with Archive(url) as archive:
        archive.begin_run(a_run())
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(database, "_insert", interrupted)
            archive.append_all("r1", [], [program()])
        assert not archive.has(program().key)
        archive.append("r1", "note")
        assert len(archive.events("r1")) == 2


# ---------------------------------------------------------------- what cannot be opened


def one_line(raised: pytest.ExceptionInfo[HipwrightError]) -> str:
    message = raised.value.message
    assert "\n" not in message and raised.value.hint and "secret" not in message + raised.value.hint
    return message


WRONG = {
    "mysql://me:secret@host/x": "mysql",
    "sqlite:///x": "sqlite",
    "postgresql://me:secret@host": "no database",
    "postgresql://me:secret@host:port/x": "malformed",
    "postgresql://me:secret@host:70000/x": "malformed",
    "postgresql://me:secret@host/x?schema=A-b": "schema",
    "postgresql://me:secret@host/x?password=secret": "unknown option",
    "postgresql://me:secret@[host/x": "malformed",
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_url_is_said_in_one_line(wrong: str) -> None:
    with pytest.raises(BadInput) as raised:
        Archive(wrong)
    assert WRONG[wrong] in one_line(raised)


def test_a_server_that_does_not_answer_is_said_in_one_line(server: Server, tmp_path: Path) -> None:
    with pytest.raises(InfrastructureError) as raised:
        Archive(f"postgresql://me:secret@/x?host={tmp_path}")
    assert f"postgresql://me@/x?host={tmp_path}" in one_line(raised)


def test_a_password_is_asked_for_and_never_shown(server: Server, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    server.psql("DROP ROLE IF EXISTS locked; CREATE ROLE locked LOGIN SUPERUSER PASSWORD 'right-secret'")
    monkeypatch.delenv("PGPASSWORD", raising=False)
    for given in ("locked@", "locked:wrong-secret@"):
        with pytest.raises(BadInput) as raised:
            Archive(url.replace("postgres@", given))
        assert "password" in one_line(raised)
    with Archive(url.replace("postgres@", "locked:right-secret@")) as archive:
        archive.begin_run(a_run())
        assert "secret" not in archive.place + archive.database.name
        with pytest.raises(BadInput) as raised:
            archive.run("none")
        assert "locked@" in one_line(raised)
    monkeypatch.setenv("PGPASSWORD", "right-secret")
    with Archive(url.replace("postgres@", "locked@"), create=False) as archive:
        assert archive.run("latest") == a_run()


def test_a_database_that_is_not_there(server: Server) -> None:
    with pytest.raises(BadInput) as raised:
        Archive(server.url(database="nowhere"))
    assert "does not exist" in one_line(raised) and "createdb" in raised.value.hint


def test_reading_where_there_is_none_creates_none(server: Server, url: str, tmp_path: Path) -> None:
    with pytest.raises(NoArchive, match="no archive"):
        Archive(url, create=False)
    assert server.psql(f"SELECT count(*) FROM pg_namespace WHERE nspname = '{schema_of(tmp_path)}'") == "0"


def test_an_archive_that_is_made_while_another_process_looks_is_an_archive(url: str) -> None:
    """Two commands that begin with a new archive: one took the tables of the other's for another program's."""

    class Between:
        """A connection during whose questions another process makes the archive."""

        def __init__(self, db: Connection) -> None:
            self.execute, self._db = db.execute, db

        def scalar(self, query: Any, *more: Any) -> Any:
            if query is versions._OTHERS:
                Archive(url).close()
            return self._db.scalar(query, *more)

    session = connected(url)
    try:
        read: Any = versions.revision_of(session.address)
        assert session.read(lambda db: read(Between(db))) == HEAD
    finally:
        session.close()


def test_another_programs_schema_is_left_alone(server: Server, url: str, tmp_path: Path) -> None:
    schema = schema_of(tmp_path)
    server.psql(f"CREATE SCHEMA {schema}; CREATE TABLE {schema}.theirs (x int)")
    with pytest.raises(BadInput) as raised:
        Archive(url)
    assert "another program's" in one_line(raised)
    assert server.psql(f"SELECT count(*) FROM pg_tables WHERE schemaname = '{schema}'") == "1"


def test_a_newer_schema_is_refused(server: Server, url: str, tmp_path: Path) -> None:
    Archive(url).close()
    server.psql(f"UPDATE {schema_of(tmp_path)}.alembic_version SET version_num = '9999'")
    with pytest.raises(BadInput) as raised:
        Archive(url)
    assert "newer hipwright" in one_line(raised) and "upgrade" in raised.value.hint


def test_one_who_may_only_read_reads(server: Server, url: str, tmp_path: Path) -> None:
    with Archive(url) as archive:
        archive.begin_run(a_run(), records=[program()])
    schema = schema_of(tmp_path)
    server.psql(
        f"DROP ROLE IF EXISTS reader; CREATE ROLE reader LOGIN; GRANT USAGE ON SCHEMA {schema} TO reader;"
        f"GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO reader"
    )
    theirs = url.replace("postgres@", "reader@")
    try:
        with Archive(theirs, create=False) as archive:
            assert archive.read_only and archive.program(program().key) == program()
            for write in (lambda: archive.append("r1", "note"), lambda: archive.lock("r1").__enter__()):
                with pytest.raises(BadInput, match="read-only") as raised:
                    write()
                one_line(raised)
        with pytest.raises(BadInput, match="read-only"):
            Archive(theirs)
    finally:
        server.psql("DROP OWNED BY reader; DROP ROLE reader")


def test_without_the_packages_one_line_says_what_to_install(tmp_path: Path) -> None:
    script = (
        "import sys\nfor name in ('sqlalchemy', 'alembic', 'psycopg'): sys.modules[name] = None\n"
        "import importlib.util\nfind = importlib.util.find_spec\n"
        "importlib.util.find_spec = lambda name: None if name in ('alembic', 'psycopg') else find('json')\n"
        "from hipwright.cli.main import main\nsys.exit(main(['runs']))\n"
    )
    environment = {**os.environ, "HIPWRIGHT_HOME": "postgresql://a:secret@b/c", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True)
    assert done.returncode == 3 and "hipwright[postgres]" in done.stderr and "secret" not in done.stderr


def test_sqlite_needs_none_of_the_packages(tmp_path: Path) -> None:
    script = (
        "import sys\nfrom pathlib import Path\nfrom hipwright.archive import Archive\n"
        "Archive(Path(sys.argv[1])).runs()\n"
        "assert not {'sqlalchemy', 'alembic', 'psycopg'} & set(sys.modules)\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", script, str(tmp_path / "a")], env=environment, check=True)


def test_an_older_schema_is_migrated_by_a_command_only(server: Server, url: str, tmp_path: Path) -> None:
    with Archive(url) as archive:
        archive.begin_run(a_run(), records=[program()])
        before = archive.events("r1")
    newer = "places, claims, verified, heads, digests, results, leases"
    older = f"DROP TABLE {newer}; UPDATE alembic_version SET version_num = '0001'"
    server.psql(f"SET search_path = {schema_of(tmp_path)}; {older}")
    with pytest.raises(BadInput) as raised:
        Archive(url, create=False)
    assert "older hipwright" in one_line(raised) and "archive migrate" in raised.value.hint
    done = cli_tools.hipwright(tmp_path / "home", "archive", "migrate", url, "--json")
    assert cli_tools.one_object(done.stdout)["before"] == "0001", done.stderr
    with Archive(url) as archive:
        assert archive.events("r1") == before and archive.lease("r1", 0, "me", 1.0) is not None
        assert archive.database.digests.last_seqs() == {"r1": 0} and archive.database.digests.unkept() == ["r1"]


def test_the_newest_revision_is_the_last_of_the_migrations(server: Server) -> None:
    from hipwright.archive.postgres import tables, versions

    assert max(versions.revisions()) == tables.HEAD
