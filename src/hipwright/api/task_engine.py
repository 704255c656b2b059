"""The built-in engine on an open task: the captured graph, its choices, and the programs it writes."""

from __future__ import annotations

import contextlib
from collections import OrderedDict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from hipwright.capture.graph import Graph
from hipwright.capture.random_operators import draws_numbers
from hipwright.engine.authoring import Authored, any_length, author, loop_steps
from hipwright.engine.knobs import CDNA4, DEFAULT, FLOAT8_UNITS, GIVEN_UP, PLAIN_PLAN, SPLIT, SPLIT_LDS
from hipwright.engine.partly import author_partly
from hipwright.engine.rewrite.loops.repetition import LEAST_STEPS
from hipwright.engine.templates.gemm.split_precision import STAGES, STAGES_LDS
from hipwright.engine.tuned import Tuned, TuningCache, estimated_on, tuned_of
from hipwright.errors import TaskError
from hipwright.events import doing
from hipwright.machine import Workbench
from hipwright.records import Evaluation, Program
from hipwright.search import EngineSource
from hipwright.search.fallback import Fallback
from hipwright.search.operators import complete
from hipwright.targets import CPU, GFX942, GFX950, NVIDIA, TARGETS
from hipwright.task.handle import TaskHandle
from hipwright.task.sizes import SharedSize

_KEPT = 8
"""Programs with what is known of them: a network's are some megabytes."""
_FEWER = 4
"""How many steps fewer than the length a loop may have."""
_MOST_ELEMENTS = 1 << 22
_LONG = 2000
"""Nodes from which on the graph may have been captured as long ones are: then so is the other."""
_LENGTHS = (19, 23, 29, 31, 37)


class KeptPrograms:
    """What the engine writes for one graph, the latest kept: one program is asked for by its text, by its kernels and
    once more where a run ends, and a deep network's takes seconds.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self._kept: OrderedDict[bytes, Authored] = OrderedDict()

    def authored(self, choices: Mapping[str, Any]) -> Authored:
        """As `engine.author` of the graph."""
        key = msgspec.json.encode(choices, order="sorted")
        made = self._kept.pop(key, None) or author(self.graph, choices)
        self.keep(choices, made)
        return made

    def keep(self, choices: Mapping[str, Any], made: Authored) -> None:
        """Keeps what was written by these choices."""
        self._kept[msgspec.json.encode(choices, order="sorted")] = made
        while len(self._kept) > _KEPT:
            self._kept.popitem(last=False)

    def write(self, choices: Mapping[str, Any]) -> Program:
        """The program by these choices."""
        return self.authored(choices).program

    def explain(self, choices: Mapping[str, Any]) -> dict[str, Any]:
        """What became of each operator of the graph by these choices (`Authored.explanation`)."""
        return self.authored(choices).explanation


@dataclass(frozen=True)
class TaskEngine:
    """The engine on one graph. source: proposes programs to a search; its `space` holds the choices."""

    graph: Graph
    authored: Authored  # by the engine's own choices
    source: EngineSource
    programs: KeptPrograms
    given_up: str = ""  # operators at which the engine failed, which stay library calls
    errors: tuple[str, ...] = ()

    def default(self) -> Program:
        """The program by the engine's own choices."""
        return self.authored.program

    def library_form(self) -> Program | None:
        """The module's own library calls, without kernels; None where the engine fails at that too."""
        with contextlib.suppress(Exception):
            return self.programs.write({GIVEN_UP: PLAIN_PLAN})
        return None

    def explanation(self, choices: Mapping[str, Any]) -> dict[str, Any]:
        """The kernels of the program by these choices, and the operators left to the library (`engine.explain`)."""
        return self.programs.explain(choices) if choices else self.authored.explanation

    def tuned(self, cache: TuningCache, bench: Workbench) -> Tuned | None:
        """The cached choices for this graph: measured on these GPUs, or estimated for the same AMD targets."""
        evaluator = bench.evaluator
        devices = list(evaluator.device_names.values())
        return cache.best(devices or [estimated_on(evaluator.amd)], self.graph, self.source.space)

    def remember(
        self, cache: TuningCache, choices: Mapping[str, Any], evaluation: Evaluation, evaluations: int
    ) -> Tuned | None:
        """Stores a confirmed winner's choices in the cache; None where the cache holds better ones."""
        found = tuned_of(self.graph, self.source.space, choices, evaluation, evaluations)
        return found if found is not None and cache.remember(found) else None


