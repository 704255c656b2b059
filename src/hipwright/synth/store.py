"""A folder of synthesised tasks, appended to while they are made; consistent after a kill at any time (docs/synth.md).

    manifest.json   the settings, the version, and the counts so far
    tasks.jsonl     one SyntheticTask a line, with its index
    dropped.jsonl   one DroppedDraft a line, with its index; "final" where the index gave no task
    tasks/NAME.py   the tasks in the KernelBench form

Every index ends in one line of tasks.jsonl or one final line of dropped.jsonl. Opening a folder again removes
everything from the first index without such a line on, so that the result is that of an uninterrupted run.
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
from hipwright.disk import naming
from hipwright.errors import BadInput
from hipwright.records import Record
from hipwright.synth.records import DroppedDraft, SyntheticTask

TASKS, DROPPED, MANIFEST, FILES = "tasks.jsonl", "dropped.jsonl", "manifest.json", "tasks"
BATCH = 8  # indices between two fsyncs


class _Line(Record, frozen=True, kw_only=True):
    """Fields of every line besides its record. Lines of tasks.jsonl are always final.

    tries: of a final line, the number of other lines of its index.
    """

    index: int
    final: bool = True
    tries: int = 0


class Manifest(Record, frozen=True, kw_only=True):
    """settings: what decides the tasks, unchanged over all runs of a folder; counts: as of the last sync."""

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
        self.tasks: list[SyntheticTask] = []
        self.dropped: Counter[str] = Counter()
        self.next_index = 0
        self._manifest = Manifest(settings=json.loads(json.dumps(dict(settings))))
        self._unsynced = 0
        with _writable(folder):
            (folder / FILES).mkdir(parents=True, exist_ok=True)
            self._lock = _locked(folder)
            try:
                self._open(resume)
                self._task_lines, self._dropped_lines = ((folder / name).open("ab") for name in (TASKS, DROPPED))
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
        return {"tasks": len(self.tasks), "drawn": self.next_index, "dropped": dropped}

    def add_task(self, index: int, task: SyntheticTask, refused: tuple[DroppedDraft, ...] = ()) -> None:
        """Append the task of an index and the drafts refused before it. It survives the end of this process."""
        self._append_refused(index, refused)
        self._append(self._task_lines, task, _Line(index=index, tries=len(refused)))
        self._write_task(task)
        self.tasks.append(task)
        self._end_index(index)

    def drop_index(self, index: int, dropped: tuple[DroppedDraft, ...]) -> None:
        """Append an index without a task; dropped: its drafts in order, at least one."""
        *refused, last = dropped
        self._append_refused(index, refused)
        self._append(self._dropped_lines, last, _Line(index=index, tries=len(refused)))
        self.dropped[last.stage] += 1
        self._end_index(index)

    def sync(self, *, complete: bool = False) -> None:
        """Write all lines and the manifest to disk (fsync): they survive a power failure."""
        for stream in (self._task_lines, self._dropped_lines):
            os.fsync(stream.fileno())
        self._unsynced = 0
        manifest = msgspec.structs.replace(self._manifest, counts=self.counts, complete=complete)
        _replace(self.folder / MANIFEST, json.dumps(manifest.to_dict(), indent=2) + "\n")

    def close(self) -> None:
        """Close the files and release the lock."""
        for stream in (self._task_lines, self._dropped_lines, self._lock):
            with naming(self.folder):
                stream.close()

    # ---------------------------------------------------------------- writing

    def _append_refused(self, index: int, refused: Sequence[DroppedDraft]) -> None:
        for one in refused:
            self._append(self._dropped_lines, one, _Line(index=index, final=False))
            self.dropped[one.stage] += 1

    def _append(self, stream: IO[bytes], record: Record, place: _Line) -> None:
        line = {**place.to_dict(), **record.to_dict()}
        with naming(self.folder / (TASKS if stream is self._task_lines else DROPPED)):
            stream.write(json.dumps(line, ensure_ascii=True, separators=(",", ":")).encode() + b"\n")
            stream.flush()

    def _end_index(self, index: int) -> None:
        self.next_index = index + 1
        self._unsynced += 1
        if self._unsynced >= BATCH:
            self.sync()

    def _write_task(self, task: SyntheticTask) -> None:
        _replace(self.folder / FILES / f"{task.draft.name}.py", task.draft.source)

    # ---------------------------------------------------------------- opening

    def _open(self, resume: bool) -> None:
        path = self.folder / MANIFEST
        exists = path.exists()
        if exists and not resume:
            hint = "--resume goes on with it, or choose another --out"
            raise BadInput(f"{self.folder} already holds synthesised tasks", hint=hint)
        if not exists:
            if any((self.folder / FILES).glob("*.py")) or (self.folder / TASKS).exists():
                raise BadInput(f"{self.folder} holds other tasks", hint="choose another --out")
            _replace(path, json.dumps(self._manifest.to_dict(), indent=2) + "\n")
            return
        self._check_settings(read_manifest(self.folder))
        self._recover()

    def _check_settings(self, old: Manifest) -> None:
        for name in sorted({*old.settings, *self._manifest.settings}):
            was, now = old.settings.get(name), self._manifest.settings.get(name)
            if was != now:
                raise BadInput(
                    f"{self.folder} was begun with {name} {_short(was)}, not {_short(now)}",
                    hint="give the same options as before, or choose another --out",
                )

    def _recover(self) -> None:
        """Keep the indices before the first one that did not end; remove the lines and files of the others."""
        tasks, dropped = (list(_lines(self.folder / name)) for name in (TASKS, DROPPED))
        tries = Counter(place.index for place, _ in dropped if not place.final)
        ended = {place.index for place, _ in (*tasks, *dropped) if place.final and place.tries == tries[place.index]}
        self.next_index = next(n for n in range(len(ended) + 1) if n not in ended)
        for name, lines in ((TASKS, tasks), (DROPPED, dropped)):
            kept = [line for place, line in lines if place.index < self.next_index]
            path = self.folder / name
            if path.exists() and path.read_bytes() != b"".join(kept):
                _replace(path, b"".join(kept).decode())
        for place, line in tasks:
            task = SyntheticTask.from_json(line)
            if place.index < self.next_index:
                self.tasks.append(task)
                if not (self.folder / FILES / f"{task.draft.name}.py").exists():
                    self._write_task(task)
            else:
                (self.folder / FILES / f"{task.draft.name}.py").unlink(missing_ok=True)
        self.dropped.update(
            DroppedDraft.from_json(line).stage for place, line in dropped if place.index < self.next_index
        )


def read_manifest(folder: Path) -> Manifest:
    """The manifest of a folder. BadInput where the folder holds no synthesised tasks."""
    try:
        return Manifest.from_json((folder / MANIFEST).read_bytes())
    except OSError:
        raise BadInput(f"{folder} holds no synthesised tasks", hint="`hipwright synth --out DIR` makes some") from None
    except msgspec.MsgspecError as error:
        raise BadInput(f"{folder / MANIFEST} is not the manifest of synthesised tasks: {error}") from None


def _lines(path: Path) -> Iterator[tuple[_Line, bytes]]:
    """Complete, readable lines with their index fields; others are left out, and their indices are drawn again."""
    if not path.exists():
        return
    kind: type[Record] = SyntheticTask if path.name == TASKS else DroppedDraft
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
    """Replace a file atomically and durably."""
    part = path.with_name(f".{path.name}.part")
    with naming(path), part.open("w", encoding="utf-8") as stream:
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())
    part.replace(path)


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
