"""The tables as SQLAlchemy Core knows them; migrations/versions makes them, with the triggers that freeze them.

Texts compare by their bytes (collation C), as SQLite's do. The tables are found by the connection's search_path.
"""

from __future__ import annotations

from sqlalchemy import BigInteger, Boolean, Column, Double, MetaData, SmallInteger, Table, Text

HEAD = "0005"
"""The newest revision of the migrations."""

METADATA = MetaData()


def text(name: str, **more: object) -> Column[str]:
    """A column of text that compares by bytes."""
    return Column(name, Text(collation="C"), **more)


RUNS = Table("runs", METADATA, text("id", primary_key=True), Column("ordinal", BigInteger), text("data"))
EVENTS = Table(
    "events",
    METADATA,
    text("run", primary_key=True),
    Column("seq", BigInteger, primary_key=True),
    text("kind"),
    Column("number", BigInteger),
    text("data"),
    Column("clock", Double),
    text("cache_key", nullable=True),
)
BLOBS = Table("blobs", METADATA, text("key", primary_key=True), text("kind"), text("data"))
LOCKS = Table(
    "locks",
    METADATA,
    text("run", primary_key=True),
    Column("attempt", BigInteger),
    text("holder"),
    Column("clock", Double),
)
"""Who last took a run's lock, and which attempt at the run that was; rows change."""
LEASES = Table(
    "leases",
    METADATA,
    text("run", primary_key=True),
    Column("number", BigInteger, primary_key=True),
    Column("attempt", BigInteger, primary_key=True),
    text("holder"),
    Column("until", Double),
)
"""Who was given which piece of work until when, Unix time by the server's clock; the rows of one are its attempts."""
RESULTS = Table(
    "results",
    METADATA,
    text("run", primary_key=True),
    Column("number", BigInteger, primary_key=True),
    Column("attempt", BigInteger),
    Column("seq", BigInteger),
)
"""Whose result was taken, and its first event."""
CLAIMS = Table("claims", METADATA, text("key", primary_key=True), text("holder"), Column("until", Double))
"""Who evaluates the candidate of which cache key now; rows change, and go."""
DIGESTS = Table(
    "digests",
    METADATA,
    text("kind", primary_key=True),
    text("run", primary_key=True),
    Column("seq", BigInteger),
    text("data"),
)
"""What was computed from a run's events up to `seq`; it may be emptied at any time."""
HEADS = Table("heads", METADATA, text("run", primary_key=True), Column("seq", BigInteger), Column("kept", BigInteger))
"""The last event of every run, and the last of which digests are kept (-2: of none)."""
VERIFIED = Table(
    "verified",
    METADATA,
    text("place", primary_key=True),
    text("program", primary_key=True),
    Column("kind", SmallInteger),
    Column("microseconds", Double),
    text("run"),
    text("data"),
)
"""The fastest verified programs of runs; see `VerifiedRow`."""
PLACES = Table(
    "places", METADATA, text("place", primary_key=True), Column("usable", Boolean), Column("refused", Boolean)
)
"""The groups of verified programs; see `VerifiedGroup`. Who changes a group's programs locks its row."""
