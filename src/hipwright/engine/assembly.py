"""One graph with one set of choices becomes a program: lowered, grouped, written kernel by kernel, and planned."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from itertools import pairwise
from typing import Any

from hipwright.capture.graph import Graph, short
from hipwright.engine.emit.device_code import headers_for
from hipwright.engine.emit.shared import launched, shared_names
from hipwright.engine.fuse.column_reductions import fuse_column_reductions
from hipwright.engine.fuse.groups import Group
from hipwright.engine.fuse.recompute import recompute
from hipwright.engine.fuse.schedule import Scheduler
from hipwright.engine.group_kernels import GroupKernels, numels
from hipwright.engine.knobs import Choice, Value
from hipwright.engine.layout.decisions import Decisions
from hipwright.engine.lower.values import LibraryCall
from hipwright.engine.partition.lowering import Lowering
from hipwright.engine.partition.state import PlanView
from hipwright.engine.plan.in_place import ReusableTensors
from hipwright.engine.plan.naming import KernelNames
from hipwright.engine.plan.static_shapes import ENOUGH_ELEMENTS, StaticShapes
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
from hipwright.engine.templates.base import fused
from hipwright.records import Program
from hipwright.toolchain import device_headers

_INCLUDES = ("#include <hip/hip_runtime.h>", "#include <hip/hip_fp16.h>", "#include <hip/hip_bf16.h>")


class ProgramAssembly:
    """The program of one graph. Writing happens in the constructor; the methods say what has come of it."""

    def __init__(self, graph: Graph, choices: Mapping[str, Value]) -> None:
        """Raises SizeNotSupported where a size of the graph can be neither expressed nor evaluated."""
        self.graph = graph
        self.choices = choices
        self.decisions = Decisions(choices)
        self.lowered = Lowering(graph, choices).run()
        scheduler = self._scheduled()
        names = KernelNames()
        static = StaticShapes(self.lowered, names) if self._static_shapes() else None
        writer = PlanWriter(self.lowered, graph.parameters, static)
        self._groups = GroupKernels(self.lowered, self.decisions, names, writer)
        self._write(scheduler, writer)
        used = {use for written in self._groups.written for use in written.kernel.used}
        self._headers = headers_for(used) | streaming_headers(self._stream(used))
        functions = [written.kernel.function for written in self._groups.written]
        self._shared = shared_names(function for function in functions if function is not None)
        self.plan = launched(writer.finish(), self._shared)

    @property
    def library_only(self) -> bool:
        """Whether the program has no kernels."""
        return not self._groups.written

    def _scheduled(self) -> Scheduler:
        """The items in groups."""
        lowered, choices = self.lowered, self.decisions
        external = {o: set(call.refs.values()) for call in lowered.calls for o in call.outputs}
        external |= {v.name: {v.source} for v in lowered.views}
        for before, after in pairwise(
            draws_in_order(lowered)
        ):  # no kernel may have to stand between the other way round
            for output in after.outputs:
                external[output] |= set(before.outputs)
        scheduler = Scheduler(lowered.context, external, bool(self.choices.get("fuse", True)), choices.part)
        for item in list(lowered.items):  # the scheduler may make some
            scheduler.add(item)
        recompute(scheduler, lowered.outputs.values(), choices.recompute)
        fuse_column_reductions(scheduler, choices.fuse_columns)
        return scheduler

    def _write(self, scheduler: Scheduler, writer: PlanWriter) -> None:
        """Every step's lines of the plan, and the kernels."""
        steps = steps_of(self.lowered, scheduler)
        stored = stored_items(self.lowered, scheduler, steps)
        read = {r for s in steps if isinstance(s.what, Group) for r in s.reads}
        writer.inputs(read)
        ordered = order(steps)
        reusable = ReusableTensors(self.lowered, ordered)
        in_place = bool(self.choices.get("in_place", True))  # nothing to search for, so not in `space`
        for step in ordered:
            if isinstance(step.what, LibraryCall):
                writer.call(step.what, read)
            elif isinstance(step.what, PlanView):
                writer.view(step.what)
            else:
                self._groups.write(step.what, stored, reusable.of(step) if in_place else {})

    def _static_shapes(self) -> bool:
        """Whether kernels have static-shape variants. Nothing to search for, so not in `space`."""
        elements = sum(self.lowered.context.hint(n) for n in numels(self.lowered).values())
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
        parts = [*_INCLUDES, *device_headers.include_lines(self._headers), ""]
        parts += dict.fromkeys(text for kernel in kernels for text in kernel.device.values())
        own = [kernel for kernel in kernels if kernel.name not in self._shared]
        parts += [kernel.function.text() if kernel.function else "" for kernel in own]
        lines = ["HIP = r'''\n" + "\n".join(parts).rstrip() + "\n'''", ""]
        for name in sorted(self.decisions.knobs):
            default, options, comment = self.decisions.knob(name)
            lines.append(f"{name} = knob({default}, choices={list(options)})  # {comment}")
        text = "\n".join([*lines, "", "", launched(plan or self.plan, self._shared)])
        return Program(text=text, knobs=self.decisions.knob_values())

    def space(self, structure: Mapping[str, Choice]) -> dict[str, Choice]:
        """What may vary: structure first, then knobs. structure: the choices of the graph's rewrites."""
        out = {**self.lowered.structure, **self.decisions.structure, **structure}
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

    def explanation(self) -> dict[str, Any]:
        """Which nodes are in which kernel, which stay library calls, and why."""
        ops = {n.name: n.op for n in self.graph.nodes}
        library = {n: {"op": ops[n], "reason": why} for n, why in self.lowered.library.items()}
        kernels: dict[str, dict[str, Any]] = {}
        for w in self._groups.written:
            name = self._shared.get(w.kernel.name, w.kernel.name)
            told = kernels.setdefault(name, {"name": name, "nodes": [], "mapping": w.mapping})
            told["nodes"] += fused(w.group).split(", ")
        return {
            "kernels": list(kernels.values()),
            "library": library,
            "in_hip": len(self.lowered.in_hip),
            "nodes": len([n for n in self.graph.nodes if n.op != "getitem"]),
            "static": not self.graph.symbols,
        }
