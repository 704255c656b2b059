"""The state of lowering one graph: the values of its nodes, and everything that the plan needs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hipwright.capture.graph import Graph, Input, Meta
from hipwright.engine.ir.expr import weight
from hipwright.engine.ir.index import Ix, ix
from hipwright.engine.ir.sizes import SizeReader, evaluate
from hipwright.engine.knobs import EVERY_OPERATOR, GIVEN_UP, Choice
from hipwright.engine.lower.context import LoweringContext
from hipwright.engine.lower.values import LibraryCall, LoweredItem, Tensor
from hipwright.engine.partition.readers import reader_counts
from hipwright.engine.rewrite.loops.records import LoopBody


@dataclass(eq=False)
class PlanView:
    """A view made in the plan for a library call: `name = source` and an operation, such as `.permute(0, 1)`."""

    name: str
    source: str
    operation: str


@dataclass(eq=False)
class LoopCall(LibraryCall):
    """A loop of the plan. refs: {input of the body: the tensor that the plan hands to it}; read_by_kernels: those of
    these tensors that kernels of the body read, row by row.
    """

    body: LoopBody = field(kw_only=True)
    inner: Lowered = field(kw_only=True)
    read_by_kernels: set[str] = field(default_factory=set)


@dataclass(eq=False)
class Lowered:
    """A lowered graph: everything that the plan needs. metas, tensors: of tensors in memory by their names."""

    graph: Graph
    context: LoweringContext
    items: list[LoweredItem] = field(default_factory=list)
    calls: list[LibraryCall] = field(default_factory=list)
    views: list[PlanView] = field(default_factory=list)
    metas: dict[str, Meta] = field(default_factory=dict)
    tensors: dict[str, Input] = field(default_factory=dict)
    outputs: dict[str, str] = field(default_factory=dict)
    guards: list[str] = field(default_factory=list)  # of sizes, beside the graph's own
    written: dict[str, str] = field(default_factory=dict)  # node -> the buffer or input that takes its value
    packed: set[str] = field(default_factory=set)  # operands of library calls that are made of parameters alone
    in_hip: dict[str, str] = field(default_factory=dict)
    library: dict[str, str] = field(default_factory=dict)
    structure: dict[str, Choice] = field(default_factory=dict)  # library or template, per call

    def everywhere(self) -> list[Lowered]:
        """This graph and the bodies of its loops."""
        loops = [call for call in self.calls if isinstance(call, LoopCall)]
        return [self, *(one for call in loops for one in call.inner.everywhere())]


class LoweringState:
    """The values of one graph's nodes while it is lowered."""

    def __init__(self, graph: Graph, choices: Mapping[str, Any], outer: LoweringState | None = None) -> None:
        """outer: the state of the graph in which this one is a loop's body; sizes and names are common to both."""
        self.graph = graph
        self.choices = choices
        hints = {s.name: s.hint for s in graph.symbols} | (outer.c.hints if outer else {})
        self.reader: SizeReader = outer.reader if outer else SizeReader(list(hints), hints)
        self.c: LoweringContext = LoweringContext(self.reader, hints)
        self.c.names = outer.c.names if outer else self.c.names
        self.c.wide = bool(choices.get("wide", False))
        self.c.bit_ranks = bool(choices.get("bit_ranks", True))
        given_up = str(choices.get(GIVEN_UP, ""))
        self.library_only = bool(choices.get("library")) or given_up == EVERY_OPERATOR  # no operator becomes HIP
        self.given_up = frozenset(given_up.split(","))
        self.out = Lowered(graph, self.c)
        self.values: dict[str, Any] = {}
        self.reader_counts = reader_counts(graph)
        self.c.names |= {i.name for i in graph.inputs} | {s.name for s in graph.symbols}

    def element_weight(self, value: Tensor) -> int:
        """The weight (ir/expr.py) of computing an element of a value."""
        index = [ix(self.c.arena.var("p", s)) for s in value.shape]
        return weight([value.at(index)])

    def resolve(self, arg: Any) -> Any:
        """An argument with the values, sizes and numbers that its names stand for."""
        if isinstance(arg, dict):
            if "node" in arg:
                return self.values[arg["node"]]
            if "size" in arg:
                size = self.reader.read(arg["size"])
                return size.value if size.value is not None else self._hinted(size)
            if "float" in arg:
                return float(arg["float"])
            return complex(arg["complex"]) if "complex" in arg else arg.get("dtype")
        if isinstance(arg, (list, tuple)):
            return [self.resolve(a) for a in arg]
        return arg

    def _hinted(self, size: Ix) -> Ix:
        self.reader.evaluate_derived(self.c.hints)
        evaluate(size, self.c.hints)
        return size
