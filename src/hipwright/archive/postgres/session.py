"""One connection to the server, which is made again when it is lost, with the locks that it held.

A run's lock is an advisory lock of this connection, so the server releases it however the process ends, and whatever
is written goes over the connection that holds the lock. When the connection is lost, so is the lock: it is taken again
before anything else is done, and where another process has taken it in between (`attempt` in the table `locks` is then
another one), nothing more is written to that run. A transaction that was cut off is tried again; `work` must find out
by itself whether it was committed.
"""

from __future__ import annotations

import logging
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable
from hashlib import blake2b
from typing import TypeVar

from sqlalchemy import URL, Connection, NullPool, create_engine, select
from sqlalchemy import text as sql
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.exc import SQLAlchemyError

from hipwright.archive.place import DatabaseAddress
from hipwright.archive.postgres.faults import failed, is_lost, is_starting, may_try_again, not_writable, unreachable
from hipwright.archive.postgres.tables import LOCKS
from hipwright.errors import BadInput, InfrastructureError
from hipwright.events import doing

CONNECT_S, RECONNECT_S = 10, 60.0
"""How long one try to connect may take; how long a lost server is waited for."""
_PAUSE_S, _LOCK_GRACE_S = 0.1, 1.0

T = TypeVar("T")

_TRY_LOCK = sql("SELECT pg_try_advisory_lock(:key)")
_ONLY_READ = sql("SET default_transaction_read_only = on")
_UNLOCK = sql("SELECT pg_advisory_unlock(:key)")
_HOLDERS = """FROM pg_locks AS l WHERE l.locktype = 'advisory' AND l.objsubid = 1 AND l.granted
    AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
    AND ((l.classid::bigint << 32) | l.objid::bigint) = :key"""
_IS_LOCKED = sql(f"SELECT EXISTS (SELECT 1 {_HOLDERS})")
_END_OWN = sql(
    f"""SELECT pg_terminate_backend(a.pid) FROM pg_stat_activity AS a
    WHERE a.application_name = :name AND a.pid <> pg_backend_pid() AND a.pid IN (SELECT l.pid {_HOLDERS})"""
)


