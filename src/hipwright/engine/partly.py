"""The engine where it cannot write a whole graph: the operators at which it fails stay library calls.

A fault of the engine's own, such as an exception in a lowering, must not leave a task without a program.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from hipwright.capture.graph import Graph
from hipwright.engine.authoring import Authored, author
from hipwright.engine.knobs import EVERY_OPERATOR, GIVEN_UP, PLAIN_PLAN

MOST = 4
"""Operators that are given up one by one before all are."""


@dataclass(frozen=True)
class PartlyAuthored:
    """What the engine can write of a graph. given_up: the choice's value, "" for the whole graph; why: its errors."""

    authored: Authored
    given_up: str = ""
    why: tuple[str, ...] = ()


def _told(error: Exception) -> str:
    """The error in a line, with its place, by which a report of it is of use."""
    place = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__} at {Path(place.filename).name}:{place.lineno}: {error}"[:200]


def author_partly(graph: Graph, write: Callable[..., Authored] = author) -> PartlyAuthored:
    """The engine's program by its own choices; with as few operators given up as bisection finds where it fails.

    Raises what the plan of library calls raises: a graph with an operator that a plan may not call.
    """
    errors: list[str] = []

    def tried(given_up: str) -> Authored | None:
        try:
            return write(graph, {GIVEN_UP: given_up} if given_up else {})
        except Exception as error:  # the engine's own fault, whatever it is
            errors.append(_told(error))
            return None

    if (whole := tried("")) is not None:
        return PartlyAuthored(whole)
    names = [n.name for n in graph.nodes if n.op != "getitem"]
    given: list[str] = []
    for _ in range(MOST):
        low, high = 0, len(names)
        while high - low > 1:
            middle = (low + high) // 2
            fits = tried(",".join([*given, *names[middle:]])) is not None
            low, high = (middle, high) if fits else (low, middle)
        given.append(names[low])
        if (found := tried(",".join(given))) is not None:
            return PartlyAuthored(found, ",".join(given), (errors[0],))
    if (found := tried(EVERY_OPERATOR)) is not None:
        return PartlyAuthored(found, EVERY_OPERATOR, (errors[0],))
    return PartlyAuthored(write(graph, {GIVEN_UP: PLAIN_PLAN}), PLAIN_PLAN, (errors[0],))
