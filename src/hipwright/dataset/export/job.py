"""An export format with its fill function, and one export in progress."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from hipwright.dataset.export.format import (
    Columns,
    ExportOptions,
    ExportPart,
    ExportTable,
    LeftOut,
    RowSink,
    Skipped,
    printable,
    split_name,
)
from hipwright.dataset.records import Pair
from hipwright.dataset.stats import DatasetTally
from hipwright.errors import HipwrightError


@dataclass(frozen=True)
class ExportFormat:
    """A format. opener: (path without suffix, columns) -> RowSink; fill: puts the rows of pairs into a job.

    about: a text for the card.
    """

    name: str
    tables: tuple[ExportTable, ...]
    opener: Callable[[Path, Columns], RowSink]
    fill: Callable[[Iterator[Pair], ExportJob], None]
    about: str


@dataclass
class ExportJob:
    """One export in progress, in `folder`."""

    form: ExportFormat
    folder: Path
    options: ExportOptions
    tally: DatasetTally = field(default_factory=DatasetTally)
    skipped: list[Skipped] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)
    _sinks: dict[tuple[str, str], RowSink] = field(default_factory=dict)
    _rows: Counter[tuple[str, str]] = field(default_factory=Counter)
    _seen: set[str] = field(default_factory=set)

    def valid_pairs(self, pairs: Iterable[Pair]) -> Iterator[Pair]:
        """Yields valid pairs, each once; skips the others."""
        for pair in pairs:
            if why := pair_fault(pair):
                self.skip(pair, why)
            elif pair.key in self._seen:
                self.skip(pair, "it is there twice")
            else:
                self._seen.add(pair.key)
                self.tally.add(pair)
                yield pair

    def put_each(self, pairs: Iterable[Pair], make: Callable[[Pair], dict[str, Any]], table: str = "default") -> None:
        """Put the row `make(pair)` of each pair. LeftOut counts the pair as left out, a HipwrightError skips it."""
        for pair in pairs:
            try:
                self.put(pair.split, make(pair), table)
            except LeftOut as reason:
                self.left_out[str(reason)] += 1
            except HipwrightError as error:
                self.skip(pair, error.message)

    def put(self, split: str, row: dict[str, Any], table: str = "default") -> None:
        """Append a row to a split of a table."""
        place = (table, split_name(split))
        if place not in self._sinks:
            one = next(t for t in self.form.tables if t.name == table)
            (self.folder / one.folder).mkdir(exist_ok=True)
            self._sinks[place] = self.form.opener(self.folder / one.folder / place[1], one.columns)
        self._sinks[place].write(row)
        self._rows[place] += 1

    def skip(self, pair: Pair, why: str) -> None:
        """Record a pair as a bad row."""
        try:
            where = pair.key
        except UnicodeEncodeError:  # text with lone surrogates has no key
            where = f"row {self.tally.rows + len(self.skipped) + 1}"
        self.skipped.append(Skipped(where=where, task=printable(pair.task_name), why=printable(why)))

    def abandon(self) -> None:
        """Close all files after an error."""
        for sink in self._sinks.values():
            with suppress(Exception):  # the first error is the one to report
                sink.close()

    def parts(self) -> list[ExportPart]:
        """Close all files and return the parts, by table, with train first."""
        found = []
        for place in sorted(self._sinks, key=lambda p: (p[0], p[1] != "train", p[1])):
            files, num_bytes = self._sinks[place].close()
            names = tuple(str(path.relative_to(self.folder)) for path in files)
            disk = sum(path.stat().st_size for path in files)
            found.append(ExportPart(*place, names, self._rows[place], num_bytes, disk))
        return found


def pair_fault(pair: Pair) -> str:
    """Why a pair cannot be exported, or ""."""
    if not pair.task_source.strip() or not pair.program.text.strip():
        return "it has no reference" if not pair.task_source.strip() else "it has no program"
    if pair.correct and pair.status != "pass":
        return f"it is called correct with the status {pair.status}"
    if pair.correct and pair.kind == "negative":
        return "it is called a correct negative"
    if not all(map(math.isfinite, (pair.coverage, *pair.estimate_us.values()))):
        return "a figure is not finite"
    try:
        msgspec.json.encode(pair)
    except (UnicodeEncodeError, msgspec.MsgspecError, TypeError, OverflowError) as error:
        return f"it cannot be written as JSON: {error}"
    return ""
