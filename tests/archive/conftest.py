"""Archives for the tests: a PostgreSQL server for a session, and a place of each database. Tests are skipped, with the
reason, where there is no server."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.archive.server import Server, missing, running
from hipwright.archive import Place


def why_no_postgres() -> str:
    """Why tests with PostgreSQL are skipped; "" where they run."""
    absent = [name for name in ("sqlalchemy", "alembic", "psycopg") if importlib.util.find_spec(name) is None]
    return f"needs {' and '.join(absent)}: pip install 'hipwright[postgres]'" if absent else missing()


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    """One server for all tests; it does not wait for the disk, as no test takes the machine's power away."""
    if why := why_no_postgres():
        pytest.skip(why)
    with running(fsync="off") as found:
        yield found


@pytest.fixture
def fragile_server() -> Iterator[Server]:
    """A server that a test may stop and kill."""
    if why := why_no_postgres():
        pytest.skip(why)
    with running(fsync="off") as found:
        yield found


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """Where a new archive of each database goes."""
    from test_postgres import schema_of

    if request.param == "sqlite":
        return tmp_path / "archive"
    server: Server = request.getfixturevalue("server")
    return server.url(schema_of(tmp_path))
