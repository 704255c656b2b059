"""Groups pairs by task, through a temporary file, so that memory does not limit their number."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing
from itertools import groupby
from operator import itemgetter
from pathlib import Path

from hipwright.dataset.records import Pair


def by_task(pairs: Iterable[Pair], folder: Path) -> Iterator[list[Pair]]:
    """Yields the pairs of each task, in order of the tasks' first pairs. A temporary file is kept in `folder`."""
    path = folder / ".pairs.sqlite"
    places: dict[str, int] = {}
    try:
        with closing(sqlite3.connect(path)) as base:
            base.execute("PRAGMA journal_mode=OFF")
            base.execute("PRAGMA synchronous=OFF")  # a temporary file need not survive the process
            base.execute("CREATE TABLE pairs (task INTEGER, line TEXT)")
            rows = ((places.setdefault(pair.task, len(places)), pair.to_json()) for pair in pairs)
            base.executemany("INSERT INTO pairs VALUES (?, ?)", rows)
            base.commit()
            ordered = base.execute("SELECT task, line FROM pairs ORDER BY task, rowid")
            for _, group in groupby(ordered, key=itemgetter(0)):
                yield [Pair.from_json(line) for _, line in group]
    finally:
        path.unlink(missing_ok=True)
