"""A data set on disk: pairs, task outcomes and settings; consistent after a kill at any time.

    pairs.jsonl      one Pair a line, with its key
    outcomes.jsonl   one TaskOutcome a task, written after the task's pairs are on disk
    bad.jsonl        unreadable lines with their positions
    manifest.json    the settings

A task without an outcome is made again and gives the same pairs, so incomplete records can be dropped.
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
from hipwright.disk import naming
from hipwright.engine.version import source_key
from hipwright.errors import BadInput
from hipwright.records import Record

PAIRS, OUTCOMES, BAD, MANIFEST = "pairs.jsonl", "outcomes.jsonl", "bad.jsonl", "manifest.json"
Status = Literal["verified", "unverified", "failed", "fault"]


class TaskOutcome(Record, frozen=True, kw_only=True):
    """The outcome of one task. entry: the key of its DatasetTask; pairs: the keys of its rows.

    status: "verified" (a program passed), "unverified" (none did), "failed" (the task is at fault), "fault" (the
    infrastructure is: the next build tries again). coverage: the highest of the verified programs; counts: tried
    programs by result; engine: the engine's version (engine/version.py), set by the store.
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
    """An unreadable line. line: counted from 1; why: the error; text: its content."""

    file: str
    line: int
    why: str
    text: str = ""


def read_pairs(path: Path, bad: list[BadRow] | None = None) -> Iterator[Pair]:
    """The pairs of a data set's folder, or of one file, in order. Unreadable lines are added to `bad`.

    Raises BadInput where there is no such file.
    """
    file = path / PAIRS if path.is_dir() else path
    if not file.is_file():
        raise BadInput(f"no data set in {path}", hint=f"`hipwright dataset build TASKS --out {path}` makes one")
    for pair, _ in _rows(file, [] if bad is None else bad):
        yield pair


Span = tuple[int, int]  # of a line in its file: offset and length in bytes


def pair_line(pair: Pair) -> bytes:
    """The line of a pair in pairs.jsonl."""
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
    """{entry: its latest outcome}; unreadable lines are added to `bad`."""
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
    """A data set to build; a context manager that locks the folder.

    Raises BadInput on entry for a folder with other settings, with a data set but no `resume`, or in use.
    """

    def __init__(self, folder: Path, settings: dict[str, Any], *, resume: bool) -> None:
        self.folder = folder
        self.settings: dict[str, Any] = json.loads(json.dumps(settings))  # as the manifest has them: lists, not tuples
        self._resume = resume
        self._stack = ExitStack()
        self.outcomes: dict[str, TaskOutcome] = {}
        self.bad: list[BadRow] = []
        self.finished = False

    def __enter__(self) -> Self:
        self._stack.enter_context(run_lock(self.folder / ".lock", str(self.folder)))
        try:
            self._check_settings()
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
        """Whether a task need not be made again. Without any coverage, another version of the engine tries again."""
        outcome = self.outcomes.get(entry)
        if outcome is None or outcome.status == "fault":
            return False
        return outcome.coverage > 0 or outcome.engine == source_key()

    def add(self, outcome: TaskOutcome, pairs: Iterable[Pair]) -> None:
        """Write the rows of a task, then its outcome, durably."""
        if self.finished:
            self.finished = False
            self.write_manifest({"finished": False})
        if rows := b"".join(pair_line(pair) for pair in pairs):
            append_durably(self.folder / PAIRS, rows)
        outcome = msgspec.structs.replace(outcome, engine=source_key())
        append_durably(self.folder / OUTCOMES, outcome.to_json().encode() + b"\n")
        self.outcomes[outcome.entry] = outcome

    def finish(self, order: Sequence[str], fields: Mapping[str, Mapping[str, Any]]) -> int:
        """Put the rows in the order of the tasks and set fields by pair key; returns the number of rows.

        The files do not depend on the order in which tasks ended, or on interruptions.
        """
        places = {key: at for at, key in enumerate(order)}
        ranked = sorted(self.outcomes.values(), key=lambda o: (places.get(o.entry, len(places)), o.entry))
        file = self.folder / PAIRS
        if not file.exists():
            file.touch()
        spans = {pair.key: span for pair, span in _rows(file, [])}
        keys = [key for outcome in ranked for key in outcome.pairs if key in spans]
        lines = _lines(file, (spans[key] for key in keys))
        replace_file(file, (_with_fields(line, fields.get(key, {})) for key, line in zip(keys, lines, strict=True)))
        replace_file(self.folder / OUTCOMES, (o.to_json().encode() + b"\n" for o in ranked))
        self.write_manifest({"pairs": len(keys), "tasks": len(ranked), "finished": True})
        self.finished = True
        return len(keys)

    def write_manifest(self, facts: dict[str, Any]) -> None:
        """Write the manifest: the settings and the given facts."""
        text = json.dumps({"settings": self.settings, **facts}, indent=2, sort_keys=True) + "\n"
        replace_file(self.folder / MANIFEST, [text.encode()])

    # ---------------------------------------------------------------- resuming

    def _check_settings(self) -> None:
        """Raise BadInput unless the folder is new or resumed with equal settings."""
        path = self.folder / MANIFEST
        if not path.is_file():
            self.write_manifest({})
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
        """Keep the outcomes whose rows are all there, and their rows; remove the others."""
        outcomes = read_outcomes(self.folder, self.bad)
        file = self.folder / PAIRS
        kept = {pair.key: span for pair, span in _rows(file, self.bad)} if file.is_file() else {}
        torn = [one for one in outcomes.values() if not set(one.pairs) <= kept.keys()]
        self.outcomes = {key: one for key, one in outcomes.items() if one not in torn}
        complete = {key for one in self.outcomes.values() for key in one.pairs}
        if not self.bad and not torn and kept.keys() == complete:
            return
        self.finished = False
        if self.bad:
            append_durably(self.folder / BAD, b"".join(one.to_json().encode() + b"\n" for one in self.bad))
        # outcomes first: a kill in between leaves rows without an outcome, which the next recovery removes
        replace_file(self.folder / OUTCOMES, (one.to_json().encode() + b"\n" for one in self.outcomes.values()))
        if file.exists():
            replace_file(file, _lines(file, (span for key, span in kept.items() if key in complete)))


def append_durably(path: Path, data: bytes) -> None:
    """Append to a file and fsync it."""
    with naming(path), path.open("ab") as stream:
        stream.write(data)
        stream.flush()
        os.fsync(stream.fileno())


def _with_fields(line: bytes, fields: Mapping[str, Any]) -> bytes:
    return pair_line(msgspec.structs.replace(Pair.from_json(line), **fields)) if fields else line


def replace_file(path: Path, parts: Iterable[bytes]) -> None:
    """Replace a file atomically and durably."""
    aside = path.with_name(f".{path.name}.new")
    with naming(path), aside.open("wb") as stream:
        stream.writelines(parts)
        stream.flush()
        os.fsync(stream.fileno())
    aside.replace(path)
