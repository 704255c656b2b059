"""What is computed from a run's events and kept, so that a list of many runs, or a search among them, reads no events.

So are the features of programs and tasks. A digest is of the run's events up to one, and is computed again where the
run has more. It is kept when a run ends, or when it is first asked for; an archive that cannot be written is read as
before. Rows that cannot be read are named when a digest is computed, and that one is not kept; `hipwright archive
check` always reads every row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TypeVar

import msgspec

from hipwright.archive.code_features import feature_words, kernel_features, task_features, tokens
from hipwright.archive.damage import ROW_ERRORS
from hipwright.archive.database import Digest
from hipwright.archive.log import RunLog
from hipwright.archive.readable import readable_log
from hipwright.archive.store import Archive
from hipwright.archive.summary import RunSummary, summary_of
from hipwright.archive.text_similarity import Text
from hipwright.archive.verified import SimilarProgram, speed_order, verified_of
from hipwright.errors import BadInput, InfrastructureError
from hipwright.records import Program, Record, Run, Task

_RUN, _VERIFIED, _KERNELS, _TASK = "run/1", "verified/1", "kernels/1", "task/1"
"""The kinds of digests; the number changes with what is computed, and with its form."""
_KEPT_AT_ONCE, _FASTEST = 64, 24

_READ_VERIFIED = msgspec.json.Decoder(list[SimilarProgram])
_READ_FEATURES, _READ_TEXT = msgspec.json.Decoder(dict[str, float]), msgspec.json.Decoder(Text)

R = TypeVar("R", bound=Record)
T = TypeVar("T")


class RunDigest(Record, frozen=True, kw_only=True):
    """A run in short. seq: of its last event; verified: how many programs passed.

    refused: those that a second verification refused.
    """

    summary: RunSummary
    seq: int = -1
    verified: int = 0
    refused: tuple[str, ...] = ()


def run_digests(archive: Archive, runs: Sequence[Run]) -> dict[str, RunDigest]:
    """The digests of some runs of the archive, by id."""
    kept, last = archive.database.digests(_RUN), archive.database.last_seqs()
    found: dict[str, RunDigest] = {}
    fresh: list[Digest] = []
    for run in runs:
        digest = _read(kept.get(run.id), last.get(run.id, -1))
        if digest is None:
            digest = _computed(archive, run, fresh)
        elif digest.summary.status != "finished":
            status = "running" if archive.is_locked(run.id) else "interrupted"
            digest = msgspec.structs.replace(digest, summary=msgspec.structs.replace(digest.summary, status=status))
        found[run.id] = digest
        if len(fresh) >= _KEPT_AT_ONCE:
            _keep(archive, fresh)
    _keep(archive, fresh)
    return found


def verified_in(
    archive: Archive, runs: Sequence[Run], digests: Mapping[str, RunDigest]
) -> dict[str, list[SimilarProgram]]:
    """The verified programs of some runs, in proposal order, by the run's id. digests: at least of these runs."""
    kept = archive.database.digests(_VERIFIED, [run.id for run in runs])
    found: dict[str, list[SimilarProgram]] = {}
    fresh: list[Digest] = []
    for run in runs:
        digest = kept.get(run.id)
        try:
            if digest is None or digest.seq != digests[run.id].seq:
                raise ValueError("there is none of all events")
            found[run.id] = _READ_VERIFIED.decode(digest.data)
        except ROW_ERRORS:
            log = readable_log(archive, run.id)
            found[run.id] = verified_of(run, log)
            fresh += _digests(archive, run, log)
    _keep(archive, fresh)
    return found


def kernel_features_of(archive: Archive, programs: Sequence[str]) -> dict[str, dict[str, float]]:
    """The features of stored programs' kernels, by the program's key; without those that cannot be read."""
    return _of_records(archive, _KERNELS, Program, programs, _READ_FEATURES, lambda one: kernel_features(one.text))


def task_texts(archive: Archive, tasks: Sequence[str]) -> dict[str, Text]:
    """The words and features of stored tasks, by the task's key; without those that cannot be read."""
    return _of_records(archive, _TASK, Task, tasks, _READ_TEXT, lambda one: task_text(one.source))


def task_text(source: str) -> Text:
    """The words and features of a task's source, by which tasks are compared."""
    features = task_features(source)
    return Text([*tokens(source), *feature_words(features) * 3], features)


def _of_records(
    archive: Archive,
    kind: str,
    record: type[R],
    keys: Sequence[str],
    decoder: msgspec.json.Decoder[T],
    compute: Callable[[R], T],
) -> dict[str, T]:
    """What is computed from records, which never change: kept by their key, with the seq 0."""
    kept = archive.database.digests(kind, keys)
    found: dict[str, T] = {}
    fresh: list[Digest] = []
    for key in keys:
        try:
            found[key] = decoder.decode(kept[key].data)
        except ROW_ERRORS:
            one = archive.find(key, record)
            if one is not None:
                found[key] = compute(one)
                fresh.append(Digest(kind, key, 0, msgspec.json.encode(found[key]).decode()))
    _keep(archive, fresh)
    return found


def keep_digests(archive: Archive, run: Run, log: RunLog) -> None:
    """Keeps the digests of a run that has ended, and of its fastest programs; log: all of its events."""
    _keep(archive, _digests(archive, run, log))
    fastest = sorted(verified_of(run, log), key=speed_order)[:_FASTEST]
    kernel_features_of(archive, list(dict.fromkeys(known.program for known in fastest)))


def _computed(archive: Archive, run: Run, fresh: list[Digest]) -> RunDigest:
    log = readable_log(archive, run.id)
    fresh += _digests(archive, run, log)
    return _digest(archive, run, log)


def _digest(archive: Archive, run: Run, log: RunLog) -> RunDigest:
    refused = sorted({item.program for item in log.confirmed.values() if not item.passed})
    verified = sum(item.evaluation.passed for item in log.evaluated.values())
    return RunDigest(summary=summary_of(archive, run, log), seq=log.seq, verified=verified, refused=tuple(refused))


def _digests(archive: Archive, run: Run, log: RunLog) -> list[Digest]:
    """The digests to keep; none of a run that is worked on, or of whose rows some cannot be read."""
    digest = _digest(archive, run, log)
    if digest.summary.status == "running" or any(row.run == run.id for row in archive.damaged):
        return []
    verified = msgspec.json.encode(verified_of(run, log)).decode()
    return [Digest(_RUN, run.id, log.seq, digest.to_json()), Digest(_VERIFIED, run.id, log.seq, verified)]


def _read(kept: Digest | None, seq: int) -> RunDigest | None:
    try:
        return None if kept is None or kept.seq != seq else RunDigest.from_json(kept.data.encode())
    except ROW_ERRORS:
        return None


def _keep(archive: Archive, fresh: list[Digest]) -> None:
    """Keeps digests and empties the list; what cannot be kept is computed again."""
    if fresh and not archive.read_only:
        with suppress(BadInput, InfrastructureError):  # a full disk does not keep a list from being shown
            archive.database.keep_digests(fresh)
    fresh.clear()
