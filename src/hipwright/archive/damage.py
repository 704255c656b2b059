"""Rows of an archive that cannot be read: how each row is decoded, and what reading skips and names.

A row is damaged when its text is no UTF-8 or no JSON, when its record lacks a field or has a value of a newer version,
or when a record does not match its content key. Queries over many runs skip such rows and name them
(`Archive.damaged`); work on a damaged run itself stops with an InfrastructureError.
"""

from __future__ import annotations

import json
from typing import Any, TypeVar

import msgspec

from hipwright.records import Event, Record, Run

ROW_ERRORS = (msgspec.MsgspecError, ValueError, TypeError, KeyError, AttributeError, RecursionError)
"""What decoding a damaged row may raise."""
WHY_LIMIT = 200  # characters
DAMAGED_HINT = "`hipwright runs --check` names every row that cannot be read; other runs are not affected"

R = TypeVar("R", bound=Record)


class DamagedRow(Record, frozen=True, kw_only=True):
    """A row that cannot be read. table: runs, events or blobs; run: "" for a blob; row: a seq or a content key."""

    table: str
    run: str = ""
    row: str = ""
    why: str

    @property
    def text(self) -> str:
        """One line."""
        place = f"run {self.run}" if self.run else f"{self.table} {self.row}"
        if self.table == "events":
            place = f"run {self.run}, event {self.row or '?'}"
        return f"{place}: {self.why}"


def why_damaged(error: BaseException) -> str:
    """One line on what is wrong with a row."""
    return printable(" ".join(f"{type(error).__name__}: {error}".split()))[:WHY_LIMIT]


def printable(text: object) -> str:
    """The text with bytes that are no UTF-8 as escapes."""
    return str(text).encode("utf-8", "backslashreplace").decode()


def read_text(data: bytes) -> str:
    """A column's text. Bytes that are no UTF-8 become surrogates, so that one damaged row does not end a query."""
    return data.decode("utf-8", "surrogateescape")


def read_event(row: tuple[Any, ...]) -> Event:
    """The event of a row (run, seq, kind, number, data as bytes, clock). Raises one of ROW_ERRORS."""
    run, seq, kind, number, text, clock = row
    data = json.loads(text.decode())
    if not isinstance(data, dict) or not isinstance(seq, int) or not isinstance(number, int):
        raise ValueError("its columns have other types than an event's")
    if not isinstance(kind, str) or not isinstance(clock, float):
        raise ValueError("its columns have other types than an event's")
    return Event(run=run, seq=seq, kind=kind, number=number, data=data, clock=clock)


def read_record(key: str, text: str, kind: type[R]) -> R:
    """The record of a blob. Raises one of ROW_ERRORS."""
    record = kind.from_json(text.encode())
    if record.key != key:
        raise ValueError(f"{kind.__name__.lower()} {key} does not match its content key")
    return record


def read_run(name: str, text: str) -> Run:
    """The run of a row. Raises one of ROW_ERRORS."""
    run = Run.from_json(text.encode())
    if run.id != name:
        raise ValueError(f"it holds run {run.id}")
    return run
