"""What layouts of kernels with reductions ask of their group, rows and columns alike."""

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
        """Inputs of all rows' whole lengths: what a thread keeps of each stays in registers of its own."""
        return max(sum(self.numel(b) >= self.length * self.rows for b in self.body.loads), 1)

    def overwrites(self) -> bool:
        """Would a block of a team read what another overwrites? Only where more than the row's one value reads it."""
        targets = {m.item.target for m in self.group.members if m.item.target}
        wide = [m.value for m in self.group.members if m.role != ROW]
        return any(e.op == "load" and e.attr[0] in targets for e in walk(wide))
