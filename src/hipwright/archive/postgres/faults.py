"""Turns errors of PostgreSQL and its driver into one-line errors of ours, which never hold a password."""

from __future__ import annotations

from typing import Any

from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from hipwright.archive.place import DatabaseAddress
from hipwright.errors import BadInput, HipwrightError, InfrastructureError

PASSWORD_HINT = "give it by PGPASSWORD, in ~/.pgpass or in the URL"
_GONE = ("08", "57P")
"""SQLSTATE of a lost connection, and of a server that stops or starts."""
_AGAIN = ("40001", "40P01")
"""SQLSTATE of a transaction that the server rolled back for another one's sake."""
_REFUSED = ("42501", "25006")
"""SQLSTATE of missing permissions and of a server that only reads."""


def state_of(error: BaseException) -> str:
    """The SQLSTATE of an error; "" where the server did not give one."""
    return str(getattr(getattr(error, "orig", error), "sqlstate", None) or "")


def is_lost(error: SQLAlchemyError) -> bool:
    """Whether the connection, or the server, went away."""
    gone = isinstance(error, DBAPIError) and bool(error.connection_invalidated)
    return gone or state_of(error).startswith(_GONE)


def is_starting(error: SQLAlchemyError) -> bool:
    """Whether the server answers and takes no connections yet: the driver gives no SQLSTATE (57P03) of a refusal."""
    return state_of(error) == "57P03" or "database system is" in str(getattr(error, "orig", error))


def may_try_again(error: SQLAlchemyError) -> bool:
    """Whether the same transaction may be tried again."""
    return is_lost(error) or state_of(error) in _AGAIN


def not_writable(address: DatabaseAddress) -> BadInput:
    """The error for storing something in an archive that can only be read."""
    return BadInput(
        f"the archive {address.shown} is read-only here: nothing can be stored in it",
        hint="connect as a user that may insert, to a server that is no replica",
    )


def unreachable(address: DatabaseAddress, error: BaseException) -> HipwrightError:
    """The error for a connection that cannot be made."""
    why = _line(error, address)
    if "password" in why:
        return BadInput(f"the database of {address.shown} refuses the password: {why}", hint=PASSWORD_HINT)
    if "does not exist" in why:
        return BadInput(f"cannot open the archive {address.shown}: {why}", hint="create it: createdb, createuser")
    return InfrastructureError(
        f"cannot reach the database of {address.shown}: {why}", hint="is the server running, and the URL right?"
    )


def failed(address: DatabaseAddress, error: SQLAlchemyError) -> HipwrightError:
    """The error for a statement that failed."""
    if state_of(error) in _REFUSED:
        return not_writable(address)
    hint = "the server's disk is full: free some space" if state_of(error) == "53100" else "see the server's log"
    return InfrastructureError(f"cannot use the archive {address.shown}: {_line(error, address)}", hint=hint)


def _line(error: BaseException, address: DatabaseAddress) -> str:
    """The first line of what the driver or the server said."""
    original: Any = getattr(error, "orig", None) or error
    text = " ".join((str(original).strip().splitlines() or [type(original).__name__])[0].split())
    text = text.rpartition("FATAL: ")[2].strip()
    return text.replace(address.password, "***") if address.password else text
