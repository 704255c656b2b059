"""The `jsonl` format: one file for each split, one flat row a line; and its reader."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from hipwright.dataset.export.format import Columns, ExportOptions, ExportSummary, ExportTable
from hipwright.dataset.export.job import ExportFormat, ExportJob
from hipwright.dataset.export.rows import COLUMNS, flat, unflat
from hipwright.dataset.export.writing import write
from hipwright.dataset.records import Pair
from hipwright.dataset.store import BadRow
from hipwright.disk import naming
from hipwright.errors import BadInput


class JsonlSink:
    """Rows of one split, in `PATH.jsonl`."""

    def __init__(self, path: Path, columns: Columns) -> None:
        del columns  # JSON needs no schema
        self._path = path.with_name(f"{path.name}.jsonl")
        self._stream = self._path.open("wb")
        self._bytes = 0

    def write(self, row: dict[str, Any]) -> None:
        """Append a row."""
        line = msgspec.json.encode(row) + b"\n"
        self._bytes += len(line)
        with naming(self._path):
            self._stream.write(line)

    def close(self) -> tuple[list[Path], int]:
        """([the file], its bytes)."""
        with naming(self._path):
            self._stream.close()
        return [self._path], self._bytes


def _fill(pairs: Iterator[Pair], job: ExportJob) -> None:
    job.put_each(pairs, flat)


FORM = ExportFormat(
    name="jsonl",
    tables=(ExportTable(COLUMNS),),
    opener=JsonlSink,
    fill=_fill,
    about="Every pair as one row: `program` with `knobs` solves the reference in `task_source`, or, where `correct` is "
    "false, fails on it in the way that `evidence` tells. `builds` and `estimate_us` have an entry for an AMD target. "
    "`knobs`, `timing` and `provenance` hold JSON text; `before` is the program that a repair or a step begins with.",
)


def export_jsonl(pairs: Iterable[Pair], out: Path, options: ExportOptions) -> ExportSummary:
    """Every pair, as JSON Lines."""
    return write(FORM, pairs, out, options)


def read_export(folder: Path, bad: list[BadRow]) -> Iterator[Pair]:
    """The pairs of an export in the format jsonl. Unreadable lines are added to `bad`.

    Raises BadInput when the folder has no such file.
    """
    paths = sorted(path for path in folder.glob("*.jsonl") if path.name != "skipped.jsonl")
    if not paths:
        raise BadInput(f"{folder} holds no JSON Lines", hint="give the folder of an export with --format jsonl")
    for path in paths:
        with path.open("rb") as stream:
            for number, line in enumerate(stream, 1):
                try:
                    yield unflat(msgspec.json.decode(line))
                except (msgspec.MsgspecError, KeyError, TypeError, AttributeError, UnicodeDecodeError) as error:
                    why = "the line is cut off" if not line.endswith(b"\n") else f"{type(error).__name__}: {error}"
                    bad.append(BadRow(file=path.name, line=number, why=why, text=line.decode(errors="replace")))
