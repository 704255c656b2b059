"""Moments of columns in a loop over tiles: sums of deviations from pivots (hipwright/column_moments.h).

A thread has few values of each of several columns in a tile: a merge of the tile's moments would cost more than the
values do, and has divisions. Behind the loop the sums become moments.
"""

from __future__ import annotations

from collections.abc import Sequence

from hipwright.engine.emit.statements import Emitter
from hipwright.engine.templates.rows.layout import RowLayout
from hipwright.engine.templates.rows.reducers import ReducerState


class ColumnMoments:
    """The moments that one loop over tiles of columns accumulates; none with other mappings."""

    def __init__(self, emit: Emitter, layout: RowLayout, made: Sequence[ReducerState]) -> None:
        self.emit, self.layout = emit, layout
        wanted = [s for s in made if s.kind == "moments"] if layout.mapping == "columns" else []
        self.names = {s: emit.fresh(f"{s.name}_deviations") for s in wanted}
        self.opened = False

    def open(self) -> None:
        """Declares the deviations before the loop; tiles are added to them until `close`."""
        self.opened = True
        for state, name in self.names.items():
            self.emit.used.add("ColumnDeviations")
            long = ", true" if self.layout.long_sums and state.ctype == "float" else ""
            self.emit.line(f"ColumnDeviations<{state.ctype}, {self.layout.vec}{long}> {name} = {{}};")

    def open_tile(self, items: str) -> None:
        """Moves the pivots from time to time, between a tile's loads and its values. items: the tile's rows."""
        for name in self.names.values() if self.opened else ():
            self.emit.line(f"move_pivots<{items}>({name});")

    def add(self, state: ReducerState, count: str) -> bool:
        """Adds a tile of column v to its deviations; returns whether the state has any. count: of values, as text."""
        if not self.opened or state not in self.names:
            return False
        self.emit.line(f"add_deviations({self.names[state]}, v, {state.name}_tile, {count});")
        return True

    def close_tile(self) -> None:
        """Counts a tile's values, behind the loop over its columns."""
        for name in self.names.values() if self.opened else ():
            self.emit.line(f"{name}.count += count;")

    def close(self) -> None:
        """Adds the deviations to the moments behind the loop."""
        self.opened = False
        for state, name in self.names.items():
            self.emit.line(f"finish_moments({state.name}, {name});")
