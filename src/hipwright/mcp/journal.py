"""Stores the programs that a session judged in the archive, as a run of the task, for `best_program` and later
searches.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hipwright.archive import Archive, Evaluated, Finished, LogEntry, Proposed, as_stored, new_id, read_log
from hipwright.archive.summary import best_trial
from hipwright.errors import HipwrightError
from hipwright.records import Evaluation, Expansion, Program, Run, Task
from hipwright.search.interfaces import INFRASTRUCTURE

POLICY = "session"
"""The policy of such a run, which is no search, so there is nothing to resume."""


@dataclass
class Journal:
    """One run for each task that the session judged programs of; locked, and so `running`, until the session ends.

    home: the archive's folder or URL. One call at a time.
    """

    home: Path | str
    targets: Sequence[str]
    _stack: ExitStack = field(default_factory=ExitStack)
    _archive: Archive | None = None
    _runs: dict[str, tuple[str, int]] = field(default_factory=dict)  # task -> run, programs so far

    def add(self, task: Task, program: Program, evaluation: Evaluation) -> dict[str, Any]:
        """Stores a judged program: {"run", "number"}, or {"not_kept": why}.

        A failure of the archive does not affect the verdict.
        """
        if program.form != "program":
            return {"not_kept": "a ModelNew file is no program of the archive's"}
        stored = as_stored(evaluation)
        if stored.fault in INFRASTRUCTURE:
            return {"not_kept": f"nothing is known of the program: {stored.message or stored.status}"}
        try:
            return self._add(task, program, stored)
        except HipwrightError as error:
            return {"not_kept": error.message}

    def _add(self, task: Task, program: Program, evaluation: Evaluation) -> dict[str, Any]:
        archive = self._opened()
        run, number = self._runs.get(task.key) or (self._begin(archive, task), 0)
        proposed = Proposed(expansion=Expansion(number=number, operator="client"), round=number, program=program.key)
        entries = [
            LogEntry("proposed", number, proposed.to_dict()),
            LogEntry("evaluated", number, Evaluated(evaluation=evaluation).to_dict()),
        ]
        archive.append_all(run, entries, [program])
        self._runs[task.key] = run, number + 1
        return {"run": run, "number": number}

    def close(self) -> None:
        """Ends the runs with their best program and closes the archive. On failure they stay `interrupted`."""
        archive, self._archive = self._archive, None
        try:
            if archive is not None:
                for run, _ in self._runs.values():
                    archive.append(run, "finished", -1, _ending(archive, run).to_dict())
        except HipwrightError as error:
            print(f"the session's run could not be ended: {error.message}", file=sys.stderr)
        finally:
            self._runs.clear()
            self._stack.close()

    def _opened(self) -> Archive:
        if self._archive is None:
            self._archive = self._stack.enter_context(Archive(self.home))
        return self._archive

    def _begin(self, archive: Archive, task: Task) -> str:
        name = new_id()
        run = Run(id=name, task=task.key, targets=tuple(self.targets), budget=0, policy=POLICY, seed=0)
        self._stack.enter_context(archive.lock(name))
        archive.begin_run(run, {"task_name": task.name}, [task])
        return name


def _ending(archive: Archive, run: str) -> Finished:
    log = read_log(archive.events(run))
    number = best_trial(log)
    best = log.evaluated[number].evaluation if number is not None else None
    return Finished(
        reason="the client left",
        best=best.program if best else "",
        number=-1 if number is None else number,
        score=best.score if best else None,
        evaluations=len(log.evaluated),
        rounds=len(log.proposed),
    )
