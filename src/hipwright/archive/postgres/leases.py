"""Pieces of work given to many workers: each result is stored once, whoever delivers it, and however often.

Time is the server's, so workers with other clocks agree on when a lease is over. All calls for a run wait for each
other at its row, as appends do.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, Row, Select, select
from sqlalchemy import text as sql
from sqlalchemy.dialects.postgresql import insert

from hipwright.archive.database import LeaseRows
from hipwright.archive.postgres.tables import CLAIMS, EVENTS, LEASES, RESULTS, RUNS

_NOW = sql("SELECT extract(epoch FROM clock_timestamp())::double precision")


def grant(db: Connection, run: str, number: int, holder: str, seconds: float) -> int | None:
    """A new attempt at a piece of work; None while another is not over, or once there is a result."""
    if not is_there(db, run):
        return None
    latest, now = db.execute(_latest(run, number)).first(), float(db.scalar(_NOW) or 0.0)
    if result_of(db, run, number) is not None or (latest is not None and latest.until > now):
        return None
    attempt = 1 + (latest.attempt if latest is not None else 0)
    row = {"run": run, "number": number, "attempt": attempt, "holder": holder, "until": now + seconds}
    db.execute(insert(LEASES).values(**row))
    return int(attempt)


def prolong(db: Connection, run: str, number: int, attempt: int, seconds: float) -> bool:
    """Whether the lease is still the latest, without a result; it then lasts `seconds` from now."""
    if not is_there(db, run):
        return False
    latest = db.execute(_latest(run, number)).first()
    if result_of(db, run, number) is not None or latest is None or latest.attempt != attempt:
        return False
    one = (LEASES.c.run == run) & (LEASES.c.number == number) & (LEASES.c.attempt == attempt)
    db.execute(LEASES.update().where(one).values(until=float(db.scalar(_NOW) or 0.0) + seconds))
    return True


def was_given(db: Connection, run: str, number: int, attempt: int) -> bool:
    """Whether this attempt was leased."""
    query = select(LEASES.c.attempt).where(LEASES.c.run == run, LEASES.c.number == number)
    return db.scalar(query.where(LEASES.c.attempt == attempt)) is not None


def result_of(db: Connection, run: str, number: int) -> Row[Any] | None:
    """(attempt, seq, clock) of a piece of work's result."""
    both = (RESULTS.c.run == EVENTS.c.run) & (RESULTS.c.seq == EVENTS.c.seq)
    query = select(RESULTS.c.attempt, RESULTS.c.seq, EVENTS.c.clock).join(EVENTS, both)
    return db.execute(query.where(RESULTS.c.run == run, RESULTS.c.number == number)).first()


def keep_result(db: Connection, run: str, number: int, attempt: int, seq: int) -> None:
    """Notes that an attempt's result was taken; its first event is there."""
    db.execute(insert(RESULTS).values(run=run, number=number, attempt=attempt, seq=seq))


def claim(db: Connection, key: str, holder: str, seconds: float) -> bool:
    """Whether a key is the holder's now, for so long."""
    now = float(db.scalar(_NOW) or 0.0)
    new = insert(CLAIMS).values(key=key, holder=holder, until=now + seconds)
    mine = new.on_conflict_do_update(
        index_elements=[CLAIMS.c.key],
        set_={"holder": new.excluded.holder, "until": new.excluded.until},
        where=(CLAIMS.c.holder == holder) | (CLAIMS.c.until <= now),
    )
    return db.scalar(mine.returning(CLAIMS.c.key)) is not None


def give_up(db: Connection, key: str, holder: str) -> None:
    """Ends a holder's claim."""
    db.execute(CLAIMS.delete().where(CLAIMS.c.key == key, CLAIMS.c.holder == holder))


def stored(run: str) -> tuple[Select[Any], Select[Any]]:
    """The queries for what is leased of a run, and for whose results were taken."""
    lease = select(LEASES.c.number, LEASES.c.attempt, LEASES.c.holder, LEASES.c.until).where(LEASES.c.run == run)
    result = select(RESULTS.c.number, RESULTS.c.attempt, RESULTS.c.seq).where(RESULTS.c.run == run)
    return lease.order_by(LEASES.c.number, LEASES.c.attempt), result.order_by(RESULTS.c.number)


def restore(db: Connection, run: str, rows: LeaseRows) -> None:
    """Adds what another archive leased of a run; what is known already stays."""
    for table, names, part in (
        (LEASES, ("number", "attempt", "holder", "until"), rows.leases),
        (RESULTS, ("number", "attempt", "seq"), rows.results),
    ):
        found = [{"run": run, **dict(zip(names, row, strict=True))} for row in part]
        if found:
            db.execute(insert(table).on_conflict_do_nothing(), found)


def is_there(db: Connection, run: str) -> bool:
    """Whether there is such a run, whose row is locked until the transaction ends."""
    return db.scalar(select(RUNS.c.id).where(RUNS.c.id == run).with_for_update()) is not None


def _latest(run: str, number: int) -> Select[Any]:
    query = select(LEASES.c.attempt, LEASES.c.until).where(LEASES.c.run == run, LEASES.c.number == number)
    return query.order_by(LEASES.c.attempt.desc()).limit(1)
