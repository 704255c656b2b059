"""A data set on disk: pairs, what became of each task, and the settings; safe against kill -9 at any moment.

    pairs.jsonl      one Pair a line, with its key
    outcomes.jsonl   one Outcome a task, written after the task's pairs are on disk
    bad.jsonl        lines that could not be read, as they were, with where they stood
    manifest.json    what the data set was built with

A task without an outcome is made again, and gives the same pairs again, so what a kill tore is dropped without loss.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

import msgspec

from hipwright.archive.lock import run_lock
from hipwright.dataset.records import Pair
from hipwright.engine.version import source_key
from hipwright.errors import BadInput
from hipwright.records import Record

PAIRS, OUTCOMES, BAD, MANIFEST = "pairs.jsonl", "outcomes.jsonl", "bad.jsonl", "manifest.json"
Status = Literal["verified", "unverified", "failed", "fault"]


class TaskOutcome(Record, frozen=True, kw_only=True):
    """What became of one task. entry: the task's key in the build; pairs: the keys of its rows.

    status: "verified" (a program passed), "unverified" (none did), "failed" (the task itself), "fault" (the machine: it
    is tried again by the next build). coverage: the best of the verified programs; counts: what was tried and why it
    gave no row; engine: which one tried (engine/version.py), noted by the store.
    """

    entry: str
    name: str
    status: Status
    task: str = ""
    why: str = ""
    coverage: float = 0.0
    pairs: tuple[str, ...] = ()
    counts: dict[str, int] = msgspec.field(default_factory=dict)
    evaluations: int = 0
    seconds: float = 0.0
    engine: str = ""


class BadRow(Record, frozen=True, kw_only=True):
    """A line that is no pair: where it stands (from 1), why, and its text."""

    file: str
    line: int
    why: str
    text: str = ""


def read_pairs(path: Path, bad: list[BadRow] | None = None) -> Iterator[Pair]:
    """The pairs of a data set's folder, or of one file, in order. What cannot be read goes to `bad` and is passed over.

    BadInput where there is no such file.
    """
    file = path / PAIRS if path.is_dir() else path
    if not file.is_file():
        raise BadInput(f"no data set in {path}", hint=f"`hipwright dataset build TASKS --out {path}` makes one")
    for pair, _ in _rows(file, [] if bad is None else bad):
        yield pair


Span = tuple[int, int]  # of a line in its file: where it begins, and its bytes


def row(pair: Pair) -> bytes:
    """A pair's line."""
    return msgspec.json.encode({"key": pair.key, **pair.to_dict()}) + b"\n"


def _rows(file: Path, bad: list[BadRow]) -> Iterator[tuple[Pair, Span]]:
    at = 0
    with file.open("rb") as stream:
        for number, line in enumerate(stream, 1):
            try:
                yield _pair(line), (at, len(line))
            except (msgspec.MsgspecError, UnicodeDecodeError, ValueError) as error:
                bad.append(BadRow(file=file.name, line=number, why=str(error), text=line.decode(errors="replace")))
            at += len(line)


def _lines(file: Path, spans: Iterable[Span]) -> Iterator[bytes]:
    """Lines of a file in any order, one in memory at a time."""
    with file.open("rb") as stream:
        for at, size in spans:
            stream.seek(at)
            yield stream.read(size)


class _Keyed(msgspec.Struct):
    key: str


def _pair(line: bytes) -> Pair:
    if not line.endswith(b"\n"):
        raise ValueError("torn: the line has no end")
    pair = Pair.from_json(line)
    if msgspec.json.decode(line, type=_Keyed).key != pair.key:
        raise ValueError("its key does not belong to its content")
    return pair


def read_outcomes(folder: Path, bad: list[BadRow] | None = None) -> dict[str, TaskOutcome]:
    """By entry, the latest of each; {} where there are none."""
    found: dict[str, TaskOutcome] = {}
    file = folder / OUTCOMES
    for number, line in enumerate(file.read_bytes().splitlines(keepends=True) if file.is_file() else (), 1):
        try:
            if not line.endswith(b"\n"):
                raise ValueError("torn: the line has no end")
            outcome = TaskOutcome.from_json(line)
            found[outcome.entry] = outcome
        except (msgspec.MsgspecError, UnicodeDecodeError, ValueError) as error:
            if bad is not None:
                bad.append(BadRow(file=file.name, line=number, why=str(error), text=line.decode(errors="replace")))
    return found


