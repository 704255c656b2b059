"""Column sums that a row kernel accumulates while it reads its rows (engine/fuse/column_reductions.py)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hipwright.engine.templates.rows.scope import RowScope


class ColumnAccumulator:
    """The sums of one kernel, by item: names[item].v[k] belongs to element k of this thread's part of each row."""

    def __init__(self, kernel: RowScope, count: str) -> None:
        """Open the loop over the rows that a block takes."""
        self.k, emit, kind = kernel, kernel.emit, kernel.body.index_type
        self.names = {item: emit.fresh(f"{item}_own") for item in kernel.group.crossed}
        self.before = emit.section()
        emit.open(f"for ({kind} row = blockIdx.x; row < {count}; row += {kernel.layout.crossed})")

    def declare(self, items: str) -> None:
        """Before the loop, now that it is known how a row lies in the threads; items: what says how many packs."""
        size = "items" if self.k.vec == "1" else f"items * {self.k.vec}"
        self.before.line(items)
        for name in self.names.values():
            self.before.line(f"Tile<float, {size}> {name} = {{}};  // of this thread's columns")

    def leave(self) -> None:
        """After the last row: the block's sums go to its row of what the sum of all is made from."""
        k, emit, vec, kind = self.k, self.k.emit, self.k.vec, self.k.body.index_type
        emit.close()
        emit.used |= {("store_tile", ""), ("Tile", "")}
        scale = "" if vec == "1" else f" * {vec}"
        step, width = k.body.as_index(f"{k.layout.threads}{scale}"), k.body.as_index(k.row_sweep.length)
        for item, name in self.names.items():
            pointer = f"{k.body.pointers[item]} + blockIdx.x * ({kind}){k.row_sweep.length}"
            emit.line(f"store_tile<items, {vec}>({pointer}, ({kind})threadIdx.x{scale}, {step}, {width}, {name});")
