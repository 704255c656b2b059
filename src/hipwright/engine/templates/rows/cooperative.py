"""Cooperative blocks: several blocks share a long row. Each takes every n-th tile and publishes its partial reductions.

Where something follows the reductions, the blocks wait for one another and take tiles in the order of a ticket: a block
waits only for blocks with earlier tickets, or of its own row, so there is progress as long as the blocks of a row fit
the device. They exchange partials of floats in words that tell whether they are complete (hipwright/cooperative.h);
for other states, and for columns, arrivals are counted between fences. Where nothing follows, the last block to arrive
does the rest, or a second launch of the kernel by one block for each row, for which no counter is zeroed before and no
block fences. Partials are combined in a fixed order: results do not vary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from hipwright.engine.emit.builder import cname
from hipwright.engine.emit.function import KernelParameter
from hipwright.engine.ir.index import Ix, Sym, ix, product
from hipwright.engine.ir.index_text import to_python
from hipwright.engine.templates.base import Body, EmittedKernel
from hipwright.engine.templates.rows.layout import RowLayout
from hipwright.engine.templates.rows.reducers import ReducerState

SMALL_TOTAL, SMALL_BLOCKS, SMALL_THREADS = 1 << 21, 64, 1 << 14
"""Elements up to which a row has only so many blocks, with so many threads in all: what the cpu target, which runs
cases of this size (verify/oracle.py), keeps at once. With 16 blocks up to twice as many elements, x - x.mean() of 1024
x 4096 took an H200 145 us, where torch.compile's kernels take 13.
"""


def small_share(rows: int, length: int) -> int:
    """The blocks of a row that wait for one another where there are few elements; 0: all that are useful. The norm of
    391,680 elements and their quotients took an H200 9.0 us by 12 blocks, torch.compile's kernels 5.5.
    """
    return max(SMALL_BLOCKS // max(rows, 1), 1) if 2 * rows * length <= SMALL_TOTAL else 0


@dataclass(eq=False)
class CooperativeBlocks:
    """The cooperative blocks of a row. size: the knob that limits their number. apart: a second launch combines."""

    body: Body
    size: str
    columns: bool
    apart: bool = False
    waits: bool = False
    rounds: int = 0
    publishes: bool = False  # whether partials are exchanged in self-validating words
    published: int = 0  # words of a block
    buffers: dict[str, tuple[list[Ix], str]] = field(default_factory=dict)

    def reserve(self, grid: str) -> str:
        """Reserves the place of this block's row, declared by `open`; returns the grid. grid: one block per row."""
        self.body.knobs.add(self.size)
        self.body.extra.append(KernelParameter("int", "blocks"))
        if self.apart:
            self.body.extra.append(KernelParameter("int", "combining"))
        self.place = self.body.emit.section()
        return f"({grid}) * {self.body.name}_blocks"

    def open(self, *, waits: bool, floats: bool) -> None:
        """Declares this block's row and its rank among the row's blocks. floats: whether all states are of floats."""
        self.waits, self.publishes = waits, waits and floats and not self.columns
        emit, kind = self.body.emit, self.body.index_type
        number = "(int)blockIdx.x"
        if waits:
            emit.used.add("take_block_ticket")
            number = "ticket"
            counter = f"reinterpret_cast<int*>({self._partials})" if self.publishes else self._arrivals
            self.place.line(f"const int ticket = take_block_ticket({counter});")
        row = f"{number} / blocks"
        self.place.line(f"const {kind} row = {f'combining ? {number} : {row}' if self.apart else row};")
        self.place.line(f"const int block_rank = {number} % blocks;")

    def begin(self, made: Sequence[ReducerState], layout: RowLayout) -> None:
        """Begins what the blocks of a row do before their partials are combined."""
        if self.apart:
            for s in made:
                self._declare(s, layout)
            self.body.emit.open("if (!combining)")

    @property
    def _arrivals(self) -> str:
        """The counters: the ticket first, then one for each row."""
        name = f"{self.body.name}_arrivals"
        outer = product(self.body.group.outer)
        self._buffer(name, [outer + 1], "int32")
        return self.body.pointers[name]

    @property
    def _partials(self) -> str:
        """The published partials: the ticket first, then each state's partials, two floats in a word."""
        name = f"{self.body.name}_partials"
        self._buffer(name, [ix(1)], "int64")
        return self.body.pointers[name]

    def _buffer(self, name: str, shape: list[Ix], dtype: str) -> None:
        if name not in self.buffers:
            self.buffers[name] = (shape, dtype)
            self.body.need.dtypes[name] = dtype
            self.body.pointers[name] = self.body.emit.fresh(cname(name))
            self.body.scratch.append(name)

    # ------------------------------------------------------------ combining

    def combine(self, made: Sequence[ReducerState], layout: RowLayout) -> None:
        """Combines every state over the blocks of a row."""
        self.rounds += 1
        if self.publishes:
            self._exchange(made, layout)
            return
        for s in made:
            if not self.apart:
                self._declare(s, layout)
            self._store(s, layout)
        self._synchronise()
        for s in made:
            self._collect(s, layout)

    def _declare(self, s: ReducerState, layout: RowLayout) -> None:
        """Declares the memory of a state's partials."""
        body, (dtype, words) = self.body, s.memory()
        size = product(body.group.outer) * ix(Sym(self.size)) * words
        if self.columns:
            size = self._padded_columns(layout) * ix(Sym(self.size)) * words
        self._buffer(f"{body.name}_{s.name}", [size], dtype)
        pointer = body.pointers[f"{body.name}_{s.name}"]
        if s.struct != s.ctype:
            pointer = f"reinterpret_cast<{s.struct}*>({pointer})"
        body.emit.line(f"{s.struct}* const {s.name}_partials = {pointer};")

    def _exchange(self, made: Sequence[ReducerState], layout: RowLayout) -> None:
        """Publishes this block's partials of all states, and combines those of all blocks."""
        emit, name, outer = self.body.emit, f"{self.body.name}_partials", product(self.body.group.outer)
        emit.used |= {"publish_partial", "combine_published_partials"}
        before = f"{emit.position(outer)} * blocks * "
        for s in made:
            emit.used |= {f"reduce_{s.kind}"} if s.by_tile else set()
            words = (s.memory()[1] + 1) // 2
            times = f" * {words}" if words > 1 else ""
            first = f"{self._partials} + 1" + (f" + {before}{self.published}" if self.published else "")
            emit.line(f"long* const {s.name}_partials = {first} + row * blocks{times};")
            emit.line(f"if (threadIdx.x == 0) publish_partial({s.name}_partials + block_rank{times}, {s.name});")
            self.published += words
        for s in made:
            arguments = f"{s.name}_partials, blocks, {s.value_start}, {s.operator}()"
            emit.line(f"{s.name} = combine_published_partials<{layout.threads}>({arguments});")
        self.buffers[name] = ([outer * ix(Sym(self.size)) * self.published + 1], "int64")

    def _padded_columns(self, layout: RowLayout) -> Ix:
        """The columns of all blocks: at most a vector more on each line than there are columns, and a block more."""
        space = self.body.group.space
        outer = [k for k in range(len(space)) if k not in self.body.group.dims]
        vec, share = (int(s) if s.isdigit() else ix(Sym(s)) for s in (layout.vec, layout.share))
        return product([space[k] for k in outer[:-1]]) * (space[outer[-1]] + vec) + ix(vec) * share

    def _store(self, s: ReducerState, layout: RowLayout) -> None:
        """Stores this block's partial of a state."""
        emit = self.body.emit
        if not self.columns:
            emit.line(f"if (threadIdx.x == 0) {s.name}_partials[row * blocks + block_rank] = {s.name};")
            return
        emit.line("#pragma unroll")
        emit.open(f"for (int v = 0; v < {layout.vec}; ++v)")
        emit.line(f"if (lane != v % ({layout.threads} / {layout.share})) continue;")
        place = f"((row * blocks + block_rank) * {layout.vec} + v) * {layout.share} + threadIdx.x % {layout.share}"
        emit.line(f"{s.name}_partials[{place}] = {s.name}[v];")
        emit.close()

    def _synchronise(self) -> None:
        """Waits for the row's other blocks, or leaves all but the last one, or all of the first launch."""
        emit = self.body.emit
        if self.apart:
            emit.line("return;")
            emit.close()
            return
        counter = f"{self._arrivals} + 1 + row"
        if self.columns:
            emit.line("__syncthreads();")
        if self.waits:
            emit.used.add("cooperative_barrier")
            emit.line(f"cooperative_barrier({counter}, blocks * {self.rounds});")
        else:
            emit.used.add("is_last_block")
            emit.line(f"if (!is_last_block({counter}, blocks)) return;")

    def _collect(self, s: ReducerState, layout: RowLayout) -> None:
        """Combines the stored partials of a state."""
        emit = self.body.emit
        start = s.value_start
        if not self.columns:
            function = "combine_partials_by_block" if self.apart else "combine_partials"
            emit.used.add(function)
            emit.used |= {"reduce_moments"} if s.kind == "moments" else set()
            size = f"{layout.threads}, " if self.apart else ""
            call = f"{function}<{size}{s.struct}>({s.name}_partials + row * blocks, blocks, {start}"
            emit.line(f"{s.name} = {call}, {s.operator}());")
            return
        emit.used.add("combine_column_partials")
        sizes = f"{layout.threads}, {layout.share}, {layout.vec}"
        partials = f"{s.name}_partials + row * blocks * ({layout.vec} * {layout.share})"
        call = f"combine_column_partials<{sizes}>({s.name}, {partials}, blocks"
        emit.line(f"{call}, {start}, {s.operator}());")

    def finish(self, kernel: EmittedKernel, tiles: str, total: str, full_blocks: str, threads: str) -> None:
        """Adds what the plan computes: the number of blocks and their memory.

        tiles, total: the tiles of a row and the elements of all rows, as plan text. full_blocks: the blocks of a row
        that give each of their threads a vector, or "" for no such limit. threads: the knob of a block's threads.
        """
        name = f"{self.body.name}_blocks"
        kernel.arguments.append(name)
        if self.apart:
            kernel.arguments.append("0")
            kernel.combining_grid = to_python(product(self.body.group.outer))
        small = ", ".join(filter(None, [str(SMALL_BLOCKS), f"{SMALL_THREADS} // {threads}", full_blocks]))
        limit = f"({self.size} if {total} > {SMALL_TOTAL} else min({self.size}, {small}))" if self.waits else self.size
        kernel.before.append(f"{name} = max(1, min({limit}, {tiles}))")
        kernel.scratch |= self.buffers
        kernel.zeroed |= {b for b in self.buffers if b.endswith(("_arrivals", "_partials"))}
