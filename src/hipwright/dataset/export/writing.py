"""How an export reaches the disk: written beside its place and renamed when it is whole.

A killed or failed export leaves what was there before. A bad row is left out, counted and named with its reason in
`skipped.jsonl` and in `ExportSummary`; a row that a format has no use for (a wrong program among examples to imitate)
is counted under its reason.
"""

from __future__ import annotations

import math
import os
import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import msgspec

from hipwright.dataset.records import Pair
from hipwright.dataset.stats import DatasetTally
from hipwright.dataset.store import BadRow
from hipwright.errors import BadInput, HipwrightError
from hipwright.records import Record

MANIFEST = "export.json"
UNSPLIT = "unsplit"
"""The split of rows that were given none."""

Columns = Mapping[str, Any]
"""{column: "string" | "int64" | "float64" | "bool", [the type of a list's items], or a dict for a struct}."""


class Skipped(Record, frozen=True, kw_only=True):
    """A row that could not be read or written. where: its key, or file and line; why: in words."""

    where: str
    task: str = ""
    why: str


class ExportSummary(Record, frozen=True, kw_only=True):
    """What an export wrote: files with paths inside the folder, rows by table and split, and what is not in it.

    read: the pairs that were read whole; skipped: bad rows; left_out: {why: how many} the format has no use for.
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
    """The format has no use for a row; the message is the reason that it is counted under."""


@dataclass(frozen=True)
class ExportTable:
    """One table of an export, a `config` of its card. folder: where its files lie, "" for the export's own."""

    columns: Columns
    name: str = "default"
    folder: str = ""


class RowSink(Protocol):
    """Takes one split's rows."""

    def write(self, row: dict[str, Any]) -> None:
        """Append a row."""
        ...

    def close(self) -> tuple[list[Path], int]:
        """Finish; (the files in order, bytes of the rows in memory)."""
        ...


@dataclass(frozen=True)
class ExportFormat:
    """A format. opener: (path without suffix, columns) -> Sink; fill: puts the rows of the pairs into the job."""

    name: str
    tables: tuple[ExportTable, ...]
    opener: Callable[[Path, Columns], RowSink]
    fill: Callable[[Iterator[Pair], ExportJob], None]
    about: str


@dataclass(frozen=True)
class ExportOptions:
    """How to export. system: the system prompt of chat forms, "" for none; user: a pair's prompt, None for the usual.

    title, command: for the card. bad: rows that the reader could not read; it may add to it while it is read.
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


@dataclass
class ExportJob:
    """One export under way in `folder`."""

    form: ExportFormat
    folder: Path
    options: ExportOptions
    tally: DatasetTally = field(default_factory=DatasetTally)
    skipped: list[Skipped] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)
    _sinks: dict[tuple[str, str], RowSink] = field(default_factory=dict)
    _rows: Counter[tuple[str, str]] = field(default_factory=Counter)
    _seen: set[str] = field(default_factory=set)

    def good(self, pairs: Iterable[Pair]) -> Iterator[Pair]:
        """The pairs that are whole, each once; the others are skipped."""
        for pair in pairs:
            if why := fault(pair):
                self.skip(pair, why)
            elif pair.key in self._seen:
                self.skip(pair, "it is there twice")
            else:
                self._seen.add(pair.key)
                self.tally.add(pair)
                yield pair

    def each(self, pairs: Iterable[Pair], make: Callable[[Pair], dict[str, Any]], table: str = "default") -> None:
        """Put what `make` makes of each pair; LeftOut counts it, an error of hipwright's skips it."""
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
        """Leave a bad row out and name it."""
        try:
            where = pair.key
        except UnicodeEncodeError:  # its text is no text, so nothing can be hashed
            where = f"row {self.tally.rows + len(self.skipped) + 1}"
        self.skipped.append(Skipped(where=where, task=_printable(pair.task_name), why=_printable(why)))

    def abandon(self) -> None:
        """Close all files, whatever is in them."""
        for sink in self._sinks.values():
            with suppress(Exception):  # the error that ended the export is the one to be seen
                sink.close()

    def parts(self) -> list[ExportPart]:
        """Finish all files: train first, then the other splits by name."""
        found = []
        for place in sorted(self._sinks, key=lambda p: (p[0], p[1] != "train", p[1])):
            files, num_bytes = self._sinks[place].close()
            names = tuple(str(path.relative_to(self.folder)) for path in files)
            disk = sum(path.stat().st_size for path in files)
            found.append(ExportPart(*place, names, self._rows[place], num_bytes, disk))
        return found


