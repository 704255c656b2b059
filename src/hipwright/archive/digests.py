"""What is computed from a run's events and kept, so that a list of many runs, or a search among them, reads no events.

So are the features of programs and tasks. A digest is of the run's events up to one, and is computed again where the
run has more. It is kept when a run ends, or when it is first asked for; an archive that cannot be written is read as
before. With a run's digest its fastest verified programs are kept, in order of their speed (archive/similar.py).
Rows that cannot be read are named when a digest is computed, and that one is not kept; `hipwright archive check`
always reads every row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import msgspec

from hipwright.archive.code_features import feature_words, kernel_features, task_features, tokens
from hipwright.archive.damage import ROW_ERRORS
from hipwright.archive.database import REFUSED, Digest, RunDigests, VerifiedRow
from hipwright.archive.log import RunLog
from hipwright.archive.outline import Outline, continue_outline
from hipwright.archive.store import Archive
from hipwright.archive.summary import RunSummary, summary_of
from hipwright.archive.text_similarity import Text
from hipwright.archive.verified import SimilarProgram, speed_order, verified_of
from hipwright.errors import BadInput, InfrastructureError
from hipwright.records import Program, Record, Run, Task

_RUN, _KERNELS, _TASK = "run/1", "kernels/1", "task/1"
"""The kinds of digests; the number changes with what is computed, and with its form."""
_KEPT_AT_ONCE = 64
MOST_VERIFIED = 128
"""Programs that are kept of a run, the fastest: a search for 16 similar kernels looks at as many of a task."""

_READ_FEATURES, _READ_TEXT = msgspec.json.Decoder(dict[str, float]), msgspec.json.Decoder(Text)

R = TypeVar("R", bound=Record)
T = TypeVar("T")
Finder = Callable[[Sequence[str]], Mapping[str, Program]]


class RunDigest(Record, frozen=True, kw_only=True):
    """A run in short. seq: of its last event; verified: how many programs passed.

    refused: those that a second verification refused.
    """

    summary: RunSummary
    seq: int = -1
    verified: int = 0
    refused: tuple[str, ...] = ()


@dataclass(frozen=True)
class ReadRun:
    """A run of which nothing was kept, as its events tell. verified: in proposal order, without features."""

    run: Run
    digest: RunDigest
    verified: list[SimilarProgram]


def run_digests(archive: Archive, runs: Sequence[Run]) -> dict[str, RunDigest]:
    """The digests of some runs of the archive, by id."""
    kept, last = archive.database.digests.of(_RUN), archive.database.digests.last_seqs()
    found: dict[str, RunDigest] = {}
    missing = []
    for run in runs:
        digest = _read(kept.get(run.id), last.get(run.id, -1))
        if digest is None:
            missing.append(run)
        elif digest.summary.status != "finished":
            status = "running" if archive.is_locked(run.id) else "interrupted"
            digest = msgspec.structs.replace(digest, summary=msgspec.structs.replace(digest.summary, status=status))
        if digest is not None:
            found[run.id] = digest
    return found | {one.run.id: one.digest for one, _ in _read_and_kept(archive, missing)}


def unkept_runs(archive: Archive, counts: Callable[[Run], bool]) -> list[ReadRun]:
    """Reads the runs that have more events than was kept of them, keeps what can be kept, and returns the others.

    counts: which runs are wanted. Returned are those that are worked on, or damaged, or of an archive that only reads.
    """
    names = archive.database.digests.unkept()
    runs = archive.runs() if len(names) > _KEPT_AT_ONCE else [run for name in names for run in archive.runs_from(name)]
    wanted = set(names)
    found = _read_and_kept(archive, [run for run in runs if run.id in wanted and counts(run)])
    return [one for one, kept in found if not kept]


def group_of(run: Run) -> str:
    """The name of the group whose verified programs a run's are kept with: its task, and its targets."""
    return f"{run.task}/{','.join(run.targets)}"


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
    kept = archive.database.digests.of(kind, keys)
    found: dict[str, T] = {}
    for key in keys:
        with suppress(*ROW_ERRORS):
            found[key] = decoder.decode(kept[key].data)
    records = archive.find_all([key for key in keys if key not in found], record)
    new = {key: compute(one) for key, one in records.items()}
    _keep(archive, [Digest(kind, key, 0, msgspec.json.encode(value).decode()) for key, value in new.items()])
    found |= new
    return {key: found[key] for key in keys if key in found}


