"""Replays recorded answers instead of calling a provider: repeats a run offline, bit for bit."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable
from pathlib import Path

from hipwright.archive.store import Archive
from hipwright.errors import BadInput, ProviderError
from hipwright.llm.archive_call_log import ArchiveCallLog
from hipwright.llm.call_log import KINDS, CallLog, MemoryCallLog, RecordedCallLog, RefusedCall
from hipwright.llm.file_call_log import read_line, whole_lines
from hipwright.llm.records import ModelAnswer, Request, Reserved
from hipwright.llm.secrets import redact

_SHOWN = 80  # characters of a line that differs
_EVENT = frozenset({"run", "seq", "kind", "number", "data"})


class Replay:
    """A CallLog that answers from a recording only. then: the current run's log, which receives every answer.

    A refused call raises the recorded error again; one that the recording lacks raises ProviderError (not retryable)
    with the differences from the nearest recorded request.
    """

    def __init__(self, recording: RecordedCallLog, then: CallLog | None = None) -> None:
        self._recording, self._then = recording, then
        self._mutex = threading.Lock()
        self._reserved = {reserved.request.key: reserved for reserved in recording.reservations()}
        self._refused = {refused.request.key: refused for refused in recording.refusals()}
        self._given: dict[str, ModelAnswer] = {}

    def find(self, key: str) -> ModelAnswer | None:
        """Returns the recorded answer and adds it to the current run's log."""
        answer = self._recording.find(key)
        if answer is None:
            return None
        with self._mutex:
            if self._then is not None and self._then.find(key) is None:
                self._then.reserve(self._reserved[key])
                self._then.settle(answer)
            self._given.setdefault(key, answer)
        return answer

    def admit(self, request: Request) -> None:
        """Raises the recorded error of this call, else ProviderError: a replay sends nothing."""
        refused = self._refused.get(request.key)
        if refused is None:
            raise self._missing(request)
        if self._then is not None:
            self._then.refuse(refused)
        raise refused.exception()

    def reserve(self, reserved: Reserved) -> None:
        """Raises as `admit` does."""
        self.admit(reserved.request)

    def release(self, reserved: Reserved) -> None:
        """Does nothing: a replay reserves nothing."""

    def settle(self, answer: ModelAnswer) -> None:
        """Raises ValueError: a replay settles nothing."""
        raise ValueError(f"call {answer.request} is settled in a replay, which sends nothing")

    def refuse(self, refused: RefusedCall) -> None:
        """Passes the refusal on to the current run's log."""
        if self._then is not None:
            self._then.refuse(refused)

    def lost(self) -> list[Reserved]:
        """The lost attempts of the current run's log, if there is one."""
        return self._then.lost() if self._then is not None else []

    def answers(self) -> list[ModelAnswer]:
        """The answers returned so far."""
        if self._then is not None:
            return self._then.answers()
        with self._mutex:
            return list(self._given.values())

    def _missing(self, request: Request) -> ProviderError:
        recorded = [*(r.request for r in self._reserved.values()), *(r.request for r in self._refused.values())]
        why = f"the recording has no answer to {_name(request)}"
        near = nearest(request, recorded)
        if near is None:
            why += ", and no call at all"
        elif near.key == request.key:
            why += ": it was sent in the recorded run, and its answer was lost"
        else:
            why += f"; nearest is {_name(near)}, where {'; '.join(differences(near, request))}"
        hint = "replay with the task, the settings and the version of hipwright that were recorded, or call the model"
        return ProviderError(redact(why), retryable=False, hint=hint)


def nearest(request: Request, recorded: Iterable[Request]) -> Request | None:
    """The most similar recorded request: by role, number, index, model, then by the common prefix of its text."""

    def similarity(other: Request) -> tuple[bool, int, int, bool, int]:
        away = abs(other.number - request.number), abs(other.index - request.index)
        same = _common_prefix(_text(other), _text(request))
        return other.role == request.role, -away[0], -away[1], other.model == request.model, same

    return max(recorded, key=similarity, default=None)