class DatasetStore:
    """A data set that is being built; a context manager. One process at a time: the folder is locked."""

    def __init__(self, folder: Path, settings: dict[str, Any], *, resume: bool) -> None:
        self.folder = folder
        self.settings: dict[str, Any] = json.loads(json.dumps(settings))  # as the manifest will say them: no tuples
        self._resume = resume
        self._stack = ExitStack()
        self.outcomes: dict[str, TaskOutcome] = {}
        self.bad: list[BadRow] = []
        self.finished = False

    def __enter__(self) -> Self:
        self._stack.enter_context(run_lock(self.folder / ".lock", str(self.folder)))
        try:
            self._agree()
            self._recover()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def done(self, entry: str) -> bool:
        """Whether the task need not be made again. Another engine may find a kernel where one found none."""
        outcome = self.outcomes.get(entry)
        if outcome is None or outcome.status == "fault":
            return False
        return outcome.coverage > 0 or outcome.engine == source_key()

    def add(self, outcome: TaskOutcome, pairs: Iterable[Pair]) -> None:
        """Durable when this returns: first the rows, then the outcome that vouches for them."""
        if self.finished:
            self.finished = False
            self.note({"finished": False})
        if rows := b"".join(row(pair) for pair in pairs):
            append(self.folder / PAIRS, rows)
        outcome = msgspec.structs.replace(outcome, engine=source_key())
        append(self.folder / OUTCOMES, outcome.to_json().encode() + b"\n")
        self.outcomes[outcome.entry] = outcome

    def finish(self, order: Sequence[str], dress: Mapping[str, Mapping[str, Any]]) -> int:
        """Put the rows in the order of the tasks, so that a build that was resumed leaves the same file as one that was
        not. dress: by pair key, fields to set (splits). -> rows."""
        places = {key: at for at, key in enumerate(order)}
        ranked = sorted(self.outcomes.values(), key=lambda o: (places.get(o.entry, len(places)), o.entry))
        file = self.folder / PAIRS
        if not file.exists():
            file.touch()
        spans = {pair.key: span for pair, span in _rows(file, [])}
        keys = [key for outcome in ranked for key in outcome.pairs if key in spans]
        lines = _lines(file, (spans[key] for key in keys))
        replace_file(file, (_dressed(line, dress.get(key, {})) for key, line in zip(keys, lines, strict=True)))
        replace_file(self.folder / OUTCOMES, (o.to_json().encode() + b"\n" for o in ranked))
        self.note({"pairs": len(keys), "tasks": len(ranked), "finished": True})
        self.finished = True
        return len(keys)

    def note(self, facts: dict[str, Any]) -> None:
        """Write the manifest: the settings, and facts of the build."""
        text = json.dumps({"settings": self.settings, **facts}, indent=2, sort_keys=True) + "\n"
        replace_file(self.folder / MANIFEST, [text.encode()])

    # ---------------------------------------------------------------- taking up what is there

    def _agree(self) -> None:
        """A data set goes on with the settings it was begun with."""
        path = self.folder / MANIFEST
        if not path.is_file():
            self.note({})
            return
        if not self._resume:
            raise BadInput(
                f"{self.folder} already holds a data set", hint="--resume goes on with it, or choose another --out"
            )
        try:
            manifest = json.loads(path.read_bytes())
            known, self.finished = dict(manifest["settings"]), manifest.get("finished") is True
        except (ValueError, KeyError, TypeError) as error:
            raise BadInput(f"{path} cannot be read: {error}", hint="delete it to take the settings given") from error
        for name, value in self.settings.items():
            if known.get(name, value) != value:
                raise BadInput(
                    f"{self.folder} was begun with {name} {known[name]}, not {value}", hint=f"leave --{name} out"
                )

    def _recover(self) -> None:
        """Keep the rows that an outcome vouches for, and the outcomes that have all their rows."""
        outcomes = read_outcomes(self.folder, self.bad)
        file = self.folder / PAIRS
        kept = {pair.key: span for pair, span in _rows(file, self.bad)} if file.is_file() else {}
        torn = [one for one in outcomes.values() if not set(one.pairs) <= kept.keys()]
        self.outcomes = {key: one for key, one in outcomes.items() if one not in torn}
        vouched = {key for one in self.outcomes.values() for key in one.pairs}
        if not self.bad and not torn and kept.keys() == vouched:
            return
        self.finished = False
        if self.bad:
            append(self.folder / BAD, b"".join(one.to_json().encode() + b"\n" for one in self.bad))
        # outcomes first: a kill between the two leaves rows that nobody vouches for, which the next recovery drops
        replace_file(self.folder / OUTCOMES, (one.to_json().encode() + b"\n" for one in self.outcomes.values()))
        if file.exists():
            replace_file(file, _lines(file, (span for key, span in kept.items() if key in vouched)))


def append(path: Path, data: bytes) -> None:
    """Write at a file's end; on disk when this returns."""
    with path.open("ab") as stream:
        stream.write(data)
        stream.flush()
        os.fsync(stream.fileno())


def _dressed(line: bytes, fields: Mapping[str, Any]) -> bytes:
    return row(msgspec.structs.replace(Pair.from_json(line), **fields)) if fields else line


def replace_file(path: Path, parts: Iterable[bytes]) -> None:
    """The whole new content or the whole old one, whenever the process ends."""
    aside = path.with_name(f".{path.name}.new")
    with aside.open("wb") as stream:
        stream.writelines(parts)
        stream.flush()
        os.fsync(stream.fileno())
    aside.replace(path)
