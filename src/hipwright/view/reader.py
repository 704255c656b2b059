"""The archive as pages read it: each run's log is kept, and continued by the events that came since."""

from __future__ import annotations

import threading
from collections import OrderedDict
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from hipwright.api.models import SETTING
from hipwright.archive import (
    Archive,
    DamagedRow,
    Evaluated,
    Outline,
    Place,
    RunSummary,
    TrialDetail,
    continue_outline,
    summary_of,
    trial_of,
)
from hipwright.errors import BadInput, InfrastructureError
from hipwright.llm.call_log import MemoryCallLog
from hipwright.llm.cost.spending import spending
from hipwright.records import Event, Program, Run, Task
from hipwright.view.plots.best import sparkline

KEPT_LOGS = 24
"""Logs that are kept at once; the one that was read the longest time ago is left out."""


@dataclass
class KeptLog(Outline):
    """A run's log in outline, and its trials in proposal order."""

    trials: list[TrialDetail] = field(default_factory=list)
    _by_number: dict[int, TrialDetail] = field(default_factory=dict)
    _call_log: MemoryCallLog = field(default_factory=MemoryCallLog)

    def refresh(self, changed: set[int]) -> None:
        """Makes the trials of these proposals again."""
        for number in changed & self.log.proposed.keys():
            self._by_number[number] = trial_of(self.log, number)
        self.trials = [self._by_number[number] for number in sorted(self._by_number)]

    def spent(self) -> dict[str, Any]:
        """Calls, tokens and dollars of the run's models so far (hipwright.llm.cost.spending)."""
        calls, self.calls = self.calls, []
        for event in calls:
            with suppress(InfrastructureError):  # a damaged row, whose call is left out
                self._call_log.add(event.kind, event.data, f"event {event.seq} of run {event.run}")
        return spending(self._call_log).to_dict()


@dataclass(frozen=True)
class RunLine:
    """A run in the list: its summary, the best so far as an SVG path, and the seq of its last event."""

    summary: RunSummary
    spark: str | None
    seq: int


def models_of(run: Run) -> dict[str, Any]:
    """The run's setting of authors and limits; {} where it has none."""
    kept = run.settings.get(SETTING)
    return kept if isinstance(kept, dict) else {}


class ArchiveReader:
    """Reads one archive for many requests at once; nothing is ever written.

    Raises BadInput for a run or proposal that does not exist, InfrastructureError for a damaged file.
    """

    def __init__(self, place: Place) -> None:
        self.archive = Archive(place, create=False).refuse_writes()
        self._logs: OrderedDict[str, KeptLog] = OrderedDict()
        self._lines: dict[str, RunLine] = {}
        self._mutex = threading.RLock()

    def close(self) -> None:
        """Closes the archive."""
        self.archive.close()

    @property
    def damaged(self) -> list[DamagedRow]:
        """The rows that reading has skipped."""
        return list(self.archive.damaged)

    def runs(self) -> list[Run]:
        """All runs, newest first."""
        return self.archive.runs()[::-1]

    def run(self, name: str) -> Run:
        """The run called `name`: an id, the start of one, or latest."""
        return self.archive.run(name)

    def kept(self, run: Run) -> KeptLog:
        """The run's log, brought up to date."""
        with self._mutex:
            kept = self._logs.setdefault(run.id, KeptLog())
            self._logs.move_to_end(run.id)
            if len(self._logs) > KEPT_LOGS:
                self._logs.popitem(last=False)
            changed = continue_outline(self.archive, run.id, kept)
            if changed:
                kept.refresh(changed)
            return kept

    def line(self, run: Run) -> RunLine:
        """The run in a line; the log of one that has ended is not read again."""
        with self._mutex:
            known, seq = self._lines.get(run.id), self.archive.last_seq(run.id)
            if known is not None and known.seq == seq and known.summary.status == "finished":
                return known
            kept = self.kept(run)
            line = RunLine(summary_of(self.archive, run, kept.log), sparkline(kept.trials), seq)
            self._lines[run.id] = line
            return line

    def evaluation(self, run: Run, number: int) -> Evaluated | None:
        """The whole evaluation of a proposal; None where it has none that can be read."""
        seq = self.kept(run).places.get(number)
        if seq is None:
            return None
        found = self.archive.events(run.id, skip_damaged=True, since=seq, until=seq + 1)
        return Evaluated.from_dict(found[0].data) if found else None

    def spent(self, run: Run) -> dict[str, Any] | None:
        """What the run's models were asked and cost; None for a run without models."""
        if not models_of(run).get("llm"):
            return None
        with self._mutex:
            return self.kept(run).spent()

    def last_events(self, run: Run, count: int) -> list[Event]:
        """The run's last events, newest first."""
        since = max(0, self.archive.last_seq(run.id) + 1 - count)
        return self.archive.events(run.id, skip_damaged=True, since=since)[::-1]

    def trial(self, run: Run, number: int) -> tuple[TrialDetail, Evaluated | None]:
        """One proposal of a run and its evaluation, None where it has none."""
        kept = self.kept(run)
        found = next((trial for trial in kept.trials if trial.number == number), None)
        if found is None:
            raise BadInput(f"run {run.id} has no proposal {number}")
        return found, self.evaluation(run, number)

    def program(self, key: str) -> Program | None:
        """A stored program; None where there is none."""
        return self.archive.find(key, Program) if key else None

    def task(self, key: str) -> Task | None:
        """A stored task; None where there is none."""
        return self.archive.find(key, Task)

    def archive_state(self) -> list[object]:
        """What tells that the list of runs is out of date: writes, and which of the latest runs a process works on."""
        latest = self.archive.latest_runs(10)
        return [self.archive.changes(), *(self.archive.is_locked(run.id) for run in latest)]

    def state(self, run: str) -> tuple[int, bool]:
        """(the seq of the run's last event, whether a process works on it): what tells that a page is out of date."""
        return self.archive.last_seq(run), self.archive.is_locked(run)
