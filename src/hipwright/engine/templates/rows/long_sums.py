"""Sums of so many floats a thread that one running float loses digits: a float over a tile, a double over the tiles.

Added one by one, n equal terms round alike and cost up to n u / 2 (Higham, "Accuracy and stability of numerical
algorithms", section 4.2), and terms below half a rounding of the sum are lost: the deviations of zeros from a small
mean. By tiles the error is that of one tile, whatever n is; a tile costs one addition of doubles. The squared
deviations of `Moments` are such a sum; their means are not, as each merge moves the mean by a share of a distance.
"""

from __future__ import annotations

from collections.abc import Sequence

from hipwright.engine.emit.statements import Emitter
from hipwright.engine.templates.rows.layout import RowLayout
from hipwright.engine.templates.rows.reducers import ReducerState

LONG_CHAIN = 512
"""Values that a thread adds one after another from which its sum goes by tiles: equal terms would lose 5e-6 of it."""


class LongSums:
    """The long sums of one loop over tiles; no sum where the layout has none."""

    def __init__(self, emit: Emitter, layout: RowLayout, made: Sequence[ReducerState]) -> None:
        self.emit, self.columns, self.vec = emit, layout.mapping == "columns", layout.vec
        long = layout.long_sums
        kinds = ("sum",) if self.columns else ("sum", "moments")  # ColumnDeviations have a total of their own
        sums = [s for s in made if s.kind in kinds and s.ctype == "float"] if long else []
        self.totals = [(s, emit.fresh(f"{s.name}_total")) for s in sums]
        self.opened = False

    def open(self) -> None:
        """Declares the totals before the loop; additions go to the tile's sum until `close`."""
        self.opened = True
        for state, total in self.totals:
            if state.kind == "sum":
                state.tile_sum = self.emit.fresh(f"{state.name}_tile")
            size, start = (f"[{self.vec}]", "{}") if self.columns else ("", "0.0")
            self.emit.line(f"double {total}{size} = {start};  // a float would lose digits over this many tiles")

    def open_tile(self) -> None:
        """Declares the sums of one tile; for columns those of one column."""
        for state, _ in self.totals:
            if state.tile_sum:
                self.emit.line(f"float {state.tile_sum} = 0.0f;")

    def close_tile(self, column: str) -> None:
        """Adds the tile's sums to the totals. column: "" or "[v]"."""
        for state, total in self.totals:
            if state.tile_sum:
                self.emit.line(f"{total}{column} += {state.tile_sum};")
            elif self.opened:
                self.emit.line(f"{total}{column} += {state.name}{column}.squares;")
                self.emit.line(f"{state.name}{column}.squares = 0.0f;")

    def close(self) -> None:
        """Adds the totals to the states behind the loop."""
        self.opened = False
        for state, total in self.totals:
            state.tile_sum = ""
            part = ".squares" if state.kind == "moments" else ""
            if self.columns:
                self.emit.line("#pragma unroll")
                self.emit.line(f"for (int v = 0; v < {self.vec}; ++v) {state.name}[v]{part} += (float){total}[v];")
            else:
                self.emit.line(f"{state.name}{part} += (float){total};")