def differences(recorded: Request, asked: Request) -> list[str]:
    """The differences of two requests, one phrase each; for messages the first line that differs."""
    found = [
        f"{name} was {getattr(recorded, name)!r} and is {getattr(asked, name)!r}"
        for name in ("role", "number", "index", "model", "max_tokens", "temperature")
        if getattr(recorded, name) != getattr(asked, name)
    ]
    if len(recorded.messages) != len(asked.messages):
        found.append(f"there were {len(recorded.messages)} messages and are {len(asked.messages)}")
    for place, (old, new) in enumerate(zip(recorded.messages, asked.messages, strict=False), 1):
        if old != new:
            found.append(f"message {place} ({new.role}) differs{_first_line(old.text, new.text)}")
            break
    return found


def read_recording(path: Path) -> MemoryCallLog:
    """Reads the calls of a `FileCallLog`, or of a run's full `hipwright export`. BadInput for anything else."""
    try:
        raw = Path(path).read_bytes()
    except OSError as error:
        raise BadInput(f"cannot read the recording {path}: {error.strerror}") from error
    log, exported = MemoryCallLog(), _is_export(raw, path)
    # an export is written at once: a torn line there means that calls may be missing
    for number, line in enumerate((raw if exported else whole_lines(raw)).splitlines(), 1):
        if not line.strip():
            continue
        kind, data = read_line(line, f"{path}:{number}")
        if kind in KINDS:
            log.add(kind, data, f"{path}:{number}")
    if not (exported or log.reservations() or log.refusals()):
        raise BadInput(f"{path} holds no call to a language model", hint="record one with --llm PROVIDER:MODEL")
    return log


def recording_of(archive: Archive, run: str) -> ArchiveCallLog:
    """The calls of an archived run ("latest", an id or its prefix). BadInput if there is none."""
    return ArchiveCallLog(archive, archive.run(run).id)


def find_recording(name: str, archive: Archive | None = None) -> RecordedCallLog:
    """Finds a recording by name: a file, else a run of the archive. BadInput for neither."""
    if archive is None or Path(name).is_file():
        return read_recording(Path(name))
    return recording_of(archive, name)


def _is_export(raw: bytes, path: Path) -> bool:
    """Whether the first line is of an export. BadInput if it is neither an export nor a log."""
    hint = "a file that `hipwright export RUN` wrote, or a log of calls"
    first = raw.partition(b"\n")[0]
    try:
        line = json.loads(first or b"{}")
    except ValueError:
        line = None
    if not isinstance(line, dict):
        raise BadInput(f"{path} is no recording: its first line is not a JSON object", hint=hint)
    if line.get("kind") == "run_started" and "seq" not in line:
        raise BadInput(f"{path} is a canonical export, which has no requests", hint="export it without --canonical")
    if first and not {"kind", "data"} <= line.keys():
        raise BadInput(f"{path} is no recording: its first line is not an event", hint=hint)
    return line.keys() >= _EVENT


def _name(request: Request) -> str:
    place = f"proposal {request.number}" if request.number >= 0 else "no proposal"
    return f"call {request.index} of role {request.role!r} for {place}"


def _first_line(old: str, new: str) -> str:
    lines = zip(old.splitlines(), new.splitlines(), strict=False)
    for number, (was, now) in enumerate(lines, 1):
        if was != now:
            return f" in line {number}: {_around(was, now)!r} is now {_around(now, was)!r}"
    return f" in length: {len(old)} characters, now {len(new)}"


def _around(line: str, other: str) -> str:
    """The part of a line around the first difference from the other."""
    start = max(0, _common_prefix(line, other) - _SHOWN // 4)
    return line[start : start + _SHOWN]


def _common_prefix(left: str, right: str) -> int:
    """The length of the common prefix of two texts."""
    low, high = 0, min(len(left), len(right))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if left[:middle] == right[:middle] else (low, middle - 1)
    return low


def _text(request: Request) -> str:
    return "\n".join(message.text for message in request.messages)
