"""What layouts of rows and of columns both need to know of a group with reductions."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from hipwright.engine.fuse.groups import ROW
from hipwright.engine.ir.expr import walk
from hipwright.engine.layout.pointwise import SIZES, LayoutPlanner
from hipwright.engine.templates.base import depends


@dataclass(eq=False)
class ReductionPlanner(LayoutPlanner):
    """For a group with reductions. static: the length of a row where it is a constant; follows: whether anything stored
    along the row depends on its reductions.
    """

    static: int | None = field(init=False)
    follows: bool = field(init=False)

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
