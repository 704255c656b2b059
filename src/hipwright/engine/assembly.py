"""One graph with one set of choices becomes a program: lowered, grouped, written kernel by kernel, and planned."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from itertools import pairwise
from typing import Any

from hipwright.capture.graph import Graph, short
from hipwright.engine.emit.device_code import headers_for
from hipwright.engine.emit.header_names import needed_headers
from hipwright.engine.emit.shared import launched, shared_names, shared_parts
from hipwright.engine.fuse.column_reductions import fuse_column_reductions
from hipwright.engine.fuse.groups import Group
from hipwright.engine.fuse.placed_rows import fuse_placed_rows
from hipwright.engine.fuse.recompute import recompute
from hipwright.engine.fuse.row_tiles import RowTiles
from hipwright.engine.fuse.schedule import Scheduler
from hipwright.engine.fuse.state_rows import fuse_state_rows
from hipwright.engine.group_kernels import GroupKernels, numels
from hipwright.engine.knobs import Choice, Value
from hipwright.engine.layout.decisions import Decisions
from hipwright.engine.lower.values import LibraryCall
from hipwright.engine.partition.lowering import Lowering
from hipwright.engine.partition.state import LoopCall, Lowered, PlanView
from hipwright.engine.plan.in_place import ReusableTensors
from hipwright.engine.plan.joining import HOW, JOIN, Joining
from hipwright.engine.plan.naming import KernelNames
from hipwright.engine.plan.static_shapes import ENOUGH_ELEMENTS, MOST_TEXT, StaticShapes, dropped
from hipwright.engine.plan.steps import draws_in_order, order, steps_of, stored_items
from hipwright.engine.plan.streaming import (
    KEEP,
    PACKED,
    keeps,
    offered,
    reads_only,
    streaming_headers,
    usual,
)
from hipwright.engine.plan.writer import PlanWriter
from hipwright.engine.rewrite.loops.records import nodes_of
from hipwright.engine.templates.base import fused
from hipwright.records import Program
from hipwright.toolchain import device_headers

_INCLUDES = ("#include <hip/hip_runtime.h>", "#include <hip/hip_fp16.h>")
_BY_NAME = {"bfloat16_type", "constants", "float8"}
"""Headers of names that kernels do not note as used: types, and what AMD's compilers do not all define."""


