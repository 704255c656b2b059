"""The engine's face: write a program for a graph, say what may vary, explain what became of each node."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from hipwright.capture.graph import Graph, short
from hipwright.engine.emit.device_code import closure, device_code
from hipwright.engine.fuse.column_reductions import crossed
from hipwright.engine.fuse.groups import Group, collapse
from hipwright.engine.fuse.joined_parts import parts_of
from hipwright.engine.fuse.recompute import recompute
from hipwright.engine.fuse.schedule import Scheduler
from hipwright.engine.fuse.split_dims import unfold
from hipwright.engine.ir.index import ZERO, Ix, product
from hipwright.engine.knobs import Choice, Value
from hipwright.engine.layout.decisions import Decisions
from hipwright.engine.layout.pointwise import FEW_COLUMNS, SMALL, PointwisePlanner, ScanPlanner
from hipwright.engine.layout.rows import RowPlanner
from hipwright.engine.lower.core import LibraryCall, LoweringContext
from hipwright.engine.partition.lowering import Lowering
from hipwright.engine.partition.state import Lowered, PlanView
from hipwright.engine.plan.exact import ENOUGH_ELEMENTS
from hipwright.engine.plan.in_place import Spare, Spares, homes
from hipwright.engine.plan.naming import KernelNames
from hipwright.engine.plan.streaming import (
    KEEP,
    PACKED,
    keeps,
    offered,
    reads_only,
    streaming,
    streaming_uses,
    usual,
)
from hipwright.engine.plan.writer import PlanStep, PlanWriter, order
from hipwright.engine.rewrite.attention import attention
from hipwright.engine.rewrite.pinned_sizes import pinned
from hipwright.engine.rewrite.rolled_loops import unrolled
from hipwright.engine.rewrite.specialise import specialise
from hipwright.engine.templates.base import Body, EmittedKernel, Need, by_reciprocals, fused
from hipwright.engine.templates.call import CallBody, TemplateOptions
from hipwright.engine.templates.pointwise.elementwise import elementwise
from hipwright.engine.templates.pointwise.inner import inner
from hipwright.engine.templates.pointwise.rows import plain_rows
from hipwright.engine.templates.pointwise.sliding import sliding
from hipwright.engine.templates.pointwise.transpose import transpose
from hipwright.engine.templates.rows.kernel import rows
from hipwright.engine.templates.scan.rows import scan
from hipwright.records import Program


def write(graph: Graph, choices: Mapping[str, Value] | None = None) -> Program:
    """A program for the graph. Pure and deterministic; choices that do not apply are ignored.

    When a symbolic size cannot be handled, the program is written for the captured sizes and guards them. The choice
    "exact" decides whether kernels have twins for the captured sizes (hipwright.engine.plan.exact): by default where
    the graph's tensors have ENOUGH_ELEMENTS.
    """
    return _built(graph, choices or {}).program()


def space(graph: Graph) -> dict[str, Choice]:
    """What search may vary for this graph; keys are stable."""
    return _built(graph, {}).space()


def explain(graph: Graph, choices: Mapping[str, Value] | None = None) -> dict[str, Any]:
    """{"kernels": [{name, nodes, mapping}], "library": {node: {op, reason}}, "in_hip": n, "nodes": n, "static": bool}.

    `nodes` of a kernel are the operators it fuses; `reason` says why an operator stayed a library call.
    """
    return _built(graph, choices or {}).explain()


def _built(graph: Graph, choices: Mapping[str, Value]) -> _Builder:
    graph, fused_attention = attention(graph, choices)
    free, fixed = graph, pinned(graph)
    graph, structure = unrolled(fixed, choices)
    try:
        builder = _Builder(graph, choices)
        builder.build()
    except (ValueError, KeyError, ZeroDivisionError):
        if not graph.symbols:
            raise
        builder = _Builder(specialise(graph), choices)
        builder.build()
    builder.decisions.structure |= structure | fused_attention
    if fixed is not free and not builder.kernels and not _padded_attention(graph):
        builder.plan = _unfixed(free, choices) or builder.plan
    return builder


def _padded_attention(graph: Graph) -> bool:
    """Does the library pad heads that are no multiple of 8? On a GPU it then returns outputs with gaps between rows."""
    calls = [n for n in graph.nodes if short(n.op) == "scaled_dot_product_attention"]
    return any(out is not None and out.dtype in ("float16", "bfloat16") for n in calls for out in n.outs)


def _unfixed(graph: Graph, choices: Mapping[str, Value]) -> str:
    """The plan of a graph that is the library's alone, for every size; "" where it cannot be written for one."""
    builder = _Builder(unrolled(graph, choices)[0], choices)
    try:
        builder.build()
    except (ValueError, KeyError, ZeroDivisionError):
        return ""
    return "" if builder.kernels else builder.plan


