"""A team of blocks shares a row that is long for one: each takes every team-th tile, leaves its part of the reductions
in memory, and reads the others'.

Where something follows the reductions the blocks wait for one another, and take their turns by a ticket: a block only
waits for blocks with earlier tickets, or as early ones, so there is progress as long as a team fits the device. They
hand over parts of floats in words that tell whether they are there (engine/device/cooperative.h); for others, and of
columns, arrivals are counted between fences. Where nothing follows, the block that comes last does the rest. Parts are
combined in one order: results do not vary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hipwright.engine.emit.builder import cname
from hipwright.engine.emit.function import KernelParameter
from hipwright.engine.ir.index import Ix, Sym, ix, product
from hipwright.engine.templates.base import Body, EmittedKernel
from hipwright.engine.templates.rows.reducers import ReducerState

if TYPE_CHECKING:
    from hipwright.engine.templates.rows.scope import RowLayout

SMALL_TOTAL, SMALL_TEAM = 1 << 22, 16
"""Elements up to which a team stays this small: caches hold them all, and the cpu target keeps few blocks at once."""


@dataclass(eq=False)
class CooperativeBlocks:
    """The blocks of a row. size: the knob that bounds them."""

    body: Body
    size: str
    columns: bool
    waits: bool = False
    rounds: int = 0
    groups: str = ""
    hand: bool = False  # do blocks hand one another words?
    handed: int = 0  # of a part
    buffers: dict[str, tuple[list[Ix], str]] = field(default_factory=dict)

    def prologue(self, count: str, grid: str) -> str:
        """Declares nothing yet (whether blocks wait is not known); returns the grid."""
        self.groups = grid
        self.body.knobs.add(self.size)
        self.body.extra.append(KernelParameter("int", "team"))
        self.place = self.body.emit.section()
        return f"({grid}) * {self.body.name}_team"

    def open(self, *, waits: bool, floats: bool) -> None:
        """This block's row and its part of it. floats: are all states?"""
        self.waits, self.hand = waits, waits and floats and not self.columns
        emit, kind = self.body.emit, self.body.index_type
        number = "(int)blockIdx.x"
        if waits:
            emit.used.add(("take_block_ticket", ""))
            number = "ticket"
            counter = f"reinterpret_cast<int*>({self.hands})" if self.hand else self.arrived
            self.place.line(f"const int ticket = take_block_ticket({counter});")
        self.place.line(f"const {kind} row = {number} / team;")
        self.place.line(f"const int part = {number} % team;")

    @property
    def arrived(self) -> str:
        """The counters: tickets first, then one a team."""
        name = f"{self.body.name}_arrived"
        outer = product(self.body.group.outer)
        self._buffer(name, [outer + 1], "int32")
        return self.body.pointers[name]

    @property
    def hands(self) -> str:
        """What blocks hand one another: the ticket first, then each state's parts, two floats a word."""
        name = f"{self.body.name}_hands"
        self._buffer(name, [ix(1)], "int64")
        return self.body.pointers[name]

    def _buffer(self, name: str, shape: list[Ix], dtype: str) -> None:
        if name not in self.buffers:
            self.buffers[name] = (shape, dtype)
            self.body.need.dtypes[name] = dtype
            self.body.pointers[name] = self.body.emit.fresh(cname(name))
            self.body.scratch.append(name)

    def combine(self, made: Sequence[ReducerState], layout: RowLayout) -> None:
        """Every state over all blocks of the team."""
        emit, body = self.body.emit, self.body
        self.rounds += 1
        if self.hand:
            self._hand(made, layout)
            return
        for s in made:
            dtype, words = s.words()
            size = product(body.group.outer) * ix(Sym(self.size)) * words
            if self.columns:
                size = self._padded(layout) * ix(Sym(self.size)) * words
            self._buffer(f"{body.name}_{s.name}", [size], dtype)
            pointer = body.pointers[f"{body.name}_{s.name}"]
            if s.struct != s.ctype:
                emit.line(f"{s.struct}* const {s.name}_parts = reinterpret_cast<{s.struct}*>({pointer});")
            else:
                emit.line(f"{s.struct}* const {s.name}_parts = {pointer};")
            self._leave(s, layout)
        self._meet()
        for s in made:
            self._collect(s, layout)

    def _hand(self, made: Sequence[ReducerState], layout: RowLayout) -> None:
        """The blocks' parts of all states go out, and come in."""
        emit, name, outer = self.body.emit, f"{self.body.name}_hands", product(self.body.group.outer)
        emit.used |= {("publish_partial", ""), ("combine_published_partials", "")}
        before = f"{emit.position(outer)} * team * "
        for s in made:
            emit.used |= {(f"block_reduce_{s.kind}", "")} if s.by_tile else set()
            pairs = (s.words()[1] + 1) // 2
            times = f" * {pairs}" if pairs > 1 else ""
            first = f"{self.hands} + 1" + (f" + {before}{self.handed}" if self.handed else "")
            emit.line(f"long* const {s.name}_parts = {first} + row * team{times};")
            emit.line(f"if (threadIdx.x == 0) publish_partial({s.name}_parts + part{times}, {s.name});")
            self.handed += pairs
        for s in made:
            gathered = (
                f"combine_published_partials<{layout.threads}>({s.name}_parts, team, {s.value_start}, {s.operator}())"
            )
            emit.line(f"{s.name} = {gathered};")
        self.buffers[name] = ([outer * ix(Sym(self.size)) * self.handed + 1], "int64")

    def _padded(self, layout: RowLayout) -> Ix:
        """Packs of columns times their width: at most a pack more than there are, on each line."""
        kept = [k for k in range(len(self.body.group.space)) if k not in self.body.group.dims]
        lines = product([self.body.group.space[k] for k in kept[:-1]])
        return lines * (
            self.body.group.space[kept[-1]] + ix(Sym(layout.vec))
            if not layout.vec.isdigit()
            else self.body.group.space[kept[-1]] + int(layout.vec)
        )

    def _leave(self, s: ReducerState, layout: RowLayout) -> None:
        emit = self.body.emit
        if not self.columns:
            emit.line(f"if (threadIdx.x == 0) {s.name}_parts[row * team + part] = {s.name};")
            return
        emit.open("if (live && lane == 0)")
        emit.line("#pragma unroll")
        emit.open(f"for (int v = 0; v < {layout.vec}; ++v)")
        emit.line(f"{s.name}_parts[(pack * team + part) * {layout.vec} + v] = {s.name}[v];")
        emit.close()
        emit.close()

    def _meet(self) -> None:
        emit = self.body.emit
        counter = f"{self.arrived} + 1 + row"
        if self.columns:
            emit.line("__syncthreads();")
        if self.waits:
            emit.used.add(("cooperative_barrier", ""))
            emit.line(f"cooperative_barrier({counter}, team * {self.rounds});")
        else:
            emit.used.add(("is_last_block", ""))
            emit.line(f"if (!is_last_block({counter}, team)) return;")

    def _collect(self, s: ReducerState, layout: RowLayout) -> None:
        emit = self.body.emit
        start = s.value_start
        if not self.columns:
            emit.used.add(("combine_partials", ""))
            emit.used |= {("lane_reduce_moments", "")} if s.kind == "moments" else set()
            call = f"combine_partials<{s.struct}>({s.name}_parts + row * team, team, {start}"
            emit.line(f"{s.name} = {call}, {s.operator}());")
            return
        emit.line("#pragma unroll")
        emit.open(f"for (int v = 0; v < {layout.vec}; ++v)")
        emit.line(f"{s.name}[v] = {start};")
        emit.open(f"for (int p = lane; p < team; p += {layout.threads} / {layout.share})")
        parts = f"{s.name}_parts[(pack * team + p) * {layout.vec} + v]"
        emit.line(f"{s.name}[v] = {s.operator}()({s.name}[v], {parts});")
        emit.close()
        emit.close()
        emit.line(f"column_reduce<{layout.threads}, {layout.share}, {layout.vec}>({s.name}, {s.operator}());")

    def finish(self, kernel: EmittedKernel, tiles: str, total: str, blocks: str) -> None:
        """What the plan does for the team: its size, its memory. blocks: to how many a row gives full packs, or ""."""
        name = f"{self.body.name}_team"
        kernel.arguments.append(name)
        small = f"min({SMALL_TEAM}, {blocks})" if blocks else str(SMALL_TEAM)
        most = f"({self.size} if {total} > {SMALL_TOTAL} else min({self.size}, {small}))" if self.waits else self.size
        kernel.before.append(f"{name} = max(1, min({most}, {tiles}))")
        kernel.scratch |= self.buffers
        kernel.zeroed |= {b for b in self.buffers if b.endswith(("_arrived", "_hands"))}
