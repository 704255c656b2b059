"""The engine as an author: a program for a graph, what else may be chosen, and what became of each operator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from hipwright.capture.graph import Graph, short
from hipwright.engine.assembly import ProgramAssembly
from hipwright.engine.ir.expr import COMPUTE
from hipwright.engine.ir.sizes import SizeNotSupported
from hipwright.engine.knobs import EVERY_OPERATOR, GIVEN_UP, OTHER_SIZES, PLAIN_PLAN, Choice, Value
from hipwright.engine.plan.library import library_program
from hipwright.engine.rewrite.attention import attention
from hipwright.engine.rewrite.complex_parts import complex_parts
from hipwright.engine.rewrite.forms.distances import distances
from hipwright.engine.rewrite.forms.equations import equations
from hipwright.engine.rewrite.forms.flat_convolutions import flat_convolutions
from hipwright.engine.rewrite.forms.last_products import last_products
from hipwright.engine.rewrite.forms.padded_channels import padded_channels
from hipwright.engine.rewrite.growing import growing
from hipwright.engine.rewrite.library_epilogues import library_epilogues
from hipwright.engine.rewrite.loops.freed import freed
from hipwright.engine.rewrite.loops.records import LOOP, body_of
from hipwright.engine.rewrite.loops.rolled import looped
from hipwright.engine.rewrite.padded_products import padded_products
from hipwright.engine.rewrite.pinned_sizes import pinned
from hipwright.engine.rewrite.pure_draws import pure_draws
from hipwright.engine.rewrite.rolled_loops import unrolled
from hipwright.engine.rewrite.row_runs import row_runs
from hipwright.engine.rewrite.specialise import specialise
from hipwright.engine.rewrite.summed_products import summed_products
from hipwright.engine.rewrite.window_products import window_products
from hipwright.records import Program


@dataclass(frozen=True)
class Authored:
    """A program and what its author knows of it.

    space: what may vary beside the given choices, by stable keys. explanation: {"kernels": [{name, nodes, mapping}],
    "library": {node: {op, reason}}, "in_hip": n, "nodes": n, "static": bool}, where a kernel's `nodes` are the
    operators that it fuses and `reason` says why an operator stayed a library call.
    """

    program: Program
    space: dict[str, Choice]
    explanation: dict[str, Any]


def author(graph: Graph, choices: Mapping[str, Value] | None = None) -> Authored:
    """Write a program for the graph. Pure and deterministic; choices that do not apply are ignored.

    Where a symbolic size is not supported, the program is written for the captured sizes and guards them. The choice
    "exact" decides whether kernels have static-shape variants: by default where the graph's tensors have
    plan.static_shapes.ENOUGH_ELEMENTS.
    """
    choices = choices or {}
    given_up = str(choices.get(GIVEN_UP, "")).split(",")
    if OTHER_SIZES in given_up:
        names = ",".join(name for name in given_up if name != OTHER_SIZES)
        return author(msgspec.structs.replace(specialise(graph), again=None), {**choices, GIVEN_UP: names})
    if choices.get(GIVEN_UP) == PLAIN_PLAN or _keeps_foreign_state(graph):
        return _without_lowering(graph)
    generic, fixed, rolled, structure = _rewritten(graph, choices)
    short_graph, loops = looped(rolled, choices)
    free = _any_length(graph, short_graph, choices)
    try:
        made = ProgramAssembly(free or short_graph, choices)
    except SizeNotSupported:
        if free is not None:
            return author(msgspec.structs.replace(graph, again=None), choices)
        if not rolled.symbols:
            raise
        short_graph, loops = looped(specialise(rolled), choices)
        made = ProgramAssembly(short_graph, choices)
    structure |= loops
    plan = ""
    if fixed is not generic and made.library_only and not _pads_heads(rolled):
        plan = _library_plan(generic, choices)
    return Authored(made.program(plan), made.space(structure), made.explanation())


def _keeps_foreign_state(graph: Graph) -> bool:
    """Whether the module writes a buffer of a dtype that no kernel writes."""
    written = {mutation.access for mutation in graph.mutations}
    return any(tensor.access in written and tensor.meta.dtype not in COMPUTE for tensor in graph.inputs)


def loop_steps(graph: Graph) -> set[int]:
    """How many steps the loops of a graph have, by the engine's own choices."""
    rolled, _ = looped(_rewritten(graph, {})[2], {})
    bodies = [body for n in rolled.nodes if (body := body_of(n)) is not None]
    return {body.steps for body in bodies if isinstance(body.steps, int)}


