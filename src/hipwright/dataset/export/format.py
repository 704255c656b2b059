"""What an export format declares and an export returns: tables, columns, options, parts and the summary."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import msgspec

from hipwright.dataset.records import Pair
from hipwright.dataset.store import BadRow
from hipwright.records import Record

UNSPLIT = "unsplit"
"""The name of the split of rows without one."""

Columns = Mapping[str, Any]
"""{column: type}: "string", "int64", "float64", "bool", [item type] for a list, or {field: type} for a struct."""


class Skipped(Record, frozen=True, kw_only=True):
    """A row that could not be read or written. where: its key, or file and line; why: the reason as text."""

    where: str
    task: str = ""
    why: str


class ExportSummary(Record, frozen=True, kw_only=True):
    """What an export wrote. files: relative paths; rows: {table: {split: count}}; read: the number of valid pairs.

    skipped: bad rows; left_out: {reason: count} of valid rows without use for the format.
    """

    format: str
    files: tuple[str, ...]
    rows: dict[str, dict[str, int]]
    read: int
    skipped: tuple[Skipped, ...] = ()
    left_out: dict[str, int] = msgspec.field(default_factory=dict)

    @property
    def total(self) -> int:
        """Rows in all tables and splits."""
        return sum(sum(splits.values()) for splits in self.rows.values())


class LeftOut(Exception):
    """A row is of no use for the format. The message is the reason under which it is counted."""


@dataclass(frozen=True)
class ExportTable:
    """One table of an export, a `config` in its card. folder: of its files within the export, "" for the top."""

    columns: Columns
    name: str = "default"
    folder: str = ""


class RowSink(Protocol):
    """Writes the rows of one split."""

    def write(self, row: dict[str, Any]) -> None:
        """Append a row."""
        ...

    def close(self) -> tuple[list[Path], int]:
        """Close the files; returns (the files in order, bytes of the rows in memory)."""
        ...


@dataclass(frozen=True)
class ExportOptions:
    """Options of an export. system: the system prompt of chat formats, "" for none; user: the user prompt of a pair,
    None for `chat.user_prompt`; title, command: for the card; bad: unreadable rows, which the reader may add to while
    pairs are read.
    """

    system: str = ""
    user: Callable[[Pair], str] | None = None
    title: str = "HIP kernels with proof"
    command: str = ""
    bad: Sequence[BadRow] = ()


@dataclass(frozen=True)
class ExportPart:
    """One split of one table, on disk."""

    table: str
    split: str
    files: tuple[str, ...]
    rows: int
    num_bytes: int
    disk_bytes: int


def split_name(split: str) -> str:
    """A split's name in letters, digits and underscores, as loaders require it; UNSPLIT for ""."""
    return re.sub(r"\W", "_", split, flags=re.ASCII) or UNSPLIT


def printable(text: str) -> str:
    """The text with backslash escapes for what UTF-8 cannot encode."""
    return text.encode("utf-8", "backslashreplace").decode()
