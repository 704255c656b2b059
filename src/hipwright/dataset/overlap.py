"""Overlap: which tasks are copies, or near copies, of tasks held elsewhere (docs/hygiene.md).

Each task is opened in the sandbox and captured. Where that fails (Python that depends on values), the operators that it
executes stand for the graph, and where it cannot be opened at all, its text alone; `Overlap.weaker` names those.
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

from hipwright.errors import HipwrightError, InfrastructureError
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
WARM = ("torch", "hipwright.task.host.warm")


class Hit(Record, frozen=True, kw_only=True):
    """task is a copy of other. likeness: 0 to 1, by `how`:

    graph: the same computation at the same sizes; shapeless graph: but for sizes, widths and constants; steps: by what
    is computed from what in the captured graphs; operators: by the operators executed; text: as told by the text.
    """

    task: str
    other: str
    how: How
    likeness: float


class Print(Record, frozen=True, kw_only=True):
    """What a task is known by. "" and () where it could not be had; why: the reason.

    graph, shapeless: hashes; steps, text: what is computed from what; operators: those executed, in pairs and threes.
    """

    name: str
    graph: str = ""
    shapeless: str = ""
    steps: tuple[str, ...] = ()
    operators: tuple[str, ...] = ()
    text: tuple[str, ...] = ()
    why: str = ""


class Overlap(Record, frozen=True, kw_only=True):
    """hits: one for each pair of tasks, the strongest kind; tasks, others: how many were compared with how many.

    weaker: {file: why} for those that could not be captured, and were compared by their operators or text.
    """

    hits: tuple[Hit, ...]
    tasks: int
    others: int
    weaker: dict[str, str]

    @property
    def found(self) -> tuple[str, ...]:
        """The tasks to leave out."""
        return tuple(dict.fromkeys(hit.task for hit in self.hits))


def overlap(
    tasks: Mapping[str, str | SyntheticTask],
    against: Sequence[Path],
    *,
    workers: int = 1,
    unsafe: bool = False,
    threshold: float = THRESHOLD,
    listener: Listener = silent,
) -> Overlap:
    """Compare tasks ({name: source}) with all tasks of folders in the KernelBench form. BadInput for one without any.

    Without a folder: with each other, each with the earlier ones that are no copies themselves. There synthesised tasks
    are compared by the hash and the text that they bring, as when they were made: nothing is run.

    The listener is told "compared" {done, count, task}.
    """
    others = sources(against)
    own = {name: one.draft.source if against and isinstance(one, SyntheticTask) else one for name, one in tasks.items()}
    with Zygote(WARM, unsafe=unsafe, name="task host") as zygote:
        known = list(prints(others, zygote, workers=workers, listener=listener))
        mine = list(prints(own, zygote, workers=workers, listener=listener))
    weaker = {one.name: one.why for one in (*known, *mine) if one.why}
    if against:
        index = KnownPrints(known, threshold)
        hits = [hit for one in mine for hit in index.hits(one)]
    else:
        hits = repeated(mine, threshold)
    return Overlap(hits=tuple(hits), tasks=len(mine), others=len(known), weaker=weaker)


@contextmanager
def guard(
    against: Sequence[Path], *, workers: int = 1, unsafe: bool = False, listener: Listener = silent
) -> Iterator[Callable[[SyntheticTask], str]]:
    """Why a synthesised task is too close to one of the folders, or "": for synth.run.synthesise(overlaps=...)."""
    others = sources(against)
    with Zygote(WARM, unsafe=unsafe, name="task host") as zygote:
        index = KnownPrints(prints(others, zygote, workers=workers, listener=listener))
        yield partial(_objection, index, zygote)


def _objection(index: KnownPrints, zygote: Zygote, made: SyntheticTask) -> str:
    hits = index.hits(print_of_made(made))  # hashes and text are at hand; the graph is captured only if they are silent
    if not hits and "shapeless" not in made.provenance:
        hits = index.hits(print_of(made.draft.name, made.draft.source, zygote))
    if not hits:
        return ""
    return f"{hits[0].other} of the folder to keep away from: alike by {hits[0].how}, {hits[0].likeness:.2f}"


# ---------------------------------------------------------------- what tasks are known by


def sources(folders: Sequence[Path]) -> dict[str, str | HipwrightError]:
    """{name: text} of all tasks of folders; what cannot be read has its error. BadInput for a folder without any."""
    found: dict[str, str | HipwrightError] = {}
    for folder in folders:
        for task in find_tasks(folder):
            name = task.name if len(folders) == 1 else f"{folder.name}/{task.name}"
            try:
                found[name] = task.path.read_text(encoding="utf-8")
            except (OSError, UnicodeDecodeError) as error:
                found[name] = HipwrightError(f"it cannot be read: {error}")
    return found


def prints(
    tasks: Mapping[str, str | SyntheticTask | HipwrightError],
    zygote: Zygote,
    *,
    workers: int = 1,
    listener: Listener = silent,
) -> Iterator[Print]:
    """The print of each task, in order. Raises the infrastructure's errors."""
    with ThreadPoolExecutor(max_workers=workers, thread_name_prefix="overlap") as pool:
        made = pool.map(lambda item: print_of(item[0], item[1], zygote), tasks.items())
        for done, one in enumerate(made, 1):
            listener("compared", {"done": done, "count": len(tasks), "task": one.name})
            yield one


