"""Duplicates within one run of synthesis: by name, by canonical graph and by text (docs/hygiene.md)."""

from __future__ import annotations

from collections.abc import Sequence

from hipwright.synth.near_copies import NearCopyIndex
from hipwright.synth.records import SyntheticTask


class DuplicateFilter:
    """The tasks that were accepted so far; a call accepts one more task or returns what it duplicates."""

    def __init__(self, tasks: Sequence[SyntheticTask]) -> None:
        self._near_copies = NearCopyIndex()
        self._graphs = {task.graph: task.draft.name for task in tasks}
        self._names = {task.draft.name for task in tasks}
        for task in tasks:
            self._near_copies.add(task.draft.name, task.draft.source)

    def __call__(self, task: SyntheticTask) -> tuple[str, str] | None:
        """(stage, reason) of a duplicate; None when the task is accepted."""
        name = task.draft.name
        if name in self._names:
            return "duplicate", "a task of that name was taken"
        if (other := self._graphs.get(task.graph)) is not None:
            return "duplicate", f"the same graph as {other}"
        if (other := self._near_copies.add(name, task.draft.source)) is not None:
            return "near duplicate", f"nearly the text of {other}"
        self._names.add(name)
        self._graphs[task.graph] = name
        return None
