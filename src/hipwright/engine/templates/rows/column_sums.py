"""The fused column reduction: column sums that a row kernel accumulates while it reads its rows.

Which reductions are fused is decided in engine/fuse/column_reductions.py.
"""

from __future__ import annotations

from hipwright.engine.templates.base import Body
from hipwright.engine.templates.rows.layout import RowLayout


class ColumnSums:
    """The column sums of one kernel. names[item].v[k] belongs to element k of this thread's tile of each row."""

    def __init__(self, body: Body, layout: RowLayout, rows: str) -> None:
        """Opens the loop over the rows of a block; rows: their number, as text."""
        self.body, self.layout, emit, kind = body, layout, body.emit, body.index_type
        self.names = {item: emit.fresh(f"{item}_sums") for item in body.group.column_sums}
        self._before_loop = emit.section()
        emit.open(f"for ({kind} row = blockIdx.x; row < {rows}; row += {layout.sum_blocks})")

    def declare(self, items: str, vec: str) -> None:
        """Declares the sums before the loop; items: the declaration of the number of vectors of a thread."""
        size = "items" if vec == "1" else f"items * {vec}"
        self._before_loop.line(items)
        for name in self.names.values():
            self._before_loop.line(f"Tile<float, {size}> {name} = {{}};  // sums of this thread's columns")

    def store(self, length: str, vec: str) -> None:
        """Closes the loop and stores the block's sums as its row of the partial sums."""
        body, emit, kind = self.body, self.body.emit, self.body.index_type
        emit.close()
        emit.used |= {"store_tile", "Tile"}
        scale = "" if vec == "1" else f" * {vec}"
        step, bound = body.as_index(f"{self.layout.threads}{scale}"), body.as_index(length)
        for item, name in self.names.items():
            pointer = f"{body.pointers[item]} + blockIdx.x * ({kind}){length}"
            emit.line(f"store_tile<items, {vec}>({pointer}, ({kind})threadIdx.x{scale}, {step}, {bound}, {name});")
