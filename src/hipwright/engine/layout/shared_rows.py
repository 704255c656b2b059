"""How many blocks share a row: cooperative blocks serve long rows, and rows too few to fill the device."""

from __future__ import annotations

from hipwright.engine.ir.expr import indices, walk
from hipwright.engine.layout.planner import (
    COOP_KEPT,
    COOP_THREADS,
    DEVICE_ELEMENTS,
    FEW_BLOCKS,
    MOST_COOP_BLOCKS,
    power,
)
from hipwright.engine.layout.reductions import ReductionPlanner
from hipwright.engine.templates.rows.cooperative import small_share
from hipwright.engine.templates.rows.layout import KEPT_VALUES

SPREAD_ROWS = 64
"""Rows that occupy the device long enough, where all are a few megabytes: 64 sums of 16,384 elements behind other work
took an H200 7.5 us by a block each, 8.8 by two (counters are zeroed before); 96 of 32,000 in short runs 16.2 and 13.8.
"""
SHORT_RUN = 1024  # elements of a dense run below which one tile takes several
MOST_BLOCKS = 1024  # blocks that keep any of today's devices busy
LEAST_WHOLE = 3 << 14
"""Elements of a whole tensor from which blocks share it: one block would load six tiles of 8,192, one after the other,
and a second launch costs less. An estimate, not measured."""
PART_OF_ROW = 8192  # elements below which a block more costs more than it brings
COOP_ROW_VALUES = 32
"""Elements that a thread keeps where cooperative blocks wait for one another: together they hold the whole row, and
four such blocks fill the registers of a multiprocessor. With half as many the rest of the row is read from L2 again."""
WASTE = 0.15  # share of a tile beyond the end of a run from which one tile takes several runs
HUGE_ROW = 1 << 21  # elements from which twice as many blocks share a row, so that fewer rows share the cache


class SharedRowPlanner(ReductionPlanner):
    """Decides whether blocks share the rows of a group with reductions, and how many."""

    def wastes_tiles(self, last: int) -> bool:
        """Whether tiles that end with their runs are partly empty, and all is read along both dimensions or none."""
        tile = COOP_THREADS * COOP_KEPT
        if len(self.group.dims) != 2 or -(-last // tile) * tile <= (1 + WASTE) * last:
            return False
        outer, inner = (self.group.variables[d] for d in self.group.dims)
        used = [p.atoms() for e in walk([m.value for m in self.group.members]) for p in indices(e)]
        return not any(outer in atoms and inner not in atoms for atoms in used)

    def wanted_blocks(self) -> int:
        """The number of blocks that share a row before limits."""
        if self.follows:
            whole = -(-self.length // (COOP_THREADS * self.kept_values()))
            return whole if self.length > self.block_capacity() else min(2 * whole, FEW_BLOCKS // max(self.rows, 1))
        part = PART_OF_ROW // (4 if self.gathers() else 2 if self.rows == 1 else 1)
        return min(MOST_BLOCKS // max(self.rows, 1), self.length * self.run // part)

    def kept_values(self) -> int:
        """Values of the reduced inputs that a thread keeps where blocks wait; fewer where tiles are partly empty."""
        if self.keeps_halves():
            return 2 * COOP_ROW_VALUES
        kept = max(COOP_ROW_VALUES // max(len(self.inputs_along_row("red")), 1), COOP_KEPT)
        last = self.c.hint(self.group.space[self.group.dims[-1]])
        whole = self.length if self.reduces_last_dims() or last < SHORT_RUN or self.wastes_tiles(last) else last
        tile = COOP_THREADS * kept
        return kept // 2 if kept > COOP_KEPT and -(-whole // tile) * tile > (1 + WASTE) * whole else kept

    def reduces_last_dims(self) -> bool:
        """Whether the reduced dimensions are the last ones."""
        group = self.group
        return list(group.dims) == list(range(len(group.space) - len(group.dims), len(group.space)))

    def inputs_along_row(self, *roles: str) -> set[str]:
        """Inputs along the row that members of these roles read; of any role without arguments."""
        values = [m.value for m in self.group.members if not roles or m.role in roles]
        loads = {e.attr[0] for e in walk(values) if e.op == "load"}
        return {b for b in loads if self.numel(b) >= self.length}

    def keeps_halves(self) -> bool:
        """Whether rows stay in registers as half types, two a register: where the one input is reduced unchanged."""
        reds = [m.value for m in self.group.members if m.role == "red"]
        halves = all(e.op == "load" and e.attr[2] in ("float16", "bfloat16") for e in reds)
        return halves and self.follows and self.reduces_last_dims() and len(self.inputs_along_row("red")) == 1

    def block_capacity(self) -> int:
        """Elements of a row that the largest block keeps in registers."""
        return 1024 * KEPT_VALUES * (2 if self.keeps_halves() else 1)

    def cooperative_block_count(self) -> int:
        """The default number of cooperative blocks. Blocks that wait for one another must all run at once."""
        waiting = 2 * MOST_COOP_BLOCKS if self.length >= HUGE_ROW else MOST_COOP_BLOCKS
        most = waiting if self.follows else MOST_BLOCKS
        blocks = max(self.wanted_blocks(), small_share(self.rows, self.length) if self.follows else 0)
        return max(min(power(blocks), most), 2)

    def _least_total(self) -> int:
        """Elements of all rows from which blocks that wait for nothing share them."""
        return 1 << 15 if self.gathers() else LEAST_WHOLE if self.rows == 1 else 1 << 16

    def combines_apart(self) -> bool:
        """Whether a second launch combines the partials of blocks that wait for nothing: by default those of one row,
        for which counters would be zeroed by a launch of their own.
        """
        if self.follows:
            return False
        return bool(
            self.choose(f"combine:{self.body.name}", ("last", "apart"), "apart" if self.rows == 1 else "last")
            == "apart"
        )

    def cooperates(self, blocks: int, share: int) -> bool:
        """Whether cooperative blocks share a row: by default where rows are long, or too few to fill the device."""
        if self.length < PART_OF_ROW // 2 or self.overwrites():
            return False
        total = self.rows * self.length * self.run  # small totals do not pay for zeroing the counters
        if self.follows:
            default = share >= 2 and (self.length > self.block_capacity() or (share >= 4 and total >= 1 << 20))
        else:
            default = share >= 2 and blocks < FEW_BLOCKS and total >= self._least_total()
            few = (2 if len(self.group.dims) > 1 else 4) * DEVICE_ELEMENTS
            default = default and not (self.rows >= SPREAD_ROWS and total <= few)
        return bool(self.choose(f"cooperative:{self.body.name}", (False, True), default))
