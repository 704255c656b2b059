"""Default layout of pointwise kernels whose threads keep the values of their columns for several rows."""

from __future__ import annotations

from collections.abc import Sequence

from hipwright.engine.ir.expr import E, walk
from hipwright.engine.layout.planner import SIZES, LayoutPlanner, power
from hipwright.engine.templates.pointwise.column_values import loads_beside
from hipwright.engine.templates.rows.layout import RowLayout

LEAST_THREADS = 120_000
"""Threads that must remain: 938 blocks of 128, seven for each multiprocessor of an H200 and three for each compute unit
of an MI300X."""
MOST_ROWS = 16
MOST_KEPT = 48
"""Registers for the values of a thread's columns."""
WORDS_AT_ONCE = 16
"""Registers for the vectors that a thread loads at once."""
SHORTEST_VECTOR = 8
"""Bytes of an access below which many rows at once do not pay."""
QUARTER = 4
"""Bytes of an element for one byte that is read of its column, in each row."""


class KeptColumns:
    """What one kernel reads of its columns and of its own elements. kept: the values of columns (column_values.py)."""

    def __init__(self, planner: LayoutPlanner, kept: Sequence[E], last: int, total: int) -> None:
        self.planner, self.kept, self.last, self.total = planner, kept, last, total
        values = [m.value for m in planner.body.stored]
        own = loads_beside(values, {e.id for e in kept})
        self.column_bytes = self._bytes([e for e in walk(kept) if e.op == "load"])
        self.own_bytes = self._bytes([e for e in own if planner.numel(e.attr[0]) >= total])
        self.vec = planner.vector([last])
        while self.vec > 1 and len(kept) * self.vec > MOST_KEPT:
            self.vec //= 2

    @staticmethod
    def _bytes(loads: Sequence[E]) -> int:
        found = {(e.attr[0], e.attr[1].key): SIZES.get(e.attr[2], 4) for e in loads}
        return sum(found.values())

    @property
    def rows(self) -> int:
        """Rows of a thread: so many that its columns are a quarter of what it reads, while enough threads remain."""
        rows = min(power(-(-QUARTER * self.column_bytes // max(self.own_bytes, 1))), MOST_ROWS)
        while rows > 1 and self.total // self.vec < rows * LEAST_THREADS:
            rows //= 2
        return rows

    def pays(self) -> bool:
        """Whether the columns are more to read than the elements, or are computed."""
        wide = self.vec * max(self.own_bytes, 1) >= SHORTEST_VECTOR
        computed = any(a.op == "fn" for a in walk(self.kept))
        return wide and self.rows > 1 and (computed or self.column_bytes > self.own_bytes)

    def layout(self) -> RowLayout:
        """The layout: lanes for short rows, else blocks of 64 or 128 threads, of which few are beyond the row."""
        planner, vectors = self.planner, -(-self.last // self.vec)
        if vectors <= 32:
            lanes = min(max(power(vectors), 4), 32)
            layout = RowLayout("lanes", planner.knob("BLOCK", 128), planner.knob("LANES", lanes))
        else:
            threads = min((128, 64), key=lambda size: -(-vectors // size) * size)
            layout = RowLayout("block", planner.knob("ROW_BLOCK", threads))
        words = max(self.vec * self.own_bytes // 4, 1)
        at_once = min(max(WORDS_AT_ONCE // words, 1), 4)
        layout.vec = planner.knob("ROW_VEC", self.vec, planner.widest())
        layout.rows = planner.knob("COLUMN_ROWS", self.rows)
        layout.items = planner.knob("ROWS_AT_ONCE", min(at_once, self.rows))
        return layout