def any_length(graph: Graph) -> bool:
    """Whether the program of a graph captured at two lengths serves every length, by the engine's own choices."""
    return _any_length(graph, looped(_rewritten(graph, {})[2], {})[0], {}) is not None


def _any_length(graph: Graph, short_graph: Graph, choices: Mapping[str, Value]) -> Graph | None:
    """The graph with the length of its loops as a size, where the capture at another length agrees; else None."""
    if graph.again is None or not any(n.op == LOOP for n in short_graph.nodes):
        return None
    other, _ = looped(_rewritten(graph.again, choices)[2], choices, always=True)
    return freed(short_graph, other)


def _without_lowering(graph: Graph) -> Authored:
    """The plan of library calls, with nothing to choose."""
    library = {n.name: {"op": n.op, "reason": "given up"} for n in graph.nodes if n.op != "getitem"}
    explanation = {"kernels": [], "library": library, "in_hip": 0, "nodes": len(library), "static": not graph.symbols}
    return Authored(library_program(graph), {}, explanation)


def _rewritten(graph: Graph, choices: Mapping[str, Value]) -> tuple[Graph, Graph, Graph, dict[str, Choice]]:
    """(with attention, with sizes fixed, with loops, the choices offered): the engine's own operators where chosen.

    Those are left out where one of them, or an operator that they stand for, is given up: they have no library form.
    """
    given_up = str(choices.get(GIVEN_UP, "")).split(",")
    while True:
        generic, structure = attention(graph, choices)
        generic, draws = pure_draws(generic, choices)
        generic, parts = complex_parts(generic, choices)
        generic, roots = distances(growing(generic), choices)
        generic, written = equations(generic, choices)
        generic, windows = window_products(generic, choices)
        generic, images = flat_convolutions(generic, choices)
        generic, filled = padded_channels(generic, choices)
        generic, rows = last_products(generic, choices)
        generic, epilogues = library_epilogues(generic, choices)
        generic, pads = padded_products(generic, choices)
        fixed = pinned(generic)
        rolled, loops = unrolled(fixed, choices)
        rolled, joined = summed_products(rolled, choices)
        rolled, runs = row_runs(rolled, choices)
        ops = {n.name: n.op for n in rolled.nodes}
        own = any(
            n.name in given_up and ops.get(n.name, "hip.").startswith("hip.") for n in (*graph.nodes, *rolled.nodes)
        )
        if choices.get("library") or not (own or EVERY_OPERATOR in given_up):
            return (
                generic,
                fixed,
                rolled,
                {
                    **loops,
                    **joined,
                    **runs,
                    **draws,
                    **parts,
                    **roots,
                    **written,
                    **windows,
                    **images,
                    **filled,
                    **rows,
                    **epilogues,
                    **pads,
                    **structure,
                },
            )
        choices = {"library": True}


def _pads_heads(graph: Graph) -> bool:
    """Whether the library pads attention heads: on a GPU it returns outputs with gaps between rows, where the size of a
    head is no multiple of 8.
    """
    calls = [n for n in graph.nodes if short(n.op) == "scaled_dot_product_attention"]
    return any(out is not None and out.dtype in ("float16", "bfloat16") for n in calls for out in n.outs)


def _library_plan(graph: Graph, choices: Mapping[str, Value]) -> str:
    """The plan of a graph of library calls for every size; "" where it needs kernels or a size is not supported."""
    try:
        made = ProgramAssembly(looped(unrolled(graph, choices)[0], choices)[0], choices)
    except SizeNotSupported:
        return ""
    return made.plan if made.library_only else ""