def captured_graph(bench: Workbench) -> Graph:
    """The graph of the task's first workload. Raises TaskError where it cannot be captured, and where it draws numbers
    that the generator does not show."""
    doing("capturing the graph")
    graph = Graph.from_dict(bench.handle.capture(bench.handle.task.workloads[0].name))
    drawing = next((node.op for node in graph.nodes if draws_numbers(node)), None)
    if drawing is not None and not bench.evaluator.oracle.side_effects.draws:
        raise TaskError(
            f"{drawing} draws from a generator that the forward seeds and puts back: no program draws the same numbers",
            hint="draw from torch's generator as it is, or take the numbers as an input",
        )
    return with_another_length(bench.handle, graph)


def task_engine(bench: Workbench) -> TaskEngine:
    """The engine on the task of a workbench."""
    graph = captured_graph(bench)
    doing("writing the first program")
    measured = measured_choices(bench.evaluator.targets, bench.evaluator.architectures)
    made = author_partly(graph, lambda graph, choices: author(graph, {**measured, **choices}))
    base = {**measured, **({GIVEN_UP: made.given_up} if made.given_up else {})}
    programs = KeptPrograms(graph)
    programs.keep(complete(made.authored.space, base), made.authored)  # defaults that are named are those of no choice
    fallback = Fallback(programs.explain, [n.name for n in graph.nodes if n.op != "getitem"], made.given_up)
    source = EngineSource(made.authored.space, programs.write, fallback, base)
    return TaskEngine(graph, made.authored, source, programs, made.given_up, made.why)


def measured_choices(targets: Collection[str], gpus: Mapping[str, str]) -> dict[str, Any]:
    """Choices of programs for GPUs on which they are measured: split products, and their stages in LDS; and of programs
    for gfx950 alone, which no measurement stands behind.

    Every target of the run must be a GPU at hand with an architecture of NVIDIA's and the LDS for three stages; or be
    gfx950, simulated or not, or the processor. Where they are gfx942 too, templates know that all GPUs multiply 8-bit
    floats.

    targets: of the run; gpus: the architectures of the GPUs at hand, by target.
    """
    architectures = _architectures(targets, gpus)
    if architectures and architectures <= {GFX942.name, GFX950.name}:
        units = {FLOAT8_UNITS: ",".join(sorted(architectures))}
        return units | ({CDNA4: True} if architectures == {GFX950.name} else {})
    if set(targets) != set(gpus):
        return {}
    known = [TARGETS.architecture(name) for name in gpus.values()]
    enough = all(one and one.vendor == NVIDIA and one.lds_per_block >= STAGES_LDS[3] for one in known)
    if not enough:
        return {}
    return {SPLIT: True, f"{DEFAULT}{STAGES}": 3, SPLIT_LDS: min(one.lds_per_block for one in known if one)}


def _architectures(targets: Collection[str], gpus: Mapping[str, str]) -> set[str]:
    """The architectures of a run's targets, the processor left out; "" for a GPU that nothing is known of."""
    found = {name: {one.name for one in TARGETS[name].architectures} for name in targets if name != CPU.name}
    found |= {name: {one} for name, one in gpus.items()}
    return set().union(*(one or {""} for one in found.values()))


def with_another_length(handle: TaskHandle, graph: Graph) -> Graph:
    """The graph with the task's graph at another length of its loops, where the two agree; else the graph itself.

    Tried where a loop has about as many steps as a size of the inputs that the reference lets change.
    """
    try:
        steps = loop_steps(graph)
    except Exception:  # the engine's own fault, whatever it is: `author_partly` deals with it
        return graph
    if not steps:
        return graph
    given, symbols = handle.free_sizes()
    taken = {size for shape in given for size in shape}
    for symbol in symbols:
        if not any(0 <= symbol.size - count <= _FEWER for count in steps):
            continue
        length = next((n for n in _LENGTHS if n not in taken and n >= LEAST_STEPS + _FEWER - 1), None)
        for long in (0, None) if len(graph.nodes) >= _LONG else (None,):
            other = _captured_at(handle, given, symbol, length, long) if length is not None else None
            if other is not None and any_length(made := msgspec.structs.replace(graph, again=other)):
                return made
    return graph


def _captured_at(
    handle: TaskHandle, given: Sequence[Sequence[int]], symbol: SharedSize, length: int, long: int | None
) -> Graph | None:
    """The task's graph where one of its sizes is another; None where the reference or the capture refuses it."""
    shapes = [list(shape) for shape in given]
    for leaf, dim in symbol.places:
        shapes[leaf][dim] = length
    workload, _ = handle.at(tuple(tuple(shape) for shape in shapes), _MOST_ELEMENTS)
    if workload is None:
        return None
    try:
        return Graph.from_dict(handle.capture(workload.name, long=long))
    except TaskError:
        return None
