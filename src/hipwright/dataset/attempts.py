"""The engine's programs for a task in the order in which they are tried until one is verified.

Each rung gives something up: shapes, memory traffic, fusion, and at last the kernels themselves.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from hipwright.capture.graph import Graph
from hipwright.engine import space, write
from hipwright.engine.rewrite.specialise import specialise
from hipwright.records import Program
from hipwright.search.operators import Choices, default

OWN = "the engine's own choice"
LIBRARY = "the library alone"


@dataclass(frozen=True)
class Rung:
    """A way to write the task. by: who made the program, for its row; fixed: what its other schedules must keep."""

    by: str
    graph: Graph
    fixed: Choices = field(default_factory=dict)

    def choices(self) -> Choices:
        """The engine's own choices, but for what is fixed."""
        return {**default(space(self.graph), [], random.Random(0)), **self.fixed}

    def program(self) -> Program:
        """The program that these choices give."""
        return write(self.graph, self.choices())


def rungs(graph: Graph) -> Iterator[Rung]:
    """The engine's own choice first; then for the captured sizes alone, which the program says with `assert`; with
    float32 between the kernels; without fusion; without fusion for the captured sizes. None of the library alone."""
    static = specialise(graph) if graph.symbols else None
    exact: dict[str, Any] = {"wide": True} if "wide" in space(graph) else {}
    apart = {**exact, "fuse": False, **{key: "stored" for key in space(graph) if key.startswith("part:")}}
    yield Rung(OWN, graph)
    if static is not None:
        yield Rung(f"{OWN}, for the captured sizes alone", static)
    if exact:
        yield Rung(f"{OWN}, with float32 between kernels", graph, exact)
    yield Rung(f"{OWN}, without fusion", graph, apart)
    if static is not None:
        yield Rung(f"{OWN}, without fusion, for the captured sizes alone", static, apart)


def library(graph: Graph) -> Rung:
    """The last: every operator is PyTorch's, and the program has no kernel but what copies its outputs."""
    return Rung(LIBRARY, graph, {"library": True})
