"""Whether a run of nodes is a loop: what each argument of a step's nodes is, in every step alike.

An argument is a value of the same step, a value of a step before, a value from outside that is the same for all, or a
place of such a value along a dimension that moves by the same distance with every step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hipwright.capture.graph import Meta, Node, references, several
from hipwright.engine.rewrite.loops.repetition import LEAST_STEPS, Parts, PeriodicRun
from hipwright.engine.rewrite.steps import Steps

MOST_BACK = 8
"""Steps back that a step may read."""


@dataclass(frozen=True)
class Inside:
    """The value of the step's node number `node`."""

    node: int


@dataclass(frozen=True)
class Before:
    """The value of node number `node`, `back` steps before; `starts` is what the first `back` steps read, in order."""

    node: int
    back: int
    starts: tuple[str, ...] = ()


@dataclass(frozen=True)
class Outside:
    """A value that is the same for all steps."""

    name: str


@dataclass(frozen=True)
class Place:
    """Place number `by * k + first` (k from 0) along a dimension of a value from outside; example: that of step 0."""

    root: str
    dim: int
    by: int
    first: int
    example: str


Relation = Inside | Before | Outside | Place


@dataclass(frozen=True)
class Found:
    """A loop in a list of nodes. reads, numbers: for each node of a step, one entry for each that `parts` names;
    a number is (by, first).
    """

    first: int
    period: int
    steps: int
    reads: tuple[tuple[Relation, ...], ...]
    numbers: tuple[tuple[tuple[int, int], ...], ...]


class Relations:
    """Decides what the arguments of repeated nodes are."""

    def __init__(self, nodes: Sequence[Node], taken: Sequence[Parts], steps: Steps) -> None:
        """taken: the nodes taken apart; steps: which values of the graph are places of others."""
        self.nodes, self.taken, self.views = nodes, taken, steps
        self.place = {n.name: k for k, n in enumerate(nodes)}

    def loop(self, run: PeriodicRun, first: int) -> Found | None:
        """The loop of a run whose first step begins at node `first`; None where that is no loop of LEAST_STEPS."""
        steps = (run.first + run.count - first) // run.period
        if steps < LEAST_STEPS:
            return None
        reads: list[tuple[Relation, ...]] = []
        numbers: list[tuple[tuple[int, int], ...]] = []
        for node in range(run.period):
            row = [self.taken[first + k * run.period + node] for k in range(steps)]
            columns = [[p.reads[a] for p in row] for a in range(len(row[0].reads))]
            found = [self._relation(first, run.period, node, names) for names in columns]
            counts = [_affine([p.numbers[a] for p in row]) for a in range(len(row[0].numbers))]
            if any(r is None for r, _ in found) or any(by is None for by, _ in counts):
                return None
            reads.append(tuple(r for r, _ in found if r is not None))
            numbers.append(tuple(by for by, _ in counts if by is not None))
            steps = min([steps, *(n for _, n in found), *(n for _, n in counts)])
            if steps < LEAST_STEPS:
                return None
        return Found(first, run.period, steps, tuple(reads), tuple(numbers))

    def _relation(self, first: int, period: int, node: int, names: Sequence[str]) -> tuple[Relation | None, int]:
        """(what an argument of a node is, the number of steps from the first on for which that is so)."""
        later = self._of(first, period, MOST_BACK, names[MOST_BACK])
        if isinstance(later, Before):
            return self._handed(first, period, later, names)
        second = self._of(first, period, 1, names[1])
        relation: Relation | None = None if isinstance(second, Before) else second
        if isinstance(second, Outside) and len(set(names[:3])) > 1:
            return self._moving(first, names)
        if relation is None or (isinstance(relation, Inside) and self._of(first, period, 0, names[0]) != relation):
            return None, 0
        if isinstance(relation, Outside) and not self._single(relation.name):
            return None, 0
        for k in range(2, len(names)):
            if self._of(first, period, k, names[k]) != second:
                return relation, k
        return relation, len(names)

    def _handed(self, first: int, period: int, later: Before, names: Sequence[str]) -> tuple[Relation | None, int]:
        """(the relation of names that are a value of `later.back` steps before, the number of steps)."""
        starts = tuple(names[: later.back])
        if not all(self._starts(first, later.node, name) for name in starts):
            return None, 0
        relation = Before(later.node, later.back, starts)
        for k in range(later.back, len(names)):
            if self._of(first, period, k, names[k]) != later:
                return relation, k
        return relation, len(names)

    def _of(self, first: int, period: int, step: int, name: str) -> Relation | None:
        """What a name is to a step; None for a value of more than MOST_BACK steps before, or a later node."""
        at = self.place.get(name, -1)
        if at < first:
            return Outside(name)
        number, node = divmod(at - first, period)
        if number == step:
            return Inside(node)
        return Before(node, step - number) if 0 < step - number <= MOST_BACK and self._whole(self.nodes[at]) else None

    def _starts(self, first: int, node: int, name: str) -> bool:
        """Whether a value from outside may stand for a node's value of a step before."""
        given, wanted = self.views.known.get(name), self.nodes[first + node].outs[0]
        alike = given is not None and wanted is not None and _alike(given, wanted)
        return self.place.get(name, -1) < first and self._single(name) and alike

    def _moving(self, first: int, names: Sequence[str]) -> tuple[Relation | None, int]:
        """(the relation of names that are places of one value, the number of steps for which it holds)."""
        places = [self.views.of({"node": name}) if self.place.get(name, -1) < first else None for name in names]
        start = places[0]
        if start is None or places[1] is None:
            return None, 0
        if self.place.get(start.root, -1) >= first or not self._single(start.root):
            return None, 0
        by = places[1].number - start.number
        for k, found in enumerate(places):
            if found is None or (found.root, found.dim, found.number) != (start.root, start.dim, start.number + by * k):
                return Place(start.root, start.dim, by, start.number, names[0]), k
        return Place(start.root, start.dim, by, start.number, names[0]), len(names)

    def _single(self, name: str) -> bool:
        """Whether a value is one tensor, from whatever it comes."""
        at = self.place.get(name)
        return self.views.known.get(name) is not None and (at is None or self._whole(self.nodes[at]))

    def _whole(self, node: Node) -> bool:
        return not several(node) and node.outs[0] is not None


def _alike(a: Meta, b: Meta) -> bool:
    return a.dtype == b.dtype and a.shape == b.shape


def _affine(numbers: Sequence[int]) -> tuple[tuple[int, int] | None, int]:
    """((distance, first), the number of steps for which a number is first + distance * k)."""
    by = numbers[1] - numbers[0]
    for k, number in enumerate(numbers):
        if number != numbers[0] + by * k:
            return (by, numbers[0]), k
    return (by, numbers[0]), len(numbers)


def read_later(nodes: Sequence[Node], found: Found, returned: Sequence[str]) -> dict[int, set[int]]:
    """{node of a step: the steps whose value is read behind the loop}."""
    end = found.first + found.period * found.steps
    place = {n.name: k - found.first for k, n in enumerate(nodes[:end]) if k >= found.first}
    later: dict[int, set[int]] = {}
    arguments = [a for n in nodes[end:] for a in (*n.args, *n.kwargs.values())]
    for name in (*references(arguments), *returned):
        if name in place:
            step, node = divmod(place[name], found.period)
            later.setdefault(node, set()).add(step)
    return later


def single(nodes: Mapping[int, Node]) -> bool:
    """Whether all of some nodes give one tensor each."""
    return all(not several(n) and n.outs[0] is not None for n in nodes.values())
