"""The kernels of one group: a layout is planned, a template writes the kernel, the plan launches it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from hipwright.engine.fuse.concatenated import parts_of
from hipwright.engine.fuse.costs import ITEM_BYTES
from hipwright.engine.fuse.dimensions import merge_dimensions, split_dimensions
from hipwright.engine.fuse.groups import Group, GroupMember, base_name
from hipwright.engine.ir.expr import walk
from hipwright.engine.ir.index import ZERO, Ix, product
from hipwright.engine.layout.decisions import Decisions
from hipwright.engine.layout.planner import FEW_COLUMNS, SMALL
from hipwright.engine.layout.pointwise import PointwisePlanner, ScanPlanner
from hipwright.engine.layout.rows import RowPlanner
from hipwright.engine.lower.values import LoweredItem
from hipwright.engine.partition.state import Lowered
from hipwright.engine.plan.in_place import ReusableTensor, overwritten
from hipwright.engine.plan.joining import is_small
from hipwright.engine.plan.naming import KernelNames
from hipwright.engine.plan.steps import PlanStep
from hipwright.engine.plan.streaming import moved
from hipwright.engine.plan.writer import PlanWriter
from hipwright.engine.templates.base import Body, EmittedKernel, Need
from hipwright.engine.templates.call import CallBody, TemplateOptions
from hipwright.engine.templates.call_scope import Temporary
from hipwright.engine.templates.pointwise.column_rows import column_rows
from hipwright.engine.templates.pointwise.elementwise import elementwise
from hipwright.engine.templates.pointwise.inner import inner
from hipwright.engine.templates.pointwise.rows import plain_rows
from hipwright.engine.templates.pointwise.sliding import sliding
from hipwright.engine.templates.pointwise.transpose import transpose
from hipwright.engine.templates.reciprocals import use_reciprocals
from hipwright.engine.templates.rows.folded_parts import fold_parts
from hipwright.engine.templates.rows.kernel import rows
from hipwright.engine.templates.rows.run_sums import sum_runs
from hipwright.engine.templates.scan.kernel import scan

PADDING = "constant_pad_nd"
"""Of parameters alone it packs an operand, as rewrite/padded_products.py does."""


@dataclass(frozen=True)
class WrittenKernel:
    """A kernel, the group that it computes, and the mapping of its threads."""

    kernel: EmittedKernel
    group: Group
    mapping: str


class GroupKernels:
    """Writes the kernels of a program, group by group."""

    def __init__(self, lowered: Lowered, decisions: Decisions, names: KernelNames, plan: PlanWriter) -> None:
        self.lowered, self.c = lowered, lowered.context
        self.decisions, self.names, self.plan = decisions, names, plan
        self.written: list[WrittenKernel] = []
        self.overwriting = 0  # kernels that overwrite a tensor that they read
        self.dtypes = dtypes(lowered)
        self.numels = numels(lowered)

    def add(self, body: GroupKernels) -> None:
        """Add the kernels of a loop's body, which are written."""
        self.written += body.written
        self.overwriting += body.overwriting
        self.dtypes = {**body.dtypes, **self.dtypes}
        self.numels = {**body.numels, **self.numels}

    def write(self, group: Group, stored: Collection[str], reusable: Mapping[str, ReusableTensor]) -> None:
        """Write a group's kernels and their launches.

        stored: the items that must reach memory. reusable: tensors that the kernel may overwrite.
        """
        if group.kind == "call":
            self._call(group, stored)
            return
        members = {m.item.name: m for m in group.members if base_name(m.item.name) in stored}
        if not members:
            return
        if ZERO in group.outer:  # there is nothing to compute
            for name, member in members.items():
                self.plan.allocate(name, member.item.shape, member.item.dtype)
            return
        group.members = _needed(group, set(members))
        pointwise = group.kind == "fused" and not group.dims
        if pointwise:
            split_dimensions(self.c, group)
        merge_dimensions(self.c, group)
        sum_runs(self.c, group)
        plain = pointwise and not group.short_rows
        over = overwritten(group, list(members.values()), reusable) if plain else {}
        stores = {name: (m.item.target or over.get(name, base_name(name)), m.item.dtype) for name, m in members.items()}
        name = self.names.kernel(self.lowered, group)
        fold_parts(self.c, group, lambda *of: self.decisions.choose(f"fold_parts:{name}", *of))
        by_parts = not over and self._by_parts(group, stores, name)
        self.plan.replaces(over)
        self.overwriting += bool(over)
        kernel, mapping = self._kernel(group, name, Need(stores, self.dtypes, self.numels), by_parts=by_parts)
        allocate = {i.name: (i.shape, i.dtype) for i in group.items if not i.target}
        allocate |= {part: ([count, product(group.inner)], "float32") for part, count in group.column_sums.items()}
        self.decisions.knobs |= kernel.knobs
        kernel.touched |= {m.item.target: product(m.item.space) for m in members.values() if m.item.place}
        kernel.packs = kernel.packs or all(self._packs(item) for item in group.items)
        self._moved(kernel, {})
        self.written.append(WrittenKernel(kernel, group, mapping))
        self.plan.launch(kernel, allocate)

    def _packs(self, item: LoweredItem) -> bool:
        """Whether an item is an operand that `prepare` computes, where parameters alone are read."""
        packed = item.name in self.lowered.packed and item.name not in self.lowered.outputs.values()
        return packed or self.lowered.in_hip.get(item.node) == PADDING

    def _kernel(self, group: Group, name: str, need: Need, *, by_parts: bool) -> tuple[EmittedKernel, str]:
        """The kernel of a scan, of reductions or of pointwise operators, and its mapping."""
        if group.kind == "fused":
            use_reciprocals(self.c, group, need, lambda kind, *of: self.decisions.choose(f"{kind}:{name}", *of))
        body = Body(self.c, group, name, need)
        self.plan.limits += body.limits()
        given = (self.c, group, body, self.decisions.choose, self.decisions.shared_knob)
        if group.kind == "scan":
            return scan(body, ScanPlanner(*given).scan()), "scan"
        if group.dims:
            layout = RowPlanner(*given).layout()
            return rows(body, layout), layout.mapping + (", cooperative" if layout.blocks else "")
        return _pointwise(group, body, PointwisePlanner(*given, by_parts))

    def _call(self, group: Group, stored: Collection[str]) -> None:
        """The kernels of a call template, with the pointwise operators fused into its epilogue."""
        items = [i for i in group.items if i.name in stored]
        if any(ZERO in i.shape for i in items):  # there is nothing to compute
            for item in items:
                self.plan.allocate(item.name, item.shape, item.dtype)
            return
        if not items:
            return
        need = Need({i.name: (i.target or i.name, i.dtype) for i in items}, self.dtypes, self.numels)
        options = TemplateOptions(self.decisions.choose, self.decisions.own_knob)
        body = CallBody(self.c, group, self.names.kernel(self.lowered, group), need, options)
        offer = body.placed.offer
        kernels = offer.write(body)
        self.plan.limits += body.limits()
        allocate = {i.name: (i.shape, i.dtype) for i in items if not i.target}
        allocate |= {name: (t.shape, t.dtype) for name, t in body.temporaries.items()}
        for kernel in kernels:
            self._moved(kernel, body.temporaries)
            self.written.append(WrittenKernel(kernel, group, f"call:{offer.name}"))
        self.plan.launches(kernels, allocate, {name for name, t in body.temporaries.items() if t.zero})

    def _moved(self, kernel: EmittedKernel, temporaries: Mapping[str, Temporary]) -> None:
        """Notes how many bytes a kernel moves. temporaries: memory between kernels of its call."""
        numels = self.numels | {name: product(t.shape) for name, t in temporaries.items()}
        dtypes = self.dtypes | {name: t.dtype for name, t in temporaries.items()}
        kernel.moves = sum(moved(self.c, kernel, numels, dtypes))

    def small(self, step: PlanStep) -> bool:
        """Whether a step is a kernel that moves little (plan/joining.py); in place it writes a part alone."""
        if not isinstance(step.what, Group):
            return False
        in_place = {item.name for item in step.what.items if item.target}
        known = [name for name in (step.reads | step.provides) - in_place if name in self.numels]
        return is_small(sum(self._bytes(name) for name in known))

    def _bytes(self, name: str) -> int:
        """Bytes of a tensor at the captured sizes."""
        return self.c.hint(self.numels[name]) * ITEM_BYTES.get(self.dtypes[name], 1)

    def _by_parts(self, group: Group, stores: dict[str, tuple[str, str]], name: str) -> bool:
        """Whether a thread computes the same columns of every part of a concatenated row; then the group is changed."""
        parts = parts_of(self.c, group) if group.kind == "fused" else None
        if parts is None or set(stores) != {m.item.name for m in group.members}:
            return False
        wide = self.c.hint(parts.width) >= FEW_COLUMNS and self.c.hint(product(group.space)) >= SMALL
        if self.decisions.choose(f"concat:{name}", ("parts", "whole"), "parts" if wide else "whole") == "whole":
            return False
        parts.apply(group, stores)
        return True


def dtypes(lowered: Lowered) -> dict[str, str]:
    """The dtype of every tensor in memory."""
    return {name: meta.dtype for name, meta in lowered.metas.items()} | {i.name: i.dtype for i in lowered.items}


def numels(lowered: Lowered) -> dict[str, Ix]:
    """The number of elements of every tensor in memory."""
    out = {name: product(lowered.context.shape(meta)) for name, meta in lowered.metas.items()}
    return out | {i.name: product(i.shape) for i in lowered.items}


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
    return (column_rows if mapping == "columns" else plain_rows)(body, layout), mapping


def _needed(group: Group, stored: set[str]) -> list[GroupMember]:
    """Members whose value reaches memory, directly or as a row value of one that does."""
    wanted = set(stored)
    for member in reversed(group.members):
        if member.item.name in wanted:
            wanted |= {e.attr for e in walk([member.value]) if e.op == "row"}
    return [m for m in group.members if m.item.name in wanted]
