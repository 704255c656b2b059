"""Runs of nodes that repeat: where a graph has one list of calls again and again.

A node's kind is its operator, its arguments without the values that it reads, and the shapes of its results. Numbers
that say which place of a dimension a view takes are left out too: they may count with the steps. A run of kinds with a
period is only a candidate; relations.py decides whether it is a loop.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hipwright.capture.graph import Input, Node, references, several
from hipwright.engine.rewrite.steps import WHOLE

LEAST_STEPS = 16
"""Steps from which on a loop is written as one."""
_MOST_PERIODS, _MOST_PERIOD = 24, 4096
_COUNTED = {"aten.select.int": (2,), "aten.slice.Tensor": (2, 3)}
"""Arguments of views that may count with the steps."""


@dataclass(frozen=True)
class Parts:
    """A node taken apart. kind: what must be the same in every step; reads: the values that it reads, in order;
    numbers: the arguments that may count with the steps.
    """

    kind: str
    reads: tuple[str, ...]
    numbers: tuple[int, ...]


@dataclass(frozen=True)
class PeriodicRun:
    """Nodes first, ..., first + count - 1, whose kinds have a period."""

    first: int
    count: int
    period: int


def counted(node: Node, place: int) -> bool:
    """Whether an argument is a number that may count with the steps."""
    value = node.args[place]
    return place in _COUNTED.get(node.op, ()) and type(value) is int and 0 <= value < WHOLE


def parts(node: Node, inputs: Mapping[str, Input]) -> Parts:
    """A node taken apart. Parameters and buffers are part of the kind: steps with other weights are other steps."""
    reads: list[str] = []
    numbers: list[int] = []

    def text(argument: Any) -> Any:
        if isinstance(argument, dict) and "node" in argument:
            name = argument["node"]
            reads.append(name)
            return f"<{name}>" if name in inputs and inputs[name].kind != "input" else "<>"
        return [text(a) for a in argument] if isinstance(argument, (list, tuple)) else repr(argument)

    shown = []
    for place, argument in enumerate(node.args):
        if counted(node, place):
            numbers.append(argument)
            shown.append("<number>")
        else:
            shown.append(text(argument))
    named = [(k, text(v)) for k, v in sorted(node.kwargs.items())]
    return Parts(repr((node.op, shown, named, node.outs)), tuple(reads), tuple(numbers))


def rebuilt(node: Node, reads: Sequence[Any], numbers: Sequence[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """(args, kwargs) of a node with other values and numbers, in the order of `parts`."""
    values, counts = iter(reads), iter(numbers)

    def of(argument: Any) -> Any:
        if isinstance(argument, dict) and "node" in argument:
            return next(values)
        return [of(a) for a in argument] if isinstance(argument, (list, tuple)) else argument

    args = tuple(next(counts) if counted(node, k) else of(a) for k, a in enumerate(node.args))
    return args, {k: of(v) for k, v in sorted(node.kwargs.items())}


def runs(kinds: Sequence[int]) -> list[PeriodicRun]:
    """Runs of at least LEAST_STEPS periods; the longest first, and of equally long ones the shortest period."""
    last: dict[int, int] = {}
    gaps: Counter[int] = Counter()
    for at, kind in enumerate(kinds):
        if kind in last:
            gaps[at - last[kind]] += 1
        last[kind] = at
    periods = [p for p, count in gaps.most_common() if count >= LEAST_STEPS - 1 and p <= _MOST_PERIOD]
    found: list[PeriodicRun] = []
    for period in sorted(periods[:_MOST_PERIODS]):
        start = 0
        for at in range(len(kinds) - period + 1):
            if at + period < len(kinds) and kinds[at] == kinds[at + period]:
                continue
            count = at - start + period
            if count >= LEAST_STEPS * period:
                found.append(PeriodicRun(start, count, period))
            start = at + 1
    return sorted(found, key=lambda r: (-r.count, r.period, r.first))


def cuts(nodes: Sequence[Node], place: Mapping[str, int], run: PeriodicRun) -> list[int]:
    """The places of the first period at which a step may begin: those that the fewest values cross come first."""
    first, period = run.first, run.period
    begin, end = first + 2 * period, first + 3 * period
    crossed = [0] * (period + 1)
    last: dict[int, int] = {}
    for at in range(first + period, min(first + run.count, end + 2 * period)):
        for name in references([*nodes[at].args, *nodes[at].kwargs.values()]):
            source = place.get(name, -1)
            if source >= first and at - source < 2 * period:
                last[source] = max(last.get(source, 0), at)
    for source, at in last.items():
        whole = not several(nodes[source])
        for cut in range(max(source + 1, begin), min(at, end - 1) + 1):
            crossed[cut - begin] += 1 if whole else len(nodes)
    order = sorted(range(period), key=lambda k: (crossed[k], k))
    return [first + k for k in order if crossed[k] < len(nodes)]
