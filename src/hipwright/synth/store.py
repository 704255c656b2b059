"""A folder of synthesised tasks: appended while they are made, whole after a kill at any moment (docs/synth.md).

    manifest.json   what was asked for, by which version, and the counts so far
    tasks.jsonl     one Made a line, with the index it was drawn at
    dropped.jsonl   one Dropped a line, with its index; "final" where the index came to nothing
    tasks/NAME.py   the tasks in the KernelBench form

Every index ends in one line of tasks.jsonl or one final line of dropped.jsonl. What follows the first index without
one is cut off when the folder is opened again, so the work goes on as if it had never been interrupted.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

import msgspec

from hipwright import __version__
from hipwright.errors import BadInput
from hipwright.records import Record
from hipwright.synth.records import DroppedDraft, Made

TASKS, DROPPED, MANIFEST, FILES = "tasks.jsonl", "dropped.jsonl", "manifest.json", "tasks"
BATCH = 8  # indices between two fsyncs


class _Line(Record, frozen=True, kw_only=True):
    """What every line has besides its record. Lines of tasks.jsonl are always final.

    tries: of a final line, how many lines that are not belong to its index.
    """

    index: int
    final: bool = True
    tries: int = 0


class Manifest(Record, frozen=True, kw_only=True):
    """settings: what decides the tasks; a folder goes on with the same ones alone. counts: so far."""

    settings: dict[str, Any]
    version: str = __version__
    form: int = 1
    counts: dict[str, Any] = msgspec.field(default_factory=dict)
    complete: bool = False


class SynthStore:
    """The folder, open for writing by one process. A context manager.

    settings: as `Manifest`. Raises BadInput for a folder that cannot be written, holds other tasks, is being written
    by another process, or was begun with other settings.
    """

    def __init__(self, folder: Path, settings: Mapping[str, Any], *, resume: bool = False) -> None:
        self.folder = folder
        self.made: list[Made] = []
        self.dropped: Counter[str] = Counter()
        self.next_index = 0
        self._manifest = Manifest(settings=json.loads(json.dumps(dict(settings))))
        self._unsynced = 0
        with _writable(folder):
            (folder / FILES).mkdir(parents=True, exist_ok=True)
            self._lock = _locked(folder)
            try:
                self._begin(resume)
                self._tasks, self._drops = ((folder / name).open("ab") for name in (TASKS, DROPPED))
            except BaseException:
                self._lock.close()
                raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    @property
    def counts(self) -> dict[str, Any]:
        """Tasks, indices drawn, and what was dropped by stage."""
        dropped = dict(sorted(self.dropped.items()))
        return {"tasks": len(self.made), "drawn": self.next_index, "dropped": dropped}

    def take(self, index: int, made: Made, tries: tuple[DroppedDraft, ...] = ()) -> None:
        """The task of an index; tries: what was refused before it. It survives the end of this process."""
        self._refused(index, tries)
        self._append(self._tasks, made, _Line(index=index, tries=len(tries)))
        self._write_task(made)
        self.made.append(made)
        self._done(index)

    def drop(self, index: int, dropped: tuple[DroppedDraft, ...]) -> None:
        """An index that came to nothing, with everything that was refused, the last word last."""
        *tries, last = dropped
        self._refused(index, tries)
        self._append(self._drops, last, _Line(index=index, tries=len(tries)))
        self.dropped[last.stage] += 1
        self._done(index)

    def sync(self, *, complete: bool = False) -> None:
        """Everything so far survives the end of the machine, too."""
        for stream in (self._tasks, self._drops):
            os.fsync(stream.fileno())
        self._unsynced = 0
        manifest = msgspec.structs.replace(self._manifest, counts=self.counts, complete=complete)
        _replace(self.folder / MANIFEST, json.dumps(manifest.to_dict(), indent=2) + "\n")

    def close(self) -> None:
        """Close the files; what was added stays."""
        for stream in (self._tasks, self._drops, self._lock):
            stream.close()

    # ---------------------------------------------------------------- writing

    def _refused(self, index: int, tries: Sequence[DroppedDraft]) -> None:
        for one in tries:
            self._append(self._drops, one, _Line(index=index, final=False))
            self.dropped[one.stage] += 1

    def _append(self, stream: IO[bytes], record: Record, place: _Line) -> None:
        line = {**place.to_dict(), **record.to_dict()}
        stream.write(json.dumps(line, ensure_ascii=True, separators=(",", ":")).encode() + b"\n")
        stream.flush()

    def _done(self, index: int) -> None:
        self.next_index = index + 1
        self._unsynced += 1
        if self._unsynced >= BATCH:
            self.sync()

    def _write_task(self, made: Made) -> None:
        _replace(self.folder / FILES / f"{made.draft.name}.py", made.draft.source)

    # ---------------------------------------------------------------- going on

    def _begin(self, resume: bool) -> None:
        path = self.folder / MANIFEST
        there = path.exists()
        if there and not resume:
            hint = "--resume goes on with it, or choose another --out"
            raise BadInput(f"{self.folder} already holds synthesised tasks", hint=hint)
        if not there:
            if any((self.folder / FILES).glob("*.py")) or (self.folder / TASKS).exists():
                raise BadInput(f"{self.folder} holds other tasks", hint="choose another --out")
            _replace(path, json.dumps(self._manifest.to_dict(), indent=2) + "\n")
            return
        self._must_agree(read_manifest(self.folder))
        self._recover()

    def _must_agree(self, old: Manifest) -> None:
        for name in sorted({*old.settings, *self._manifest.settings}):
            was, now = old.settings.get(name), self._manifest.settings.get(name)
            if was != now:
                raise BadInput(
                    f"{self.folder} was begun with {name} {_short(was)}, not {_short(now)}",
                    hint="give the same options as before, or choose another --out",
                )

    def _recover(self) -> None:
        """Keep the indices that ended without a gap before them, and cut off the rest."""
        tasks, drops = (list(_lines(self.folder / name)) for name in (TASKS, DROPPED))
        tries = Counter(place.index for place, _ in drops if not place.final)
        ended = {place.index for place, _ in (*tasks, *drops) if place.final and place.tries == tries[place.index]}
        self.next_index = next(n for n in range(len(ended) + 1) if n not in ended)
        for name, lines in ((TASKS, tasks), (DROPPED, drops)):
            kept = [line for place, line in lines if place.index < self.next_index]
            path = self.folder / name
            if path.exists() and path.read_bytes() != b"".join(kept):
                _replace(path, b"".join(kept).decode())
        for place, line in tasks:
            made = Made.from_json(line)
            if place.index < self.next_index:
                self.made.append(made)
                if not (self.folder / FILES / f"{made.draft.name}.py").exists():
                    self._write_task(made)
            else:
                (self.folder / FILES / f"{made.draft.name}.py").unlink(missing_ok=True)
        self.dropped.update(
            DroppedDraft.from_json(line).stage for place, line in drops if place.index < self.next_index
        )


def read_manifest(folder: Path) -> Manifest:
    """BadInput where the folder holds no synthesised tasks."""
    try:
        return Manifest.from_json((folder / MANIFEST).read_bytes())
    except OSError:
        raise BadInput(f"{folder} holds no synthesised tasks", hint="`hipwright synth --out DIR` makes some") from None
    except msgspec.MsgspecError as error:
        raise BadInput(f"{folder / MANIFEST} is not the manifest of synthesised tasks: {error}") from None


def read_made(folder: Path) -> list[Made]:
    """The tasks of a folder, in the order they were taken. BadInput where there are none; torn lines are left out."""
    if not (folder / TASKS).exists():
        read_manifest(folder)  # says what is missing
    return [Made.from_json(line) for _, line in _lines(folder / TASKS)]


def read_dropped(folder: Path) -> list[DroppedDraft]:
    """What was not taken, in order."""
    return [DroppedDraft.from_json(line) for _, line in _lines(folder / DROPPED)]


def _lines(path: Path) -> Iterator[tuple[_Line, bytes]]:
    """Whole, readable lines with their places; a torn one is nobody's fault, and its index is drawn again."""
    if not path.exists():
        return
    kind: type[Record] = Made if path.name == TASKS else DroppedDraft
    for line in path.read_bytes().splitlines(keepends=True):
        with contextlib.suppress(msgspec.MsgspecError):
            kind.from_json(line)
            if line.endswith(b"\n"):
                yield _Line.from_json(line), line


@contextlib.contextmanager
def _writable(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise BadInput(f"cannot write to {folder}: {error.strerror}", hint="choose another --out folder") from error


def _locked(folder: Path) -> IO[bytes]:
    stream = (folder / ".lock").open("ab")
    try:
        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        stream.close()
        raise BadInput(f"another process is writing to {folder}", hint="wait for it, or choose another --out") from None
    return stream


def _replace(path: Path, text: str) -> None:
    """Write a file whole or not at all."""
    part = path.with_name(f".{path.name}.part")
    with part.open("w", encoding="utf-8") as stream:
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())
    part.replace(path)


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