class ProgramAssembly:
    """The program of one graph. Writing happens in the constructor; the methods say what has come of it."""

    def __init__(self, graph: Graph, choices: Mapping[str, Value]) -> None:
        """Raises SizeNotSupported where a size of the graph can be neither expressed nor evaluated."""
        self.graph = graph
        self.choices = choices
        self.decisions = Decisions(choices)
        self.lowered = Lowering(graph, choices).run()
        self._everywhere = self.lowered.everywhere()
        self._names = KernelNames()
        static = StaticShapes(self.lowered, self._names) if self._static_shapes() else None
        prepares = bool(choices.get("prepare", True))  # nothing to search for, so not in `space`
        self._joining = Joining(str(choices.get(JOIN, HOW[0])), self._names)
        writer = PlanWriter(self.lowered, graph.parameters, static, joining=self._joining, prepares=prepares)
        self._groups = self._written(self.lowered, writer)
        used = {use for written in self._groups.written for use in written.kernel.used}
        self._headers = headers_for(used) | streaming_headers(self._stream(used))
        plan = writer.finish()
        functions = self._joining.functions([written.kernel for written in self._groups.written])
        self._shared = shared_names(functions)
        self.plan = launched(plan, self._shared)
        if self._joining.possible:
            self.decisions.choose(JOIN, HOW, HOW[0])
        if static is not None and writer.captured and len(self.program().text) > MOST_TEXT:
            self.plan = dropped(self.plan, writer.captured)
            for function in functions:
                function.variant = None

    @property
    def library_only(self) -> bool:
        """Whether the program has no kernels."""
        return not self._groups.written

    def _scheduled(self, lowered: Lowered) -> Scheduler:
        """The items in groups."""
        choices = self.decisions
        external = {o: set(call.refs.values()) for call in lowered.calls for o in call.outputs}
        external |= {v.name: {v.source} for v in lowered.views}
        for before, after in pairwise(
            draws_in_order(lowered)
        ):  # no kernel may have to stand between the other way round
            for output in after.outputs:
                external[output] |= set(before.outputs)
        fuse = bool(self.choices.get("fuse", True))
        scheduler = Scheduler(lowered.context, external, fuse, choices.part, choices.overwrite)
        if self.choices.get("row_tiles", True):
            wanted = set(lowered.outputs.values())
            scheduler.begin_rows = RowTiles(scheduler, list(lowered.items), wanted, choices.whole_rows).begin
        for item in list(lowered.items):  # the scheduler may make some
            scheduler.add(item)
        fuse_placed_rows(scheduler)
        recompute(scheduler, lowered.outputs.values(), choices.recompute)
        fuse_column_reductions(scheduler, choices.fuse_columns)
        fuse_state_rows(scheduler, choices.overwrite)
        return scheduler

    def _written(self, lowered: Lowered, writer: PlanWriter) -> GroupKernels:
        """The kernels of a graph, and every step's lines of the plan; a loop's body is a graph of its own."""
        scheduler = self._scheduled(lowered)
        groups = GroupKernels(lowered, self.decisions, self._names, writer)
        steps = steps_of(lowered, scheduler)
        stored = stored_items(lowered, scheduler, steps)
        read = {r for s in steps if isinstance(s.what, Group) for r in s.reads}
        read |= {r for s in steps if isinstance(s.what, LoopCall) for r in s.what.read_by_kernels}
        writer.inputs(read)
        ordered = order(steps, groups.small)
        reusable = ReusableTensors(lowered, ordered)
        in_place = bool(self.choices.get("in_place", True))  # nothing to search for, so not in `space`
        for step in ordered:
            if isinstance(step.what, LoopCall):
                body = writer.body(step.what)
                groups.add(self._written(step.what.inner, body))
                writer.loop(step.what, body)
            elif isinstance(step.what, LibraryCall):
                writer.call(step.what, read)
            elif isinstance(step.what, PlanView):
                writer.view(step.what)
            else:
                free = in_place and not step.provides & writer.collected.keys()
                groups.write(step.what, stored, reusable.of(step) if free else {})
        return groups

    def _static_shapes(self) -> bool:
        """Whether kernels have static-shape variants. Nothing to search for, so not in `space`."""
        elements = sum(one.context.hint(n) for one in self._everywhere for n in numels(one).values())
        return bool(self.graph.symbols) and bool(self.choices.get("exact", elements >= ENOUGH_ELEMENTS))

    def _stream(self, used: Collection[str]) -> str:
        """What leaves the caches first: the value of the choice `stream`. used: the program's device functions."""
        c, groups = self.lowered.context, self._groups
        kernels = [written.kernel for written in groups.written]
        keeping = [k for k in kernels if keeps(c, k, groups.numels, groups.dtypes)]
        packed = PACKED if offered(c, used, groups.numels.values()) else PACKED[:1]
        options = (*packed, KEEP) if keeping else packed
        if len(options) == 1:
            return PACKED[0]
        over = bool(groups.overwriting) and groups.overwriting == len(kernels)
        only = reads_only(c, kernels, groups.numels, groups.dtypes)
        how = str(self.decisions.choose("stream", options, usual(options, over=over, reads_only=only)))
        for kernel in keeping if how == KEEP else ():
            if kernel.function is not None:
                kernel.function.keep_reads = True
        return how

    # ------------------------------------------------------------ results

    def program(self, plan: str = "") -> Program:
        """The program's text and the knobs that differ from their default. plan: another plan than the written one."""
        kernels = [written.kernel for written in self._groups.written]
        texts = list(dict.fromkeys(text for kernel in kernels for text in kernel.device.values()))
        functions = [f for f in self._joining.functions(kernels) if f.name not in self._shared]
        parts_elsewhere = shared_parts(functions)
        texts += [function.text(parts_elsewhere) for function in functions]
        headers = self._headers | (_BY_NAME & needed_headers("\n".join(texts)))
        parts = [*_INCLUDES, *device_headers.include_lines(headers), "", *texts]
        lines = ["HIP = r'''\n" + "\n".join(parts).rstrip() + "\n'''", ""]
        for name in sorted(self.decisions.knobs):
            default, options, comment = self.decisions.knob(name)
            lines.append(f"{name} = knob({default}, choices={list(options)})  # {comment}")
        text = "\n".join([*lines, "", "", launched(plan or self.plan, self._shared)])
        return Program(text=text, knobs=self.decisions.knob_values())

    def space(self, structure: Mapping[str, Choice]) -> dict[str, Choice]:
        """What may vary: structure first, then knobs. structure: the choices of the graph's rewrites."""
        offered: dict[str, Choice] = {}
        for one in self._everywhere:
            offered |= one.structure
        out = {**offered, **self.decisions.structure, **structure}
        if any(short(n.op) in ("linear", "conv1d", "conv2d", "conv3d") for n in nodes_of(self.graph)):
            out["fuse_bias"] = Choice(options=(True, False), default=True)
        if any(len(one.items) > 1 for one in self._everywhere):
            out["fuse"] = Choice(options=(True, False), default=True)
        if any(one.context.narrow for one in self._everywhere):
            out["wide"] = Choice(options=(False, True), default=False)
        for name in sorted(self.decisions.knobs):
            default, options, _ = self.decisions.knob(name)
            out[name] = Choice(options=options, default=default, kind="knob")
        return out

    def explanation(self) -> dict[str, Any]:
        """Which nodes are in which kernel, which stay library calls, and why."""
        nodes = nodes_of(self.graph)
        ops = {n.name: n.op for n in nodes}
        library = {n: {"op": ops[n], "reason": why} for one in self._everywhere for n, why in one.library.items()}
        kernels: dict[str, dict[str, Any]] = {}
        for w in self._groups.written:
            name = self._joining.name(w.kernel)
            name = self._shared.get(name, name)
            told = kernels.setdefault(name, {"name": name, "nodes": [], "mapping": w.mapping})
            told["nodes"] += fused(w.group).split(", ")
        return {
            "kernels": list(kernels.values()),
            "library": library,
            "in_hip": sum(len(one.in_hip) for one in self._everywhere),
            "nodes": len([n for n in nodes if n.op != "getitem"]),
            "static": not self.graph.symbols,
        }