def keep_digests(archive: Archive, run: Run, log: RunLog) -> None:
    """Keeps the digests of a run that has ended, its fastest programs, and its task's text; log: all of its events."""
    one = _read_run(archive, run, log)
    if _may_keep(archive, one):
        _keep_runs(archive, [_run_digests(one, partial(archive.find_all, kind=Program))])
        task_texts(archive, [run.task])


def digests_of(archive: Archive, run: Run, log: RunLog, find: Finder) -> RunDigests:
    """What `keep_digests` keeps of a run. find: gives stored programs by their keys, as far as they can be read."""
    return _run_digests(_read_run(archive, run, log), find)


def _read_and_kept(archive: Archive, runs: Sequence[Run]) -> Iterator[tuple[ReadRun, bool]]:
    """Runs read from their events, each with whether its digests are kept now; a page of them at a time in memory."""
    for at in range(0, len(runs), _KEPT_AT_ONCE):
        page = [_read_run(archive, run, _log(archive, run.id)) for run in runs[at : at + _KEPT_AT_ONCE]]
        keepable = [one for one in page if _may_keep(archive, one)]
        kept = _keep_runs(archive, [_run_digests(one, partial(archive.find_all, kind=Program)) for one in keepable])
        names = {one.run.id for one in keepable} if kept else set()
        yield from ((one, one.run.id in names) for one in page)


def _log(archive: Archive, run: str) -> RunLog:
    """The log of a run without builds and verdicts, which no digest has."""
    outline = Outline()
    continue_outline(archive, run, outline)
    outline.log.seq = outline.following - 1
    return outline.log


def _read_run(archive: Archive, run: Run, log: RunLog) -> ReadRun:
    refused = sorted({item.program for item in log.confirmed.values() if not item.passed})
    passed = sum(item.evaluation.passed for item in log.evaluated.values())
    summary = summary_of(archive, run, log)
    digest = RunDigest(summary=summary, seq=log.seq, verified=passed, refused=tuple(refused))
    return ReadRun(run, digest, verified_of(run, log))


def _may_keep(archive: Archive, one: ReadRun) -> bool:
    """Not where a run is worked on, or some of its rows cannot be read."""
    running = one.digest.summary.status == "running"
    return not running and not archive.read_only and not any(row.run == one.run.id for row in archive.damaged)


def _run_digests(one: ReadRun, find: Finder) -> RunDigests:
    """What is kept of a run. A program that cannot be read is left out: it could not be shown either."""
    fastest: dict[str, SimilarProgram] = {}
    for known in sorted(one.verified, key=speed_order):
        fastest.setdefault(known.program, known)
    chosen = list(fastest.values())[:MOST_VERIFIED]
    programs = find([known.program for known in chosen])
    place, rows = group_of(one.run), []
    for known in chosen:
        if known.program in programs:
            known = msgspec.structs.replace(known, features=kernel_features(programs[known.program].text))
            rows.append(VerifiedRow(place, *speed_order(known)[:2], known.program, one.run.id, known.to_json()))
    rows += [VerifiedRow(place, REFUSED, 0.0, program, one.run.id, "{}") for program in one.digest.refused]
    return RunDigests(Digest(_RUN, one.run.id, one.digest.seq, one.digest.to_json()), rows)


def _read(kept: Digest | None, seq: int) -> RunDigest | None:
    try:
        return None if kept is None or kept.seq != seq else RunDigest.from_json(kept.data.encode())
    except ROW_ERRORS:
        return None


def _keep_runs(archive: Archive, kept: Sequence[RunDigests]) -> bool:
    """Keeps what was computed from runs; False where it cannot be kept, and will be computed again."""
    try:
        if kept:
            archive.database.digests.keep_runs(kept)
    except (BadInput, InfrastructureError):  # a full disk does not keep a list from being shown
        return False
    return True


def _keep(archive: Archive, fresh: Sequence[Digest]) -> None:
    """Keeps digests of records; what cannot be kept is computed again."""
    if fresh and not archive.read_only:
        with suppress(BadInput, InfrastructureError):
            archive.database.digests.keep(fresh)
