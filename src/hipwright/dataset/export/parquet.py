"""The `parquet` format, in the layout of Hugging Face data sets: data/SPLIT-00000-of-00001.parquet."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from hipwright.dataset.export import jsonl
from hipwright.dataset.export.format import Columns, ExportOptions, ExportSummary, ExportTable
from hipwright.dataset.export.job import ExportFormat, ExportJob
from hipwright.dataset.export.rows import COLUMNS, flat
from hipwright.dataset.export.writing import write
from hipwright.dataset.records import Pair
from hipwright.errors import BadInput

SHARD_ROWS = 10_000
GROUP_ROWS = 500
"""Rows of a row group, which is held in memory."""


class ParquetShards:
    """Rows of one split, in files of SHARD_ROWS rows, which are named when their number is known."""

    def __init__(self, path: Path, columns: Columns) -> None:
        self._arrow, self._parquet = _library()
        self._path, self._schema = path, schema(columns)
        self._rows: list[dict[str, Any]] = []
        self._files: list[Path] = []
        self._writer: Any = None
        self._in_shard = self._bytes = 0

    def write(self, row: dict[str, Any]) -> None:
        """Append a row."""
        self._rows.append(row)
        if len(self._rows) == GROUP_ROWS:
            self._flush()

    def close(self) -> tuple[list[Path], int]:
        """Close and name the files; returns (the files, bytes of the rows in memory)."""
        self._flush()
        if self._writer is not None:
            self._writer.close()
        named = [path.with_name(self._name(place)) for place, path in enumerate(self._files)]
        for path, name in zip(self._files, named, strict=True):
            path.rename(name)
        return named, self._bytes

    def _name(self, place: int) -> str:
        return f"{self._path.name}-{place:05d}-of-{len(self._files):05d}.parquet"

    def _flush(self) -> None:
        if not self._rows:
            return
        if self._writer is None:
            self._files.append(self._path.with_name(f"{self._path.name}-{len(self._files):05d}.part"))
            self._writer = self._parquet.ParquetWriter(self._files[-1], self._schema, compression="zstd")
        table = self._arrow.Table.from_pylist(self._rows, schema=self._schema)
        self._writer.write_table(table)
        self._bytes += table.nbytes
        self._in_shard += len(self._rows)
        self._rows = []
        if self._in_shard >= SHARD_ROWS:
            self._writer.close()
            self._writer, self._in_shard = None, 0


class ParquetFile(ParquetShards):
    """Rows of one split, in one file `PATH.parquet`."""

    def _name(self, place: int) -> str:
        return f"{self._path.name}.parquet"

    def _flush(self) -> None:
        self._in_shard = 0  # no further file is begun
        super()._flush()


def schema(columns: Columns) -> Any:
    """Columns as an Arrow schema."""
    arrow, _ = _library()
    return arrow.schema([(name, _type(arrow, kind)) for name, kind in columns.items()])


def _type(arrow: Any, kind: Any) -> Any:
    if isinstance(kind, str):
        return {"string": arrow.string, "int64": arrow.int64, "float64": arrow.float64, "bool": arrow.bool_}[kind]()
    if isinstance(kind, list):
        return arrow.list_(_type(arrow, kind[0]))
    return arrow.struct([(name, _type(arrow, one)) for name, one in kind.items()])


def _library() -> tuple[Any, Any]:
    try:
        return import_module("pyarrow"), import_module("pyarrow.parquet")
    except ImportError:
        raise BadInput("Parquet needs pyarrow", hint="pip install 'hipwright[data]', or --format jsonl") from None


def _fill(pairs: Iterator[Pair], job: ExportJob) -> None:
    job.put_each(pairs, flat)


FORM = ExportFormat(
    name="parquet",
    tables=(ExportTable(COLUMNS, folder="data"),),
    opener=ParquetShards,
    fill=_fill,
    about=jsonl.FORM.about,
)


def export_parquet(pairs: Iterable[Pair], out: Path, options: ExportOptions) -> ExportSummary:
    """Every pair, as Parquet."""
    return write(FORM, pairs, out, options)
