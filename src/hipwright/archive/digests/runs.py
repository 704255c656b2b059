"""Digests of runs: kept, packed, listed, and computed from the events of runs that have more than was kept."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import msgspec

from hipwright.archive.code_features import kernel_features
from hipwright.archive.damage import ROW_ERRORS
from hipwright.archive.database import PACKS, REFUSED, Digest, RunDigests, VerifiedRow
from hipwright.archive.digests.packs import LOOSE, entries_of, not_full, put_together
from hipwright.archive.digests.records import keep, task_texts
from hipwright.archive.log import RunLog
from hipwright.archive.outline import Outline, continue_outline
from hipwright.archive.readable import readable_log
from hipwright.archive.store import Archive
from hipwright.archive.summary import RunSummary, summary_of
from hipwright.archive.verified import SimilarProgram, speed_order, verified_of
from hipwright.errors import BadInput, InfrastructureError
from hipwright.records import Program, Record, Run

_RUN, _RUNS = "run/1", f"{PACKS}runs/1"
"""The kinds of a run's digest and of their packs; the number changes with what is computed, and with its form."""
_KEPT_AT_ONCE = 64
MOST_VERIFIED = 128
"""Programs that are kept of a run, the fastest: a search for 16 similar kernels looks at as many of a task."""

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


class _Line(msgspec.Struct, frozen=True, array_like=True):
    """An entry of a pack: a run's digest with the run's place in the list."""

    ordinal: int
    digest: RunDigest


_READ_LINES = msgspec.json.Decoder(list[_Line])


@dataclass(frozen=True)
class _Kept:
    """The digests that are kept of an archive's runs. loose: as rows; packs: as packs; lines: of these, by ordinal.

    others: the runs of which no pack has the last events, by ordinal; current: the loose digests that do, by the same.
    """

    loose: dict[str, Digest]
    packs: dict[str, Digest]
    lines: dict[int, RunDigest]
    others: dict[int, Run]
    current: dict[int, RunDigest]

    @classmethod
    def of(cls, archive: Archive) -> _Kept:
        """Reads them. A run that has more events than was kept is among the others."""
        tables = archive.database.digests
        loose, packs = tables.of(_RUN), tables.of(_RUNS)  # in this order: rows are moved from the one to the other
        more = set(tables.unkept())
        lines: dict[int, RunDigest] = {}
        for line in entries_of(packs.values(), _READ_LINES):
            name, older = line.digest.summary.id, lines.get(line.ordinal)
            if name not in more and name not in loose and (older is None or older.seq < line.digest.seq):
                lines[line.ordinal] = line.digest
        others = archive.runs_at(sorted(set(range(archive.database.last_ordinal() + 1)) - lines.keys()))
        read = {at: _read(loose.get(run.id)) for at, run in others.items() if run.id not in more}
        return cls(loose, packs, lines, others, {at: digest for at, digest in read.items() if digest is not None})

    def pack(self, archive: Archive) -> None:
        """Puts the loose digests into packs, where there are some."""
        if len(self.current) < LOOSE or archive.read_only:
            return
        old = not_full(self.packs.values(), _READ_LINES)
        among = {line.ordinal for line in entries_of(old, _READ_LINES)}
        lines = {at: digest for at, digest in self.lines.items() if at in among} | self.current
        replaced = [*old, *(self.loose[digest.summary.id] for digest in self.current.values())]
        put_together(archive, _RUNS, [_Line(at, lines[at]) for at in sorted(lines)], replaced)


def listed(archive: Archive) -> list[RunDigest]:
    """The digests of all runs of the archive, the oldest first; without those that cannot be read, which are noted."""
    if not archive.read_only:
        archive.database.digests.renew()
    kept = _Kept.of(archive)
    kept.pack(archive)
    found = kept.lines | kept.current
    for at, digest in found.items():
        if digest.summary.status != "finished":
            status = "running" if archive.is_locked(digest.summary.id) else "interrupted"
            found[at] = msgspec.structs.replace(digest, summary=msgspec.structs.replace(digest.summary, status=status))
    missing = {run.id: at for at, run in kept.others.items() if at not in found}
    for one, _ in _read_and_kept(archive, [kept.others[at] for at in missing.values()]):
        found[missing[one.run.id]] = one.digest
    return [found[at] for at in sorted(found)]


def pack_runs(archive: Archive) -> None:
    """Puts the digests of runs into packs where many have a row each."""
    if not archive.read_only and len(archive.database.digests.of(_RUN)) >= LOOSE:
        _Kept.of(archive).pack(archive)


def unkept_runs(archive: Archive, counts: Callable[[Run], bool]) -> list[ReadRun]:
    """Reads the runs that have more events than was kept of them, keeps what can be kept, and returns the others.

    counts: which runs are wanted. Returned are those that are worked on, or damaged, or of an archive that only reads.
    """
    names = archive.database.digests.unkept()
    runs = archive.runs() if len(names) > _KEPT_AT_ONCE else [run for name in names for run in archive.runs_from(name)]
    wanted = set(names)
    found = _read_and_kept(archive, [run for run in runs if run.id in wanted and counts(run)])
    return [one for one, kept in found if not kept]


def computed(
    archive: Archive, kind: str, decoder: msgspec.json.Decoder[T], compute: Callable[[RunLog, str], T]
) -> dict[str, T]:
    """What is computed from the log of each run, by the run's id, the oldest first; of runs that have ended it is kept.

    kind: of the digests; its number changes with what is computed, and with its form.
    """
    kept, last = archive.database.digests.of(kind), archive.database.digests.last_seqs()
    found: dict[str, T] = {}
    fresh: list[Digest] = []
    for run in archive.runs():
        digest = kept.get(run.id)
        with suppress(*ROW_ERRORS):
            if digest is not None and digest.seq == last.get(run.id):
                found[run.id] = decoder.decode(digest.data)
                continue
        log = readable_log(archive, run.id)
        found[run.id] = compute(log, run.id)
        if log.finished is not None and not any(row.run == run.id for row in archive.damaged):
            fresh.append(Digest(kind, run.id, log.seq, msgspec.json.encode(found[run.id]).decode()))
        if len(fresh) == _KEPT_AT_ONCE:
            keep(archive, fresh)
            fresh = []
    keep(archive, fresh)
    return found


def group_of(run: Run) -> str:
    """The name of the group whose verified programs a run's are kept with: its task, and its targets."""
    return f"{run.task}/{','.join(run.targets)}"


def keep_digests(archive: Archive, run: Run, log: RunLog) -> None:
    """Keeps the digests of a run that has ended, its fastest programs, and its task's text; log: all of its events."""
    one = _read_run(archive, run, log)
    if _may_keep(archive, one):
        _keep_runs(archive, [_run_digests(one, partial(archive.find_all, kind=Program))])
        pack_runs(archive)
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


def _read(kept: Digest | None) -> RunDigest | None:
    try:
        return None if kept is None else RunDigest.from_json(kept.data.encode())
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
