"""Overlap: which tasks are copies, or near copies, of tasks elsewhere (docs/hygiene.md).

Each task is opened in the sandbox and captured. A task that cannot be captured is compared by the operators that it
executes, and one that cannot be opened by its text; `OverlapReport.weaker` names both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

from msgspec.structs import replace

from hipwright.errors import BadInput, HipwrightError, InfrastructureError
from hipwright.evaluation.suite import find_tasks
from hipwright.events import Listener, silent
from hipwright.measure.cost import FREE, base_name
from hipwright.records import Record, TolerancePolicy
from hipwright.sandbox import Limits, Zygote
from hipwright.synth.graphs.hash import counted, graph_hash, graph_steps, shapeless_hash
from hipwright.synth.near_copies import THRESHOLD, NearCopyIndex
from hipwright.synth.records import SyntheticTask
from hipwright.synth.text_steps import text_steps
from hipwright.task import TaskHandle

How = Literal["graph", "shapeless graph", "steps", "operators", "text"]

LIMITS = Limits(wall_s=60.0, memory_mb=8192)  # of one call to a task's host
ZYGOTE_IMPORTS = ("torch", "hipwright.task.host.warm")


class TaskMatch(Record, frozen=True, kw_only=True):
    """`task` is a copy or near copy of `other`. likeness: 0 to 1, by `how`:

    graph: equal graph hashes; shapeless graph: equal hashes without sizes, widths and constants; steps: steps of the
    captured graphs; operators: executed operators; text: steps read from the texts.
    """

    task: str
    other: str
    how: How
    likeness: float


class Fingerprint(Record, frozen=True, kw_only=True):
    """What tasks are compared by; "" and () for what is not available. why: the reason, where the graph is missing.

    graph, shapeless: hashes; steps, text: steps of the graph and of the text; operators: those executed, alone and in
    pairs.
    """

    name: str
    graph: str = ""
    shapeless: str = ""
    steps: tuple[str, ...] = ()
    operators: tuple[str, ...] = ()
    text: tuple[str, ...] = ()
    why: str = ""


class OverlapReport(Record, frozen=True, kw_only=True):
    """hits: for each pair of matching tasks, the strongest kind; tasks, others: how many were compared with how many.

    weaker: {task: reason} for those that could not be captured and were compared by their operators or text.
    """

    hits: tuple[TaskMatch, ...]
    tasks: int
    others: int
    weaker: dict[str, str]

    @property
    def found(self) -> tuple[str, ...]:
        """The tasks that match another, each once."""
        return tuple(dict.fromkeys(hit.task for hit in self.hits))


def overlap(
    tasks: Mapping[str, str | SyntheticTask],
    against: Sequence[Path],
    *,
    workers: int = 1,
    unsafe: bool = False,
    threshold: float = THRESHOLD,
    listener: Listener = silent,
) -> OverlapReport:
    """Compare tasks ({name: source}) with all tasks of folders in the KernelBench form.

    Without a folder, each task is compared with the earlier ones that are not copies themselves; synthetic tasks are
    then compared by their recorded hash and their text, without capture. Raises BadInput for a folder without tasks.
    Event for the listener: "compared" {done, count, task}.
    """
    others = read_sources(against)
    own = {name: one.draft.source if against and isinstance(one, SyntheticTask) else one for name, one in tasks.items()}
    with Zygote(ZYGOTE_IMPORTS, unsafe=unsafe, name="task host") as zygote:
        known = list(fingerprints(others, zygote, workers=workers, listener=listener))
        compared = list(fingerprints(own, zygote, workers=workers, listener=listener))
    weaker = {one.name: one.why for one in (*known, *compared) if one.why}
    if against:
        index = FingerprintIndex(known, threshold)
        hits = [hit for one in compared for hit in index.hits(one)]
    else:
        hits = duplicates(compared, threshold)
    return OverlapReport(hits=tuple(hits), tasks=len(compared), others=len(known), weaker=weaker)


@contextmanager
def overlap_check(
    against: Sequence[Path], *, workers: int = 1, unsafe: bool = False, listener: Listener = silent
) -> Iterator[Callable[[SyntheticTask], str]]:
    """A function from a synthetic task to why it is too close to one of the folders, or "" (synth.run.synthesise)."""
    others = read_sources(against)
    with Zygote(ZYGOTE_IMPORTS, unsafe=unsafe, name="task host") as zygote:
        index = FingerprintIndex(fingerprints(others, zygote, workers=workers, listener=listener))
        yield partial(_objection, index, zygote)


def _objection(index: FingerprintIndex, zygote: Zygote, task: SyntheticTask) -> str:
    hits = index.hits(fingerprint_of_synthetic(task))  # without capture
    if not hits and "shapeless" not in task.provenance:
        hits = index.hits(fingerprint(task.draft.name, task.draft.source, zygote))
    if not hits:
        return ""
    return f"{hits[0].other} of the folder to keep away from: alike by {hits[0].how}, {hits[0].likeness:.2f}"


# ---------------------------------------------------------------- fingerprints


def read_sources(folders: Sequence[Path]) -> dict[str, str | HipwrightError]:
    """{name: text, or the error of an unreadable file} of all tasks. Raises BadInput for a folder without tasks."""
    found: dict[str, str | HipwrightError] = {}
    for folder in folders:
        for task in find_tasks(folder):
            name = task.name if len(folders) == 1 else f"{folder.name}/{task.name}"
            try:
                found[name] = task.read()
            except BadInput as error:
                found[name] = HipwrightError(f"it cannot be read: {error.message}")
    return found


def fingerprints(
    tasks: Mapping[str, str | SyntheticTask | HipwrightError],
    zygote: Zygote,
    *,
    workers: int = 1,
    listener: Listener = silent,
) -> Iterator[Fingerprint]:
    """The fingerprint of each task, in order. Raises infrastructure errors."""
    with ThreadPoolExecutor(max_workers=workers, thread_name_prefix="overlap") as pool:
        found = pool.map(lambda item: fingerprint(item[0], item[1], zygote), tasks.items())
        for done, one in enumerate(found, 1):
            listener("compared", {"done": done, "count": len(tasks), "task": one.name})
            yield one


def fingerprint(name: str, source: str | SyntheticTask | HipwrightError, zygote: Zygote) -> Fingerprint:
    """The fingerprint of one task, which is opened in the sandbox. Raises infrastructure errors."""
    if isinstance(source, SyntheticTask):
        return replace(fingerprint_of_synthetic(source), name=name)
    if isinstance(source, HipwrightError):
        return Fingerprint(name=name, why=source.message)
    text = tuple(sorted(text_steps(source)))
    try:
        with TaskHandle(f"{Path(name).name}.py", source, zygote, LIMITS, TolerancePolicy()) as handle:
            return _opened(name, handle, text)
    except InfrastructureError:
        raise
    except HipwrightError as error:
        return Fingerprint(name=name, text=text, why=f"compared by its text alone: {error.message}")


def _opened(name: str, handle: TaskHandle, text: tuple[str, ...]) -> Fingerprint:
    first = handle.task.workloads[0].name
    operators = tuple(sorted(operator_steps([str(op["op"]) for op in handle.outline(first).ops])))
    try:
        graph = handle.capture(first)
    except InfrastructureError:
        raise
    except HipwrightError as error:
        return Fingerprint(name=name, operators=operators, text=text, why=f"compared by its operators: {error.message}")
    return fingerprint_of_graph(name, graph, operators=operators, text=text)


def fingerprint_of_graph(
    name: str, graph: Mapping[str, Any], *, operators: tuple[str, ...] = (), text: tuple[str, ...] = ()
) -> Fingerprint:
    """The fingerprint of a captured task."""
    return Fingerprint(
        name=name,
        graph=graph_hash(graph),
        shapeless=shapeless_hash(graph),
        steps=tuple(sorted(graph_steps(graph))),
        operators=operators,
        text=text,
    )


def fingerprint_of_synthetic(task: SyntheticTask) -> Fingerprint:
    """The fingerprint of a synthetic task by its record and its text, without capture."""
    shapeless = str(task.provenance.get("shapeless", ""))
    text = tuple(sorted(text_steps(task.draft.source)))
    return Fingerprint(name=task.draft.name, graph=task.graph, shapeless=shapeless, text=text)


def operator_steps(operators: Sequence[str]) -> frozenset[str]:
    """Executed operators by their bare names, alone and with the one before; without views and allocations."""
    names = [name.strip("_") for op in operators if (name := base_name(op)) not in FREE]
    return counted([*names, *(f"{b} after {a}" for a, b in pairwise(names))])


# ---------------------------------------------------------------- comparing


class FingerprintIndex:
    """Fingerprints to compare with. threshold: least likeness of near copies by steps, operators and texts."""

    def __init__(self, fingerprints: Iterable[Fingerprint], threshold: float = THRESHOLD) -> None:
        self._exact: dict[tuple[How, str], list[str]] = {}
        self._near: dict[How, NearCopyIndex] = {
            kind: NearCopyIndex(threshold) for kind in ("steps", "operators", "text")
        }
        self._captured: set[str] = set()
        for one in fingerprints:
            self.add(one)

    def add(self, one: Fingerprint) -> None:
        """Add a fingerprint."""
        for mark in _hashes(one):
            self._exact.setdefault(mark, []).append(one.name)
        for kind, steps in _step_sets(one):
            self._near[kind].keep(one.name, steps)
        if one.steps:
            self._captured.add(one.name)

    def hits(self, one: Fingerprint) -> list[TaskMatch]:
        """The tasks that a fingerprint matches, each by its strongest kind, in decreasing order of likeness."""
        found: dict[str, TaskMatch] = {}
        for kind, other, likeness in self._all(one):
            found.setdefault(other, TaskMatch(task=one.name, other=other, how=kind, likeness=round(likeness, 3)))
        return sorted(found.values(), key=lambda hit: (-hit.likeness, hit.other))

    def _all(self, one: Fingerprint) -> Iterator[tuple[How, str, float]]:
        for mark in _hashes(one):
            yield from ((mark[0], other, 1.0) for other in self._exact.get(mark, ()))
        for kind, steps in _step_sets(one):
            for other, likeness in self._near[kind].find(steps):
                # two captured tasks are compared by their graphs, not by executed operators
                if kind != "operators" or not (one.steps and other in self._captured):
                    yield kind, other, likeness


def _hashes(one: Fingerprint) -> list[tuple[How, str]]:
    marks: tuple[tuple[How, str], ...] = (("graph", one.graph), ("shapeless graph", one.shapeless))
    return [mark for mark in marks if mark[1]]


def _step_sets(one: Fingerprint) -> list[tuple[How, frozenset[str]]]:
    sets: tuple[tuple[How, tuple[str, ...]], ...] = (
        ("steps", one.steps),
        ("operators", one.operators),
        ("text", one.text),
    )
    return [(kind, frozenset(steps)) for kind, steps in sets if steps]


def duplicates(fingerprints: Iterable[Fingerprint], threshold: float = THRESHOLD) -> list[TaskMatch]:
    """Copies within one set: each task is compared with the earlier ones that are not copies themselves."""
    known, found = FingerprintIndex((), threshold), []
    for one in fingerprints:
        hits = known.hits(one)
        found += hits[:1]
        if not hits:
            known.add(one)
    return found
