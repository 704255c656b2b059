"""One pass of a row kernel over its row: the tiles in order, then the reductions combined over the row's threads."""

from __future__ import annotations

from hipwright.engine.fuse.groups import GroupMember
from hipwright.engine.templates.rows.reducers import ReducerState
from hipwright.engine.templates.rows.state import RowState
from hipwright.engine.templates.rows.tiles import Tiles
from hipwright.engine.templates.sweep import Sweep


class RowPass:
    """One pass: the reductions `made` and the members `full` that are stored along the row."""

    def __init__(
        self, state: RowState, sweep: Sweep, level: int, made: list[ReducerState], full: list[GroupMember]
    ) -> None:
        self.state, self.sweep, self.level, self.made, self.full = state, sweep, level, made, full
        self.emit, self.layout = state.emit, state.layout

    def write(self) -> None:
        """Writes the pass."""
        k, emit, sweep = self.state, self.emit, self.sweep
        values = [s.value for s in self.made] + [m.value for m in self.full]
        emit.count(values)
        if not k.columns:
            k.hoist(values, self.level)
        for s in self.made:
            self._declare(s)
            for member, suffix in s.results.items():
                k.body.rows[member] = f"{s.name}{'[v]' if k.columns else ''}{suffix}"
        if k.blocks and self.made:
            k.blocks.begin(self.made, self.layout)
        kept = (k.registers or k.column_sums is not None) and sweep is k.row_sweep
        vec = k.vec if sweep is k.row_sweep or k.columns else self.layout.vec
        if not kept and not k.columns and not sweep.vectorises(values, self.full):
            vec = "1"  # kept values lie in registers in vectors, whatever a later pass loads
        tiles = Tiles(k, sweep, self.level, self.made, self.full, vec)
        if k.peeled:
            tiles.peeled_elements(keep=kept)
        if kept and k.row_cache and self.level == 0:
            tiles.fill_row_cache()
        if kept:
            tiles.first()
        if kept and k.row_cache:
            tiles.cached()
        if not (kept and k.whole and not k.blocks):
            tiles.rest(after_first=kept)
        self._combine()

    def _declare(self, state: ReducerState) -> None:
        emit, vec = self.emit, self.layout.vec
        if not self.state.columns:
            emit.line(f"{state.struct} {state.name} = {state.start};")
            return
        emit.line(f"{state.struct} {state.name}[{vec}];")
        emit.line("#pragma unroll")
        emit.line(f"for (int v = 0; v < {vec}; ++v) {state.name}[v] = {state.value_start};")

    def _combine(self) -> None:
        """Combines the states of the threads and blocks that share a row."""
        emit, layout = self.emit, self.layout
        combined = self._combine_together()
        for s in self.made:
            op = f"{s.operator}()"
            if s in combined:
                continue
            if self.state.columns:
                emit.used.add("column_reduce")
                emit.line(f"column_reduce<{layout.threads}, {layout.share}, {layout.vec}>({s.name}, {op});")
            elif layout.mapping == "block":
                emit.used.add("reduce_moments" if s.kind == "moments" else "block_reduce")
                emit.line(f"{s.name} = block_reduce<{layout.threads}>({s.name}, {op});")
            else:
                emit.used.add("reduce_moments" if s.kind == "moments" else "lane_reduce")
                emit.line(f"{s.name} = lane_reduce<{layout.share}>({s.name}, {op});")
        if self.state.blocks and self.made:
            self.state.blocks.combine(self.made, layout)

    def _combine_together(self) -> list[ReducerState]:
        """Combines plain values of one operator over the block with the barriers of one; returns those combined."""
        done: list[ReducerState] = []
        plain = [s for s in self.made if self.layout.mapping == "block" and s.struct == s.ctype and s.kind != "moments"]
        for kind in dict.fromkeys((s.operator, s.ctype) for s in plain):
            same = [s for s in plain if (s.operator, s.ctype) == kind]
            if len(same) < 2:
                continue
            emit, array = self.emit, self.emit.fresh(f"{same[0].name}_all")
            emit.used.add("block_reduce_array")
            emit.line(f"{kind[1]} {array}[{len(same)}] = {{{', '.join(s.name for s in same)}}};")
            emit.line(f"block_reduce_array<{self.layout.threads}>({array}, {kind[0]}());")
            for number, s in enumerate(same):
                emit.line(f"{s.name} = {array}[{number}];")
            done += same
        return done
