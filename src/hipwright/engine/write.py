"""The engine's face: write a program for a graph, say what may vary, explain what became of each node."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from hipwright.engine.crossed import crossed
from hipwright.engine.emit import cname
from hipwright.engine.exact import ENOUGH_ELEMENTS
from hipwright.engine.graph import Graph, Meta, Symbol, references, short
from hipwright.engine.groups import Group, collapse
from hipwright.engine.helpers import RESERVED, prelude
from hipwright.engine.in_place import Spare, Spares, homes
from hipwright.engine.index import ZERO, Ix, product
from hipwright.engine.knobs import KNOBS, Choice, Value
from hipwright.engine.layout import FEW_COLUMNS, SMALL, Planner
from hipwright.engine.loops import unrolled
from hipwright.engine.lower.core import Call
from hipwright.engine.lowering import Lowered, Lowering, View
from hipwright.engine.parts import parts_of
from hipwright.engine.pin import pinned
from hipwright.engine.plan import PlanWriter, Step, order
from hipwright.engine.recompute import recompute
from hipwright.engine.rewrites_attention import attention
from hipwright.engine.schedule import Scheduler
from hipwright.engine.templates.base import Body, Kernel, Need, by_reciprocals, fused
from hipwright.engine.templates.call import CallBody, Options
from hipwright.engine.templates.elementwise import elementwise
from hipwright.engine.templates.inner import inner
from hipwright.engine.templates.row_plain import plain_rows
from hipwright.engine.templates.rows import rows
from hipwright.engine.templates.scan import scan
from hipwright.engine.templates.sliding import sliding
from hipwright.engine.templates.transpose import transpose
from hipwright.engine.unfold import unfold
from hipwright.records import Program


def write(graph: Graph, choices: Mapping[str, Value] | None = None) -> Program:
    """A program for the graph. Pure and deterministic; choices that do not apply are ignored.

    When a symbolic size cannot be handled, the program is written for the captured sizes and guards them. The choice
    "exact" decides whether kernels have twins for the captured sizes (hipwright.engine.exact): by default where the
    graph's tensors have ENOUGH_ELEMENTS.
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


def specialise(graph: Graph) -> Graph:
    """The same graph for the captured sizes only, guarded."""
    hints = {s.name: s.hint for s in graph.symbols}

    def fixed(value: Any) -> Any:
        if isinstance(value, str):
            return _evaluated(value, hints)
        if isinstance(value, dict):
            return _evaluated(value["size"], hints) if "size" in value else value
        return [fixed(v) for v in value] if isinstance(value, (list, tuple)) else value

    def meta(m: Meta | None) -> Meta | None:
        return None if m is None else Meta(dtype=m.dtype, shape=tuple(fixed(s) for s in m.shape),
                                           stride=tuple(fixed(s) for s in m.stride))  # fmt: skip

    def argument(value: Any) -> Any:
        if isinstance(value, dict) and "size" in value:
            return _evaluated(value["size"], hints)
        return [argument(v) for v in value] if isinstance(value, (list, tuple)) else value

    def returned(value: Any) -> Any:
        if isinstance(value, dict) and "tuple" in value:
            return {"tuple": [returned(v) for v in value["tuple"]]}
        return argument(value)

    import msgspec

    nodes = tuple(msgspec.structs.replace(n, args=tuple(argument(a) for a in n.args),
                                          kwargs={k: argument(v) for k, v in n.kwargs.items()},
                                          outs=tuple(meta(m) for m in n.outs)) for n in graph.nodes)  # fmt: skip
    inputs = tuple(msgspec.structs.replace(i, meta=meta(i.meta)) for i in graph.inputs)
    guards = [g for g in graph.guards if not any(re.search(rf"\b{s}\b", g) for s in hints)]
    guards += [f"{s.access} == {s.hint}" for s in graph.symbols]
    for tensor in graph.inputs:
        if tensor.kind == "input":
            for k, size in enumerate(tensor.meta.shape):
                text = f"{tensor.access}.shape[{k}] == {fixed(size)}"
                if isinstance(size, str) and text not in guards:
                    guards.append(text)
    empty: tuple[Symbol, ...] = ()
    return msgspec.structs.replace(
        graph, nodes=nodes, inputs=inputs, output=returned(graph.output), symbols=empty, guards=tuple(guards),
        dynamic=False,
    )  # fmt: skip


