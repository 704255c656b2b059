"""Where an archive is: a folder, or the URL of a PostgreSQL database.

    .hipwright                                   a folder with archive.sqlite
    postgresql://USER@HOST:5432/DATABASE         a database; ?schema=NAME names a schema of it, else `hipwright`
    postgresql:///DATABASE?host=/var/run/pgsql   by a Unix socket

A password may be in the URL; better places are PGPASSWORD and ~/.pgpass, which the driver reads. It is never shown.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple
from urllib.parse import SplitResult, parse_qs, quote, unquote, urlsplit

from hipwright.errors import BadInput

Place = Path | str
"""An archive's folder, or the URL of its database."""
SCHEMES = ("postgresql", "postgres")
SCHEMA = "hipwright"
HINT = "an archive is a folder or postgresql://USER@HOST:PORT/DATABASE"
_NAME = re.compile(r"[a-z_][a-z0-9_]{0,47}")
_QUERY = ("host", "port", "schema", "sslmode", "sslrootcert", "connect_timeout")


class NoArchive(BadInput):
    """There is no archive where one was to be read."""

    def __init__(self, place: str) -> None:
        super().__init__(f"no archive in {place}", hint="run `hipwright optimize` first, or set HIPWRIGHT_HOME")


class DatabaseAddress(NamedTuple):
    """A parsed URL. options: what else the driver takes (sslmode, ...); shown: the URL without its password."""

    host: str
    port: int | None
    user: str
    password: str
    database: str
    schema: str
    options: dict[str, str]
    shown: str


def is_url(text: Place) -> bool:
    """Whether a place is written as a URL."""
    return isinstance(text, str) and "://" in text


def shown(place: Place) -> str:
    """A place as it may be printed: without its password. A URL that cannot be read is named by its scheme alone."""
    if not is_url(place):
        return str(place)
    try:
        return address_of(str(place)).shown
    except BadInput:
        return f"{str(place).partition('://')[0]}://..."


def address_of(url: str) -> DatabaseAddress:
    """Reads the URL of a database. BadInput names what is wrong with it, never the URL, which may hold a password."""
    scheme = url.partition("://")[0]
    if scheme not in SCHEMES:
        raise BadInput(f"an archive cannot be at a URL that begins with {scheme}://", hint=HINT)
    try:
        parts, query = urlsplit(url), {}
        port = parts.port
        query = {name: values[-1] for name, values in parse_qs(parts.query, strict_parsing=bool(parts.query)).items()}
    except ValueError:
        raise BadInput("the archive's URL cannot be read: its host, port or query is malformed", hint=HINT) from None
    unknown = sorted(query.keys() - set(_QUERY))
    if unknown:
        raise BadInput(f"the archive's URL has the unknown option {unknown[0]}", hint=f"known are {', '.join(_QUERY)}")
    database, schema = unquote(parts.path.lstrip("/")), query.get("schema", SCHEMA)
    if not database or "/" in database:
        raise BadInput("the archive's URL names no database", hint=HINT)
    if not _NAME.fullmatch(schema) or schema.startswith("pg_"):
        raise BadInput(
            f"the archive's URL names the schema {schema!r}", hint="lower-case letters, digits and _, 48 at most"
        )
    if not query.get("port", "0").isdecimal():
        raise BadInput("the archive's URL has a port that is no number", hint=HINT)
    return DatabaseAddress(
        host=query.get("host", parts.hostname or ""),
        port=port or int(query.get("port", 0)) or None,
        user=unquote(parts.username or ""),
        password=unquote(parts.password or ""),
        database=database,
        schema=schema,
        options={name: query[name] for name in query if name not in ("host", "port", "schema")},
        shown=_shown(parts, query),
    )


def _shown(parts: SplitResult, query: dict[str, str]) -> str:
    user = f"{parts.username}@" if parts.username else ""
    host = (parts.hostname or "") + (f":{parts.port}" if parts.port else "")
    kept = "&".join(f"{name}={quote(query[name], safe='/')}" for name in ("host", "port", "schema") if name in query)
    return f"postgresql://{user}{host}{parts.path}" + (f"?{kept}" if kept else "")
