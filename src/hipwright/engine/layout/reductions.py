"""What layouts of rows and of columns both need to know of a group with reductions."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from hipwright.engine.fuse.directions import CACHED, step, way
from hipwright.engine.fuse.groups import ROW
from hipwright.engine.ir.expr import walk
from hipwright.engine.ir.index import ix
from hipwright.engine.layout.planner import FEW_COLUMNS, SIZES, LayoutPlanner
from hipwright.engine.templates.base import depends

MANY_ROWS = 64
FEW_TERMS = 64
"""Length up to which lanes reduce the middle of short rows: few columns lie side by side, and what the lanes of one
column skip, those of the next read from the same lines. Sums over 39 fields of 10 columns took an H200 12.6 us by lanes
and 20.8 by columns, five of whose eight threads side by side had one.
"""
LONG_RUNS = 1024
"""Elements of a row of short runs from which its lanes read them beside the runs of other rows. Statistics of groups of
ten channels, stored channels last, 8 x 32 groups of 64 x 64 positions, took an H200 75 us by blocks; with them so, the
whole of SD 1.5's residual block took 357 us, before 390.
"""
ACROSS = 1 << 19
"""Elements from which a reduction across memory, whose rows nothing reads again, goes down columns: each element that
it reads in the wrong order is a sector from the last-level cache, and blocks that share columns cost a launch. Means of
64 channels of four channels-last images of 64 x 63 halves took an H200 7.9 us by blocks, and torch.compile's two
kernels 3.1.
"""


@dataclass(eq=False)
class ReductionPlanner(LayoutPlanner):
    """For a group with reductions. static: the length of a row where it is a constant; follows: whether anything stored
    along the row depends on its reductions.
    """

    static: int | None = field(init=False)
    follows: bool = field(init=False)

    @property
    def run(self) -> int:
        """Elements of a row that a thread sums for one of its length (templates/rows/run_sums.py)."""
        return self.c.hint(self.group.run) if self.group.run is not None else 1

    def arrays(self) -> int:
        """The number of inputs as large as all rows, each of which takes registers of its own."""
        return max(sum(map(self.fills, self.body.loads)), 1)

    def fills(self, buffer: str) -> bool:
        """Whether an input is as large as all rows."""
        return self.numel(buffer) >= self.length * self.rows

    def held_arrays(self) -> int:
        """The rows that a thread holds in registers, in float32: what the last pass reads again of what the reductions
        were computed from, or the inputs while they are loaded, if these take more.
        """
        along = {self.group.variables[d].name for d in self.group.dims}
        reduced = {e.id for e in walk([m.value for m in self.group.members if m.role == "red"])}
        left = [m.value for m in self.group.members if m.role not in ("red", ROW)]
        memo: dict[int, bool] = {}
        kept: set[int] = set()
        while left:
            e = left.pop()
            if e.op == "const" or not depends(e, along, memo):
                continue
            if e.id in reduced and e.op != "index":
                kept.add(e.id)
            else:
                left += e.args
        rows = [b for b in self.body.loads if self.fills(b)]
        words = sum(SIZES.get(self.body.need.dtypes[b], 4) for b in rows) / 4
        return max(len(kept), math.ceil(words), 1)

    def overwrites(self) -> bool:
        """Whether a cooperative block would read what another one overwrites: more than a row's one value reads it."""
        targets = {m.item.target for m in self.group.members if m.item.target}
        wide = [m.value for m in self.group.members if m.role != ROW]
        return any(e.op == "load" and e.attr[0] in targets for e in walk(wide))

    def short_and_narrow(self) -> bool:
        """Whether each run of the reduced dimensions lies in a few lines, beside few columns."""
        last = len(self.group.space) - 1
        narrow = last - 1 in self.group.dims and self.c.hint(self.group.space[last]) < FEW_COLUMNS
        return narrow and self.length <= FEW_TERMS and self.rows >= MANY_ROWS

    def runs_are_short(self) -> bool:
        """Whether rows are short runs beside one another, of which there are many: groups of channels-last channels."""
        group, kept = self.group, [k for k in range(len(self.group.space)) if k not in self.group.dims]
        if len(group.dims) < 2 or not kept or self.length < LONG_RUNS or self.rows < FEW_COLUMNS:
            return False
        beside = group.variables[kept[-1]]
        loads = {e for e in walk([m.value for m in group.members if m.role == "red"]) if e.op == "load"}
        whole = [e.attr[1] for e in loads if self.fills(e.attr[0])]
        runs = [k for k in group.dims if self.c.hint(group.space[k]) < FEW_COLUMNS]
        return any(
            step(p, group.variables[k]) == ix(1) and step(p, beside) == group.space[k] for p in whole for k in runs
        )

    def walks_across(self) -> bool:
        """Whether the reductions walk memory across the rows: neighbouring rows are neighbours in memory."""
        reductions = [m for m in self.group.members if m.role == "red"]
        large = self.rows * self.length > (CACHED if self.follows else ACROSS) and self.rows >= FEW_COLUMNS
        return large and bool(reductions) and all(way(self.group, m) == "across" for m in reductions)