class _Builder:
    """One graph with one set of choices."""

    def __init__(self, graph: Graph, choices: Mapping[str, Value]) -> None:
        self.graph = graph
        self.choices = choices
        self.decisions = Decisions(choices)
        self.kernels: list[tuple[EmittedKernel, Group, str]] = []
        self.names = KernelNames()
        self.plan = ""
        self.helpers = ""  # device functions that the kernels call
        self._replacing = 0  # kernels that write over what they read

    def build(self) -> None:
        """Lower, group, write kernels and plan."""
        lowered = self.lowered = Lowering(self.graph, self.choices).run()
        c = lowered.context
        external = {o: set(call.refs.values()) for call in lowered.calls for o in call.outputs}
        external |= {v.name: {v.source} for v in lowered.views}
        scheduler = Scheduler(c, external, bool(self.choices.get("fuse", True)), self.decisions.part)
        for item in list(lowered.items):  # the scheduler may make some
            scheduler.add(item)
        recompute(scheduler, lowered.outputs.values(), self.decisions.again)
        crossed(scheduler, self.decisions.crossed)
        writer = PlanWriter(lowered, self.graph.parameters, self.names.twin if self._exact(lowered) else None)
        steps = self._steps(lowered, scheduler)
        stored = self._stored(lowered, scheduler, steps)
        read = {r for s in steps if isinstance(s.what, Group) for r in s.reads}
        writer.inputs(read)
        ordered = order(steps)
        spares = Spares(lowered, ordered)
        for step in ordered:
            if isinstance(step.what, LibraryCall):
                writer.call(step.what, read)
            elif isinstance(step.what, PlanView):
                writer.view(step.what)
            else:
                self._kernel(c, lowered, step.what, stored, writer, spares.of(step) if self._in_place else {})
        self.plan = writer.finish()
        used = {use for kernel, _, _ in self.kernels for use in kernel.used}
        how = self._stream(c, lowered, closure(used))
        self.helpers = device_code(used | streaming_uses(how), streaming(how))

    def _stream(self, c: LoweringContext, lowered: Lowered, used: Collection[tuple[str, str]]) -> str:
        """What leaves the caches first: the value of the choice `stream`. used: the program's device functions."""
        numels, dtypes = self._numels(lowered), self._dtypes(lowered)
        keeping = [k for k, _, _ in self.kernels if keeps(c, k, numels, dtypes)]
        packed = PACKED if offered(c, used, numels.values()) else PACKED[:1]
        options = (*packed, KEEP) if keeping else packed
        if len(options) == 1:
            return PACKED[0]
        over = bool(self._replacing) and self._replacing == len(self.kernels)
        only = reads_only(c, [k for k, _, _ in self.kernels], numels, dtypes)
        how = str(self.decisions.choose("stream", options, usual(options, over=over, reads_only=only)))
        for kernel in keeping if how == KEEP else ():
            if kernel.function is not None:
                kernel.function.keep_reads = True
        return how

    def _exact(self, lowered: Lowered) -> bool:
        """Shall kernels have twins that know the captured sizes? Nothing to search for, so not in `space`."""
        elements = sum(lowered.context.hint(n) for n in self._numels(lowered).values())
        return bool(self.graph.symbols) and bool(self.choices.get("exact", elements >= ENOUGH_ELEMENTS))

    @property
    def _in_place(self) -> bool:
        """May kernels write over what nobody reads after them? Nothing to search for, so not in `space`."""
        return bool(self.choices.get("in_place", True))

    def _steps(self, lowered: Lowered, scheduler: Scheduler) -> list[PlanStep]:
        steps: list[PlanStep] = []
        for group in scheduler.groups:
            reads = {r for item in group.items for r in scheduler.reads[item.name]}
            steps.append(PlanStep(group, reads, {i.name for i in group.items}, len(steps)))
        for call in lowered.calls:
            steps.append(PlanStep(call, set(call.refs.values()), set(call.outputs), len(steps)))
        for view in lowered.views:
            steps.append(PlanStep(view, {view.source}, {view.name}, len(steps)))
        for group in scheduler.groups:  # a buffer is overwritten after everyone has read it
            for item in group.items:
                if item.target:
                    writer = next(s for s in steps if s.what is group)
                    writer.waits |= {s.number for s in steps if item.target in s.reads and s.what is not group}
        return steps

    def _stored(self, lowered: Lowered, scheduler: Scheduler, steps: list[PlanStep]) -> set[str]:
        """Items that must reach memory: read by another step, returned, or kept in a module buffer."""
        wanted = set(lowered.outputs.values())
        for step in steps:
            for name in step.reads:
                home = scheduler.home.get(name)
                if home is not None and home is not step.what:
                    wanted.add(name)
        return wanted | {i.name for i in lowered.items if i.target}

    def _call(self, c: Any, lowered: Lowered, group: Group, stored: set[str], writer: PlanWriter) -> None:
        """The kernels of a call template, with the pointwise operators behind it."""
        items = [i for i in group.items if i.name in stored]
        if any(ZERO in i.shape for i in items):  # nothing to compute, ever
            for item in items:
                writer.allocate(item.name, item.shape, item.dtype)
            return
        if not items:
            return
        need = Need(
            {i.name: (i.target or i.name, i.dtype) for i in items}, self._dtypes(lowered), self._numels(lowered)
        )
        options = TemplateOptions(self.decisions.choose, self.decisions.own_knob)
        body = CallBody(c, group, self.names.kernel(lowered, group), need, options)
        offer = body.placed.offer
        kernels = offer.write(body)
        writer.limits += body.limits()
        allocate = {i.name: (i.shape, i.dtype) for i in items if not i.target}
        allocate |= {name: (t.shape, t.dtype) for name, t in body.temporaries.items()}
        self.kernels += [(kernel, group, f"call:{offer.name}") for kernel in kernels]
        writer.launches(kernels, allocate, {name for name, t in body.temporaries.items() if t.zero})

    def _kernel(
        self,
        c: Any,
        lowered: Lowered,
        group: Group,
        stored: set[str],
        writer: PlanWriter,
        spares: Mapping[str, Spare],
    ) -> None:
        if group.kind == "call":
            self._call(c, lowered, group, stored, writer)
            return
        members = {m.item.name: m for m in group.members if m.item.name in stored}
        if not members:
            return
        if ZERO in group.outer:  # nothing to compute, ever
            for name, member in members.items():
                writer.allocate(name, member.item.shape, member.item.dtype)
            return
        group.members = _live(group, set(members))
        if group.kind == "fused" and not group.dims:
            unfold(c, group)
        collapse(c, group)
        over = homes(group, list(members.values()), spares) if group.kind == "fused" and not group.dims else {}
        stores = {name: (m.item.target or over.get(name, name), m.item.dtype) for name, m in members.items()}
        name = self.names.kernel(lowered, group)
        by_parts = not over and self._by_parts(c, group, stores, name)
        writer.replaces(over)
        self._replacing += bool(over)
        need = Need(stores, self._dtypes(lowered), self._numels(lowered))
        if group.kind == "fused" and group.dims:
            by_reciprocals(c, group, need)
        body = Body(c, group, name, need)
        writer.limits += body.limits()
        ask = self.decisions
        mapping, given = group.kind, (c, group, body, ask.choose, ask.shared_knob)
        if group.kind == "scan":
            kernel = scan(body, ScanPlanner(*given).scan())
        elif group.dims:
            layout = RowPlanner(*given).layout()
            mapping = layout.mapping + (" of a team" if layout.blocks else "")
            kernel = rows(body, layout)
        else:
            kernel, mapping = _pointwise(group, body, PointwisePlanner(*given, by_parts))
        allocate = {i.name: (i.shape, i.dtype) for i in group.items if not i.target}
        allocate |= {part: ([count, product(group.inner)], "float32") for part, count in group.crossed.items()}
        self.decisions.knobs |= kernel.knobs
        self.kernels.append((kernel, group, mapping))
        writer.launch(kernel, allocate)

    def _by_parts(self, c: Any, group: Group, stores: dict[str, tuple[str, str]], name: str) -> bool:
        """Does a thread of this pointwise kernel take the same columns of all parts its rows are joined from?"""
        parts = parts_of(c, group) if group.kind == "fused" else None
        if parts is None or set(stores) != {m.item.name for m in group.members}:
            return False
        wide = c.hint(parts.column.size) >= FEW_COLUMNS and c.hint(product(group.space)) >= SMALL
        if self.decisions.choose(f"joined:{name}", ("parts", "whole"), "parts" if wide else "whole") == "whole":
            return False
        parts.apply(group, stores)
        return True

    def _dtypes(self, lowered: Lowered) -> dict[str, str]:
        out = {name: meta.dtype for name, meta in lowered.metas.items()}
        return out | {i.name: i.dtype for i in lowered.items}

    def _numels(self, lowered: Lowered) -> dict[str, Ix]:
        c = lowered.context
        out = {name: product(c.shape(meta)) for name, meta in lowered.metas.items()}
        return out | {i.name: product(i.shape) for i in lowered.items}

    # ------------------------------------------------------------ results

    def program(self) -> Program:
        """The program's text and the knobs that differ from their default."""
        parts = ["#include <hip/hip_runtime.h>", "#include <hip/hip_fp16.h>", "#include <hip/hip_bf16.h>", ""]
        if self.helpers:
            parts.append(self.helpers)
        parts += dict.fromkeys(text for kernel, _, _ in self.kernels for text in kernel.device.values())
        parts += [kernel.function.text() if kernel.function else "" for kernel, _, _ in self.kernels]
        lines = ["HIP = r'''\n" + "\n".join(parts).rstrip() + "\n'''", ""]
        knobs = self.decisions.knob_values()
        for name in sorted(self.decisions.knobs):
            default, options, comment = self.decisions.knob(name)
            lines.append(f"{name} = knob({default}, choices={list(options)})  # {comment}")
        text = "\n".join([*lines, "", "", self.plan])
        return Program(text=text, knobs=knobs)

    def space(self) -> dict[str, Choice]:
        """Structure first, then knobs."""
        out = {**self.lowered.structure, **self.decisions.structure}
        if any(short(n.op) in ("linear", "conv1d", "conv2d", "conv3d") for n in self.graph.nodes):
            out["fuse_bias"] = Choice(options=(True, False), default=True)
        if len(self.lowered.items) > 1:
            out["fuse"] = Choice(options=(True, False), default=True)
        if self.lowered.context.narrow:
            out["wide"] = Choice(options=(False, True), default=False)
        for name in sorted(self.decisions.knobs):
            default, options, _ = self.decisions.knob(name)
            out[name] = Choice(options=options, default=default, kind="knob")
        return out

    def explain(self) -> dict[str, Any]:
        """Which nodes are in which kernel, which stay library, and why."""
        ops = {n.name: n.op for n in self.graph.nodes}
        library = {n: {"op": ops[n], "reason": why} for n, why in self.lowered.library.items()}
        return {
            "kernels": [{"name": k.name, "nodes": fused(g).split(", "), "mapping": m} for k, g, m in self.kernels],
            "library": library,
            "in_hip": len(self.lowered.in_hip),
            "nodes": len([n for n in self.graph.nodes if n.op != "getitem"]),
            "static": not self.graph.symbols,
        }


def _pointwise(group: Group, body: Body, planner: PointwisePlanner) -> tuple[EmittedKernel, str]:
    """A kernel without reductions, and its mapping."""
    mapping, layout, (vec, items, threads) = planner.pointwise()
    if mapping == "transpose":
        return transpose(body, threads, items), mapping
    if mapping == "inner":
        return inner(body, threads, items), mapping
    if mapping == "sliding":
        return sliding(body, threads, int(items), int(vec), planner.planes), mapping
    if layout is None:
        return elementwise(body, vec, items, threads), mapping
    group.dims = (len(group.space) - 1,)
    return plain_rows(body, layout), mapping


def _live(group: Group, stored: set[str]) -> list[Any]:
    """Members whose value reaches memory, directly or as a row value of one that does."""
    from hipwright.engine.ir.expr import walk

    wanted = set(stored)
    for member in reversed(group.members):
        if member.item.name in wanted:
            wanted |= {e.attr for e in walk([member.value]) if e.op == "row"}
    return [m for m in group.members if m.item.name in wanted]


__all__ = ["explain", "space", "write"]
