"""A log of model calls in a file of JSON lines, for calls outside a run of an archive."""

from __future__ import annotations

import fcntl
import json
import os
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hipwright.errors import BadInput, InfrastructureError
from hipwright.llm.call_log import MemoryCallLog
from hipwright.llm.records import Request

_DAMAGED_HINT = "move the file away to start a new one; the lines before this one are intact"


class FileCallLog(MemoryCallLog):
    """One line {"kind", "number", "data"} per event, synced to disk before the call continues.

    Any number of processes may use the file: lines are written under its lock, and each reads the others' lines first.
    A torn last line (after a kill or power cut) is dropped; a damaged line elsewhere raises InfrastructureError.
    BadInput when the file cannot be opened.
    """

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = Path(path)
        self._offset = self._lines = 0
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise BadInput(f"cannot use {self.path} as a log of calls: {error.strerror}") from error
        self._close = weakref.finalize(self, os.close, self._fd)
        with self._locked():
            self._catch_up()
        folder = os.open(self.path.parent, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(folder)  # so that the file's name survives a power cut too
        finally:
            os.close(folder)

    def close(self) -> None:
        """Closes the file; a closed log cannot be used."""
        self._close()
        self._fd = -1

    def __enter__(self) -> FileCallLog:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    # ---------------------------------------------------------------- reading and writing lines

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with self._mutex:
            fcntl.flock(self._fd, fcntl.LOCK_EX)
            try:
                yield
            finally:
                fcntl.flock(self._fd, fcntl.LOCK_UN)

    def _write(self, kind: str, request: Request, data: dict[str, Any]) -> None:
        line = json.dumps({"kind": kind, "number": request.number, "data": data}, sort_keys=True) + "\n"
        with self._locked():
            self._catch_up()
            try:
                _write_all(self._fd, line.encode())
                os.fsync(self._fd)
            except OSError as error:
                os.ftruncate(self._fd, self._offset)  # no partial line may precede later lines
                raise InfrastructureError(
                    f"cannot write the log of calls {self.path}: {error.strerror}", hint="is the disk full?"
                ) from error
            self._offset += len(line.encode())
            self._lines += 1

    def _refresh(self) -> None:
        if os.fstat(self._fd).st_size > self._offset:
            self._take_whole_lines(self._rest())

    def _rest(self) -> bytes:
        return os.pread(self._fd, os.fstat(self._fd).st_size - self._offset, self._offset)

    def _take_whole_lines(self, rest: bytes) -> None:
        end = rest.rfind(b"\n") + 1
        for line in rest[:end].split(b"\n")[:-1]:
            kind, data = read_line(line, f"{self.path}:{self._lines + 1}")
            self.add(kind, data, f"{self.path}:{self._lines + 1}")
            self._lines += 1
            self._offset += len(line) + 1

    def _catch_up(self) -> None:
        """Reads new lines and drops a torn one that a killed writer left. The caller holds the lock."""
        rest = self._rest()
        whole = whole_lines(rest)
        self._take_whole_lines(whole)
        if len(whole) < len(rest):
            os.ftruncate(self._fd, self._offset)


def whole_lines(text: bytes) -> bytes:
    """Drops a torn last line: one without its end, or not JSON (a block that was not written)."""
    text = text[: text.rfind(b"\n") + 1]
    start = text.rfind(b"\n", 0, max(len(text) - 1, 0)) + 1
    try:
        json.loads(text[start:] or b"{}")
    except ValueError:
        return text[:start]
    return text


def read_line(line: bytes, where: str) -> tuple[str, dict[str, Any]]:
    """Reads kind and data of one line. InfrastructureError if the line is damaged."""
    try:
        read = json.loads(line)
        return str(read["kind"]), dict(read["data"])
    except (ValueError, KeyError, TypeError) as error:
        raise InfrastructureError(f"{where}: the log of calls is damaged in this line", hint=_DAMAGED_HINT) from error


def _write_all(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]