def print_of(name: str, source: str | SyntheticTask | HipwrightError, zygote: Zygote) -> Print:
    """Open one task and see what it is; by its text alone where that fails. Raises the infrastructure's errors."""
    if isinstance(source, SyntheticTask):
        return replace(print_of_made(source), name=name)
    if isinstance(source, HipwrightError):
        return Print(name=name, why=source.message)
    text = tuple(sorted(text_steps(source)))
    try:
        with TaskHandle(f"{Path(name).name}.py", source, zygote, LIMITS, TolerancePolicy()) as handle:
            return _opened(name, handle, text)
    except InfrastructureError:
        raise
    except HipwrightError as error:
        return Print(name=name, text=text, why=f"compared by its text alone: {error.message}")


def _opened(name: str, handle: TaskHandle, text: tuple[str, ...]) -> Print:
    first = handle.task.workloads[0].name
    operators = tuple(sorted(operator_steps([str(op["op"]) for op in handle.outline(first).ops])))
    try:
        graph = handle.capture(first)
    except InfrastructureError:
        raise
    except HipwrightError as error:
        return Print(name=name, operators=operators, text=text, why=f"compared by its operators: {error.message}")
    return print_of_graph(name, graph, operators=operators, text=text)


def print_of_graph(
    name: str, graph: Mapping[str, Any], *, operators: tuple[str, ...] = (), text: tuple[str, ...] = ()
) -> Print:
    """The print of a task whose captured graph is at hand."""
    return Print(
        name=name,
        graph=graph_hash(graph),
        shapeless=shapeless_hash(graph),
        steps=tuple(sorted(graph_steps(graph))),
        operators=operators,
        text=text,
    )


def print_of_made(made: SyntheticTask) -> Print:
    """What a synthesised task says of itself: the graph is not captured again."""
    shapeless = str(made.provenance.get("shapeless", ""))
    text = tuple(sorted(text_steps(made.draft.source)))
    return Print(name=made.draft.name, graph=made.graph, shapeless=shapeless, text=text)


def operator_steps(operators: Sequence[str]) -> frozenset[str]:
    """Executed operators by their bare names, alone and with the one before; views and allocations left out."""
    names = [name.strip("_") for op in operators if (name := base_name(op)) not in FREE]
    return counted([*names, *(f"{b} after {a}" for a, b in pairwise(names))])


# ---------------------------------------------------------------- comparing


class KnownPrints:
    """Prints to compare with. threshold: likeness from which steps, operators and texts make a near copy."""

    def __init__(self, prints: Iterable[Print], threshold: float = THRESHOLD) -> None:
        self._exact: dict[tuple[How, str], list[str]] = {}
        self._near: dict[How, NearCopyIndex] = {
            kind: NearCopyIndex(threshold) for kind in ("steps", "operators", "text")
        }
        self._captured: set[str] = set()
        for one in prints:
            self.add(one)

    def add(self, one: Print) -> None:
        """Compare with this one too."""
        for mark in _hashes(one):
            self._exact.setdefault(mark, []).append(one.name)
        for kind, steps in _told(one):
            self._near[kind].keep(one.name, steps)
        if one.steps:
            self._captured.add(one.name)

    def hits(self, one: Print) -> list[Hit]:
        """What it is a copy of, the strongest kind for each, the likest first."""
        found: dict[str, Hit] = {}
        for kind, other, likeness in self._all(one):
            found.setdefault(other, Hit(task=one.name, other=other, how=kind, likeness=round(likeness, 3)))
        return sorted(found.values(), key=lambda hit: (-hit.likeness, hit.other))

    def _all(self, one: Print) -> Iterator[tuple[How, str, float]]:
        for mark in _hashes(one):
            yield from ((mark[0], other, 1.0) for other in self._exact.get(mark, ()))
        for kind, steps in _told(one):
            for other, likeness in self._near[kind].find(steps):
                if kind != "operators" or not (one.steps and other in self._captured):  # two graphs tell more
                    yield kind, other, likeness


def _hashes(one: Print) -> list[tuple[How, str]]:
    marks: tuple[tuple[How, str], ...] = (("graph", one.graph), ("shapeless graph", one.shapeless))
    return [mark for mark in marks if mark[1]]


def _told(one: Print) -> list[tuple[How, frozenset[str]]]:
    told: tuple[tuple[How, tuple[str, ...]], ...] = (
        ("steps", one.steps),
        ("operators", one.operators),
        ("text", one.text),
    )
    return [(kind, frozenset(steps)) for kind, steps in told if steps]


def repeated(prints: Iterable[Print], threshold: float = THRESHOLD) -> list[Hit]:
    """Copies within one set: each task with the earlier ones that are kept."""
    known, found = KnownPrints((), threshold), []
    for one in prints:
        hits = known.hits(one)
        found += hits[:1]
        if not hits:
            known.add(one)
    return found