class DatabaseSession:
    """A connection for one archive; any number of threads may share it. address: where; read_only: nothing is stored.

    A server that is starting is waited for, as one that is lost is later.

    Errors: BadInput (no database, a wrong password), InfrastructureError (no server).
    """

    def __init__(self, address: DatabaseAddress) -> None:
        self.address, self.read_only = address, False
        logging.getLogger("psycopg").setLevel(logging.ERROR)  # it warns of connections that are lost, which we mend
        self._name = f"hipwright-{secrets.token_hex(8)}"
        self._mutex = threading.RLock()
        self._engine = create_engine(_url(address), poolclass=NullPool, connect_args=_options(address, self._name))
        self._held: dict[str, int] = {}
        self._taken_over: set[str] = set()
        self._connection: Connection | None = None
        deadline = time.monotonic() + RECONNECT_S
        while self._connection is None:
            try:
                self._connection = self._connect()
            except SQLAlchemyError as error:
                if not is_starting(error) or time.monotonic() > deadline:
                    raise unreachable(address, error) from None
                doing(f"waiting for the database of {address.shown}, which is starting")
                time.sleep(_PAUSE_S)

    def close(self) -> None:
        """Ends the connection."""
        with self._mutex:
            self._drop()
            self._engine.dispose()

    def refuse_writes(self) -> None:
        """Makes this connection one that only reads, also after it was made again."""
        with self._mutex:
            self.read_only = True
            self.read(lambda db: db.execute(_ONLY_READ))

    # ---------------------------------------------------------------- transactions

    def read(self, work: Callable[[Connection], T]) -> T:
        """Runs `work`, which only reads, again where the connection is lost; each statement is a transaction."""
        with self._mutex:
            return self._run(work, "AUTOCOMMIT")  # a third of the round trips: no BEGIN, no COMMIT

    def write(self, work: Callable[[Connection], T], run: str = "") -> T:
        """Runs `work` in a transaction that writes, of `run`; again where it is cut off. BadInput on a replica."""
        if self.read_only:
            raise not_writable(self.address)

        def guarded(connection: Connection) -> T:
            if run in self._taken_over:
                raise InfrastructureError(
                    f"run {run} was taken over by another process while the database was away",
                    hint="what it had done is kept, and the other process goes on with it",
                )
            return work(connection)

        with self._mutex:
            return self._run(guarded, "READ COMMITTED")

    def _run(self, work: Callable[[Connection], T], isolation: str) -> T:
        deadline: float | None = None
        while True:
            connection = None
            try:
                connection = self._connected().execution_options(isolation_level=isolation)
                with connection.begin():
                    return work(connection)
            except SQLAlchemyError as error:
                if connection is not None and not may_try_again(error):
                    raise failed(self.address, error) from error
                deadline = deadline or time.monotonic() + RECONNECT_S
                if time.monotonic() > deadline:
                    raise unreachable(self.address, error) from None
                if connection is None or is_lost(error):
                    self._drop()
                    time.sleep(_PAUSE_S)

    # ---------------------------------------------------------------- the connection

    def _connected(self) -> Connection:
        """The connection, made again where it was lost, with its locks."""
        if self._connection is not None and not self._connection.invalidated:
            return self._connection
        self._drop()
        self._connection = self._connect()
        for run, attempt in self._held.items():
            if not self._retake(self._connection, run, attempt):
                self._taken_over.add(run)
        return self._connection

    def _connect(self) -> Connection:
        connection = self._engine.connect().execution_options(isolation_level="AUTOCOMMIT")
        if self.read_only:
            connection.execute(_ONLY_READ)
        if connection.scalar(sql("SHOW synchronous_commit")) == "off":  # an event is durable when `append` returns
            connection.execute(sql("SET synchronous_commit = on"))
        connection.commit()
        return connection

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            try:
                connection.invalidate()
                connection.close()
            except SQLAlchemyError:  # it is gone, which is what was to be
                pass

    # ---------------------------------------------------------------- locks

    def take(self, run: str) -> None:
        """Takes a run's lock. BadInput where another process, or another thread of this one, holds it."""
        with self._mutex:
            if run in self._held or not self.write(lambda db: self._try(db, run, _LOCK_GRACE_S)):
                raise BadInput(
                    f"run {run} is being worked on by another process",
                    hint="wait for it, or stop it; what it has done so far is kept",
                )
            self._held[run] = self.write(lambda db: self._next_attempt(db, run))

    def give_back(self, run: str) -> None:
        """Releases a run's lock; a server that is gone has released it."""
        with self._mutex:
            self._held.pop(run, None)
            self._taken_over.discard(run)
            if self._connection is not None and not self._connection.invalidated:
                try:
                    with self._connection.begin():
                        self._connection.execute(_UNLOCK, {"key": self._key(run)})
                except SQLAlchemyError:
                    self._drop()

    def is_locked(self, run: str) -> bool:
        """Whether a connection holds a run's lock."""
        return bool(self.read(lambda db: db.scalar(_IS_LOCKED, {"key": self._key(run)})))

    def _try(self, connection: Connection, run: str, grace_s: float) -> bool:
        """Tries to take a lock; a holder that has just been killed is waited for."""
        deadline = time.monotonic() + grace_s
        while not connection.scalar(_TRY_LOCK, {"key": self._key(run)}):
            if time.monotonic() > deadline:
                return False
            time.sleep(0.02)
        return True

    def _retake(self, connection: Connection, run: str, attempt: int) -> bool:
        """Takes a lock that was lost with its connection; False where another process had it since."""
        with connection.begin():  # the server may not know yet that the old connection is dead
            connection.execute(_END_OWN, {"name": self._name, "key": self._key(run)})
        with connection.begin():
            if not self._try(connection, run, _LOCK_GRACE_S):
                return False
            latest = connection.scalar(select(LOCKS.c.attempt).where(LOCKS.c.run == run))
            return bool(latest == attempt)

    def _next_attempt(self, connection: Connection, run: str) -> int:
        who = {"holder": f"{socket.gethostname()} {os.getpid()} {self._name}", "clock": time.time()}
        first = insert(LOCKS).values(run=run, attempt=1, **who)
        following = first.on_conflict_do_update(
            index_elements=[LOCKS.c.run], set_={"attempt": LOCKS.c.attempt + 1, **who}
        )
        return int(connection.scalar(following.returning(LOCKS.c.attempt)) or 0)

    def _key(self, run: str) -> int:
        """The advisory lock of a run: 64 bits of a hash, signed."""
        place = f"{self.address.schema}/{run}".encode()
        return int.from_bytes(blake2b(place, digest_size=8).digest(), "big", signed=True)


def _url(address: DatabaseAddress) -> URL:
    # what is empty comes from the driver's own defaults: PGHOST, PGUSER, PGPASSWORD, ~/.pgpass
    return URL.create(
        "postgresql+psycopg",
        username=address.user or None,
        password=address.password or None,
        host=None if address.host.startswith("/") else address.host or None,
        port=address.port,
        database=address.database,
    )


def _options(address: DatabaseAddress, name: str) -> dict[str, object]:
    given: dict[str, object] = {
        "connect_timeout": CONNECT_S,
        "application_name": name,
        "options": f"-csearch_path={address.schema}",
        "keepalives_idle": 15,
        "keepalives_interval": 5,
        "keepalives_count": 3,
        "tcp_user_timeout": 30_000,
        **address.options,
    }
    return given | ({"host": address.host} if address.host.startswith("/") else {})