def _evaluated(text: str, hints: Mapping[str, int]) -> int:
    return int(eval(text, {"__builtins__": {}}, {"min": min, "max": max, **hints}))


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
    builder.structure |= structure | fused_attention
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
        self.kernels: list[tuple[Kernel, Group, str]] = []
        self.structure: dict[str, Choice] = {}
        self.knobs: set[str] = set()
        self.names: set[str] = set()
        self.defaults: dict[str, tuple[int, tuple[int, ...]]] = {}
        self.own: dict[str, tuple[int, tuple[int, ...], str]] = {}  # the call templates' knobs
        self.plan = ""

    def build(self) -> None:
        """Lower, group, write kernels and plan."""
        lowered = self.lowered = Lowering(self.graph, self.choices).run()
        c = lowered.context
        external = {o: set(call.refs.values()) for call in lowered.calls for o in call.outputs}
        external |= {v.name: {v.source} for v in lowered.views}
        scheduler = Scheduler(c, external, bool(self.choices.get("fuse", True)), self._part)
        for item in list(lowered.items):  # the scheduler may make some
            scheduler.add(item)
        recompute(scheduler, lowered.outputs.values(), self._again)
        crossed(scheduler, self._crossed)
        writer = PlanWriter(lowered, self.graph.parameters, self._twin if self._exact(lowered) else None)
        steps = self._steps(lowered, scheduler)
        stored = self._stored(lowered, scheduler, steps)
        read = {r for s in steps if isinstance(s.what, Group) for r in s.reads}
        writer.inputs(read)
        ordered = order(steps)
        spares = Spares(lowered, ordered)
        for step in ordered:
            if isinstance(step.what, Call):
                writer.call(step.what, read)
            elif isinstance(step.what, View):
                writer.view(step.what)
            else:
                self._kernel(c, lowered, step.what, stored, writer, spares.of(step) if self._in_place else {})
        self.plan = writer.finish()

    def _part(self, name: str) -> bool:
        """May this item, a slice or chunk of a row, compute the row's values again in the row's kernel?"""
        self.structure[f"part:{name}"] = Choice(options=("recompute", "stored"), default="recompute")
        return self.choices.get(f"part:{name}") != "stored"

    def _again(self, name: str) -> bool:
        """May this value be computed again by each kernel that reads it, rather than stored?"""
        return bool(self._choose(f"again:{name}", ("recompute", "stored"), "recompute") == "recompute")

    def _crossed(self, name: str) -> bool:
        """May the rows' kernel add up these columns, which it reads?"""
        return bool(self._choose(f"columns:{name}", ("on the way", "separate"), "on the way") == "on the way")

    def _exact(self, lowered: Lowered) -> bool:
        """Shall kernels have twins that know the captured sizes? Nothing to search for, so not in `space`."""
        elements = sum(lowered.context.hint(n) for n in self._numels(lowered).values())
        return bool(self.graph.symbols) and bool(self.choices.get("exact", elements >= ENOUGH_ELEMENTS))

    @property
    def _in_place(self) -> bool:
        """May kernels write over what nobody reads after them? Nothing to search for, so not in `space`."""
        return bool(self.choices.get("in_place", True))

    def _twin(self, name: str) -> str:
        """A free name for a kernel's twin."""
        return self._free(f"{name}_exact")

    def _free(self, base: str) -> str:
        """The name, numbered where it is taken."""
        name, count = base, 1
        while name in self.names:
            count += 1
            name = f"{base}_{count}"
        self.names.add(name)
        return name

    def _steps(self, lowered: Lowered, scheduler: Scheduler) -> list[Step]:
        steps: list[Step] = []
        for group in scheduler.groups:
            reads = {r for item in group.items for r in scheduler.reads[item.name]}
            steps.append(Step(group, reads, {i.name for i in group.items}, len(steps)))
        for call in lowered.calls:
            steps.append(Step(call, set(call.refs.values()), set(call.outputs), len(steps)))
        for view in lowered.views:
            steps.append(Step(view, {view.source}, {view.name}, len(steps)))
        for group in scheduler.groups:  # a buffer is overwritten after everyone has read it
            for item in group.items:
                if item.target:
                    writer = next(s for s in steps if s.what is group)
                    writer.waits |= {s.number for s in steps if item.target in s.reads and s.what is not group}
        return steps

    def _stored(self, lowered: Lowered, scheduler: Scheduler, steps: list[Step]) -> set[str]:
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
        need = Need({i.name: (i.target or i.name, i.dtype) for i in items}, self._dtypes(lowered),
                    self._numels(lowered))  # fmt: skip
        body = CallBody(c, group, self._name(lowered, group), need, Options(self._choose, self._own_knob))
        offer = body.placed.offer
        kernels = offer.write(body)
        writer.limits += body.limits()
        allocate = {i.name: (i.shape, i.dtype) for i in items if not i.target}
        allocate |= {name: (t.shape, t.dtype) for name, t in body.temporaries.items()}
        self.kernels += [(kernel, group, f"call:{offer.name}") for kernel in kernels]
        writer.launches(kernels, allocate, {name for name, t in body.temporaries.items() if t.zero})

    def _choose(self, key: str, options: Sequence[Any], default: Any) -> Any:
        """A structural choice made while a kernel is written."""
        if len(options) > 1:
            self.structure[key] = Choice(options=tuple(options), default=default)
        chosen = self.choices.get(key, default)
        return chosen if chosen in options else default

    def _own_knob(self, name: str, default: int, options: Sequence[int], comment: str) -> str:
        """A call template's knob; kernels that want the same share it."""
        wanted = (default, tuple(options), comment)
        unique, count = name, 1
        while unique in KNOBS or self.own.get(unique, wanted) != wanted:
            count += 1
            unique = f"{name}_{count}"
        self.own[unique] = wanted
        self.knobs.add(unique)
        return unique

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
        name = self._name(lowered, group)
        by_parts = not over and self._by_parts(c, group, stores, name)
        writer.replaces(over)
        need = Need(stores, self._dtypes(lowered), self._numels(lowered))
        if group.kind == "fused" and group.dims:
            by_reciprocals(c, group, need)
        body = Body(c, group, name, need)
        writer.limits += body.limits()
        mapping, planner = group.kind, Planner(c, group, body, self._choose, self._shared_knob, by_parts)
        if group.kind == "scan":
            kernel = scan(body, planner.scan())
        elif group.dims:
            layout = planner.layout()
            mapping = layout.mapping + (" of a team" if layout.team else "")
            kernel = rows(body, layout)
        else:
            kernel, mapping = _pointwise(group, body, planner)
        allocate = {i.name: (i.shape, i.dtype) for i in group.items if not i.target}
        allocate |= {part: ([count, product(group.inner)], "float32") for part, count in group.crossed.items()}
        self.knobs |= kernel.knobs
        self.kernels.append((kernel, group, mapping))
        writer.launch(kernel, group, allocate)

    def _by_parts(self, c: Any, group: Group, stores: dict[str, tuple[str, str]], name: str) -> bool:
        """Does a thread of this pointwise kernel take the same columns of all parts its rows are joined from?"""
        parts = parts_of(c, group) if group.kind == "fused" else None
        if parts is None or set(stores) != {m.item.name for m in group.members}:
            return False
        wide = c.hint(parts.column.size) >= FEW_COLUMNS and c.hint(product(group.space)) >= SMALL
        if self._choose(f"joined:{name}", ("parts", "whole"), "parts" if wide else "whole") == "whole":
            return False
        parts.apply(group, stores)
        return True

    def _shared_knob(self, name: str, default: int, most: int = 1 << 30) -> str:
        """A knob of the table, up to `most`; kernels that start from another value, or go further, have their own."""
        options = tuple(value for value in KNOBS[name][1] if value <= max(most, default))
        unique, count = name, 1
        while self.defaults.get(unique, (default, options)) != (default, options):
            count += 1
            unique = f"{name}_{count}"
        self.defaults[unique] = default, options
        return unique

    def _dtypes(self, lowered: Lowered) -> dict[str, str]:
        out = {name: meta.dtype for name, meta in lowered.metas.items()}
        return out | {i.name: i.dtype for i in lowered.items}

    def _numels(self, lowered: Lowered) -> dict[str, Ix]:
        c = lowered.context
        out = {name: product(c.shape(meta)) for name, meta in lowered.metas.items()}
        return out | {i.name: product(i.shape) for i in lowered.items}

    def _name(self, lowered: Lowered, group: Group) -> str:
        parts: list[str] = []
        for label in fused(group).split(", "):
            bare = re.sub(r"(_default|_\d+)+$", "", label)
            bare = re.sub(r"[^A-Za-z0-9_]", "_", bare).strip("_")
            if bare and bare not in parts:
                parts.append(bare)
        name = "_".join(parts[:3]) or "kernel"
        name = name[:60]
        if name in RESERVED or name[0].isdigit() or name in _IDENTIFIERS or name in self._locals(lowered):
            name = f"{name}_kernel"
        return self._free(name)

    def _locals(self, lowered: Lowered) -> set[str]:
        """Names the plan gives to tensors: a kernel takes another."""
        names = [*lowered.tensors, *lowered.metas, *(i.name for i in lowered.items), *self.graph.parameters]
        names += [n.name for n in self.graph.nodes] + [s.name for s in self.graph.symbols]
        return {cname(n) for n in names} | {re.sub(r"_\d+$", "", cname(n)) for n in names}

    # ------------------------------------------------------------ results

    def program(self) -> Program:
        """The program's text and the knobs that differ from their default."""
        used = {u for kernel, _, _ in self.kernels for u in kernel.used}
        parts = ["#include <hip/hip_runtime.h>", "#include <hip/hip_fp16.h>", "#include <hip/hip_bf16.h>", ""]
        helpers = prelude(used)
        if helpers:
            parts.append(helpers)
        parts += dict.fromkeys(text for kernel, _, _ in self.kernels for text in kernel.device.values())
        parts += [kernel.text for kernel, _, _ in self.kernels]
        lines = ["HIP = r'''\n" + "\n".join(parts).rstrip() + "\n'''", ""]
        knobs = self._knob_values()
        for name in sorted(self.knobs):
            default, options, comment = self._knob(name)
            lines.append(f"{name} = knob({default}, choices={list(options)})  # {comment}")
        text = "\n".join([*lines, "", "", self.plan])
        return Program(text=text, knobs=knobs)

    def _knob(self, name: str) -> tuple[int, tuple[int, ...], str]:
        default, options, comment = self.own.get(name) or KNOBS[re.sub(r"_\d+$", "", name)]
        return *self.defaults.get(name, (default, options)), comment

    def _knob_values(self) -> dict[str, int]:
        chosen = {}
        for name in sorted(self.knobs):
            value = self.choices.get(name)
            default, options, _ = self._knob(name)
            if value in options and value != default:
                chosen[name] = int(value)
        return chosen

    def space(self) -> dict[str, Choice]:
        """Structure first, then knobs."""
        out = {**self.lowered.structure, **self.structure}
        if any(short(n.op) in ("linear", "conv1d", "conv2d", "conv3d") for n in self.graph.nodes):
            out["fuse_bias"] = Choice(options=(True, False), default=True)
        if len(self.lowered.items) > 1:
            out["fuse"] = Choice(options=(True, False), default=True)
        if self.lowered.context.narrow:
            out["wide"] = Choice(options=(False, True), default=False)
        for name in sorted(self.knobs):
            default, options, _ = self._knob(name)
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


_IDENTIFIERS = {"signal", "index", "kernel", "main", "select", "remove", "write", "read", "open", "close", "pipe"}


def _pointwise(group: Group, body: Body, planner: Planner) -> tuple[Kernel, str]:
    """A kernel without reductions, and its mapping."""
    mapping, layout, (vec, items, threads) = planner.pointwise()
    if mapping == "transpose":
        return transpose(body, threads, items), mapping
    if mapping == "inner":
        return inner(body, threads, items), mapping
    if mapping == "sliding":
        return sliding(body, threads, int(items)), mapping
    if layout is None:
        return elementwise(body, vec, items, threads), mapping
    group.dims = (len(group.space) - 1,)
    return plain_rows(body, layout), mapping


def _live(group: Group, stored: set[str]) -> list[Any]:
    """Members whose value reaches memory, directly or as a row value of one that does."""
    from hipwright.engine.expr import walk

    wanted = set(stored)
    for member in reversed(group.members):
        if member.item.name in wanted:
            wanted |= {e.attr for e in walk([member.value]) if e.op == "row"}
    return [m for m in group.members if m.item.name in wanted]


__all__ = ["explain", "references", "space", "specialise", "write"]
