"""What layouts of rows and of columns both need to know of a group with reductions."""

from __future__ import annotations

from dataclasses import dataclass, field

from hipwright.engine.fuse.groups import ROW
from hipwright.engine.ir.expr import walk
from hipwright.engine.layout.pointwise import LayoutPlanner


@dataclass(eq=False)
class ReductionPlanner(LayoutPlanner):
    """For a group with reductions. static: the length of a row where it is a constant; follows: whether anything stored
    along the row depends on its reductions.
    """

    static: int | None = field(init=False)
    follows: bool = field(init=False)

    def arrays(self) -> int:
        """The number of inputs as large as all rows, each of which takes registers of its own."""
        return max(sum(self.numel(b) >= self.length * self.rows for b in self.body.loads), 1)

    def overwrites(self) -> bool:
        """Whether a cooperative block would read what another one overwrites: more than a row's one value reads it."""
        targets = {m.item.target for m in self.group.members if m.item.target}
        wide = [m.value for m in self.group.members if m.role != ROW]
        return any(e.op == "load" and e.attr[0] in targets for e in walk(wide))