def write(form: ExportFormat, pairs: Iterable[Pair], out: Path, options: ExportOptions) -> ExportSummary:
    """Export pairs to the folder `out`, whole or not at all. BadInput when no row comes of them."""
    from hipwright.dataset.export.card import card

    with replacing(out) as folder:
        job = ExportJob(form, folder, options)
        try:
            form.fill(job.good(pairs), job)
        except BaseException:
            job.abandon()
            raise
        parts = job.parts()
        unread = [Skipped(where=f"{one.file}:{one.line}", why=_printable(one.why)) for one in options.bad]
        skipped = (*unread, *job.skipped)
        if not parts:
            raise BadInput(f"no row for {form.name} came of the pairs", hint=_reasons(skipped, job.left_out))
        rows: dict[str, dict[str, int]] = {}
        for part in parts:
            rows.setdefault(part.table, {})[part.split] = part.rows
        written = ExportSummary(
            format=form.name,
            files=tuple(name for part in parts for name in part.files),
            rows=rows,
            read=job.tally.rows,
            skipped=skipped,
            left_out=dict(job.left_out),
        )
        (folder / "README.md").write_text(card(form, parts, job.tally.figures(), written, options), encoding="utf-8")
        (folder / MANIFEST).write_text(_manifest(written, options))
        if skipped:
            (folder / "skipped.jsonl").write_text("".join(f"{one.to_json()}\n" for one in skipped), encoding="utf-8")
    return written


def fault(pair: Pair) -> str:
    """Why a pair cannot be exported, "" if it can."""
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


def split_name(split: str) -> str:
    """A split's name in letters, digits and underscores, as loaders ask for it."""
    return re.sub(r"\W", "_", split, flags=re.ASCII) or UNSPLIT


def _printable(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()


def _reasons(skipped: Sequence[Skipped], left_out: Mapping[str, int]) -> str:
    reasons = Counter(left_out) + Counter(one.why for one in skipped)
    return "; ".join(f"{count} x {why}" for why, count in reasons.most_common(4)) or "there are no pairs"


def _manifest(written: ExportSummary, options: ExportOptions) -> str:
    plain = {**written.to_dict(), "skipped": len(written.skipped), "command": options.command}
    return msgspec.json.format(msgspec.json.encode(plain, order="deterministic")).decode() + "\n"


# ---------------------------------------------------------------- whole or not at all


@contextmanager
def replacing(out: Path) -> Iterator[Path]:
    """A new folder that takes the place of `out` when the block ends well; else `out` stays as it was.

    BadInput if `out` holds anything but an earlier export, or cannot be written.
    """
    out = out.absolute()
    old = out.with_name(f".{out.name}.old")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        _tidy(out, old)
        _refuse(out)
        new = Path(tempfile.mkdtemp(prefix=f".{out.name}.{os.getpid()}.", dir=out.parent))
        new.chmod(0o755)
    except OSError as error:
        raise BadInput(f"cannot write to {out}: {error.strerror}", hint="choose another --out folder") from error
    try:
        yield new
        _sync(new)
        if out.exists():
            out.rename(old)
        new.rename(out)
        _sync(out.parent, deep=False)
    except BaseException:
        if old.exists() and not out.exists():
            old.rename(out)
        shutil.rmtree(new, ignore_errors=True)
        raise
    shutil.rmtree(old, ignore_errors=True)


def _refuse(out: Path) -> None:
    """Nothing that this module did not write is ever replaced."""
    if out.exists() and not out.is_dir():
        raise BadInput(f"{out} is a file", hint="--out takes a folder")
    if out.exists() and any(out.iterdir()) and not (out / MANIFEST).exists():
        raise BadInput(f"{out} holds other files and no earlier export", hint="choose a new or an empty folder")


def _tidy(out: Path, old: Path) -> None:
    """After a kill: the folder back in its place, and what dead processes left beside it gone."""
    if old.exists() and not out.exists():
        old.rename(out)
    shutil.rmtree(old, ignore_errors=True)
    for path in out.parent.glob(f".{out.name}.*"):
        process = path.name.removeprefix(f".{out.name}.").split(".")[0]
        if process.isdigit() and not _alive(int(process)):
            shutil.rmtree(path, ignore_errors=True)


def _alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _sync(folder: Path, *, deep: bool = True) -> None:
    """To the disk: the folder's files, if deep, and the names in it."""
    for path in [*(folder.rglob("*") if deep else ()), folder]:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
