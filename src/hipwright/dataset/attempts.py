"""The engine's programs for a task, in the order in which they are tried until one is verified.

Later ones give up generality (other sizes), memory traffic, fusion, and at last kernels of their own.
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

ENGINE_CHOICE = "the engine's own choice"
LIBRARY_ONLY = "the library alone"


@dataclass(frozen=True)
class EngineAttempt:
    """One way to write a task. by: the author, as rows record it; fixed: choices that its other schedules keep."""

    by: str
    graph: Graph
    fixed: Choices = field(default_factory=dict)

    def choices(self) -> Choices:
        """The engine's default choices with the fixed ones."""
        return {**default(space(self.graph), [], random.Random(0)), **self.fixed}

    def program(self) -> Program:
        """The program of these choices."""
        return write(self.graph, self.choices())


def engine_attempts(graph: Graph) -> Iterator[EngineAttempt]:
    """The engine's default first, then: for the captured sizes alone, which the program asserts; with float32 between
    kernels; without fusion; without fusion for the captured sizes. `library_attempt` is not among them.
    """
    static = specialise(graph) if graph.symbols else None
    exact: dict[str, Any] = {"wide": True} if "wide" in space(graph) else {}
    apart = {**exact, "fuse": False, **{key: "stored" for key in space(graph) if key.startswith("part:")}}
    yield EngineAttempt(ENGINE_CHOICE, graph)
    if static is not None:
        yield EngineAttempt(f"{ENGINE_CHOICE}, for the captured sizes alone", static)
    if exact:
        yield EngineAttempt(f"{ENGINE_CHOICE}, with float32 between kernels", graph, exact)
    yield EngineAttempt(f"{ENGINE_CHOICE}, without fusion", graph, apart)
    if static is not None:
        yield EngineAttempt(f"{ENGINE_CHOICE}, without fusion, for the captured sizes alone", static, apart)


def library_attempt(graph: Graph) -> EngineAttempt:
    """The last attempt: all operators are library calls, and the only kernels copy outputs."""
    return EngineAttempt(LIBRARY_ONLY, graph, {"library": True})
