"""The built-in engine on an open task: the captured graph, its choices, and the programs it writes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from hipwright.capture.graph import Graph
from hipwright.engine import explain, write
from hipwright.engine.authoring import Authored
from hipwright.engine.knobs import GIVEN_UP, PLAIN_PLAN
from hipwright.engine.partly import author_partly
from hipwright.engine.tuned import Tuned, TuningCache, estimated_on, tuned_of
from hipwright.machine import Workbench
from hipwright.records import Evaluation, Program
from hipwright.search import EngineSource
from hipwright.search.fallback import Fallback


@dataclass(frozen=True)
class TaskEngine:
    """The engine on one graph. source: proposes programs to a search; its `space` holds the choices."""

    graph: Graph
    authored: Authored  # by the engine's own choices
    source: EngineSource
    given_up: str = ""  # operators at which the engine failed, which stay library calls
    errors: tuple[str, ...] = ()

    def default(self) -> Program:
        """The program by the engine's own choices."""
        return self.authored.program

    def library_form(self) -> Program:
        """The module's own library calls, without kernels."""
        return write(self.graph, {GIVEN_UP: PLAIN_PLAN})

    def explanation(self, choices: Mapping[str, Any]) -> dict[str, Any]:
        """The kernels of the program by these choices, and the operators left to the library (`engine.explain`)."""
        return explain(self.graph, choices) if choices else self.authored.explanation

    def tuned(self, cache: TuningCache, bench: Workbench) -> Tuned | None:
        """The cached choices for this graph: measured on these GPUs, or estimated for the same AMD targets."""
        evaluator = bench.evaluator
        devices = [str(gpu.reference.info["name"]) for gpu in evaluator.gpus.values()]
        return cache.best(devices or [estimated_on(evaluator.amd)], self.graph, self.source.space)

    def remember(
        self, cache: TuningCache, choices: Mapping[str, Any], evaluation: Evaluation, evaluations: int
    ) -> Tuned | None:
        """Stores a confirmed winner's choices in the cache; None where the cache holds better ones."""
        found = tuned_of(self.graph, self.source.space, choices, evaluation, evaluations)
        return found if found is not None and cache.remember(found) else None


def captured_graph(bench: Workbench) -> Graph:
    """The graph of the task's first workload. Raises TaskError where it cannot be captured."""
    return Graph.from_dict(bench.handle.capture(bench.handle.task.workloads[0].name))


def task_engine(bench: Workbench) -> TaskEngine:
    """The engine on the task of a workbench."""
    graph = captured_graph(bench)
    made = author_partly(graph)
    fallback = Fallback(partial(explain, graph), [n.name for n in graph.nodes if n.op != "getitem"])
    base = {GIVEN_UP: made.given_up} if made.given_up else {}
    source = EngineSource(made.authored.space, partial(write, graph), fallback, base)
    return TaskEngine(graph, made.authored, source, made.given_up, made.why)
