"""Rows: reductions and what is computed from them, in passes over the row (softmax, norms, losses, pooled means).

Mappings: `block` one row per block, `lanes` one row per LANES neighbouring lanes, `columns` neighbouring threads on
neighbouring rows (for strided reductions, so that memory is read along the kept dimension). A row is processed in tiles
(hipwright/tile.h); its first tile can stay in registers between passes, the rest of a longer row is loaded again.
Cooperative blocks share a long row (cooperative.py).
"""

from __future__ import annotations

from collections.abc import Callable

from hipwright.engine.fuse.groups import FULL, PART, ROW
from hipwright.engine.ir.expr import COMPUTE, E
from hipwright.engine.ir.index import Var, product
from hipwright.engine.ir.index_text import to_python
from hipwright.engine.templates.base import Body, EmittedKernel, fused
from hipwright.engine.templates.rows import row_cache, unaligned
from hipwright.engine.templates.rows.layout import RowLayout
from hipwright.engine.templates.rows.passes import RowPass
from hipwright.engine.templates.rows.reducers import MOMENTS, pairs, states
from hipwright.engine.templates.rows.row_cache import RowCache
from hipwright.engine.templates.rows.scope import column_of
from hipwright.engine.templates.rows.state import RowState
from hipwright.engine.templates.rows.unaligned import PeeledRows
from hipwright.engine.templates.sweep import VECTOR_LENGTH, Sweep

FLOAT_STATES = (*MOMENTS, "sum", "prod", "max", "min")
"""Reductions whose states hold values alone."""
NAMES = (
    "row r c v k col line width start tile count base active lane first items vectors block_rank blocks ticket t "
    "segment bound arrived"
)


def rows(body: Body, layout: RowLayout) -> EmittedKernel:
    """The kernel of a group with reductions."""
    return RowKernel(body, layout).kernel()


class RowKernel(RowState):
    """Writes one kernel; `emit` receives the statements."""

    def kernel(self) -> EmittedKernel:
        """The finished kernel."""
        body, group, emit = self.body, self.group, self.emit
        emit.taken |= {*NAMES.split(), *unaligned.NAMES, *row_cache.NAMES}
        emit.taken |= {f"{letter}{k}" for letter in "ij" for k in range(8)}
        self._name_variables()
        grid = self._locate_row()
        for line in self.outer_lines:
            emit.line(line)
        emit.read = self._reader(emit.read)
        self._write_passes()
        if self.column_sums:
            self.column_sums.store(self.row_sweep.length, self.vec)
        threads = self.layout.threads
        free = self.layout.one_block or self.layout.prefetch_operands  # or ptxas delays loads to stay at 32 registers
        bounds = f"{threads}, 1" if free else threads
        kernel = body.finish(grid, threads, fused(group), self.layout.launch_bounds or bounds)
        kernel.static_bounds = self.layout.static_bounds
        if self.peeled:
            kernel.unaligned_rows = True
            kernel.aligned |= {b: VECTOR_LENGTH.get(body.need.dtypes[b], 4) for b in self.vector_buffers}
        if self.blocks:
            self.blocks.finish(
                kernel, self._tiles(), to_python(product(group.space)), self._full_blocks(), self.layout.threads
            )
        return kernel

    def _reader(self, plain: Callable[[E, str], str]) -> Callable[[E, str], str]:
        """Prints a load as an element of its tile, if it has one."""

        def read(e: E, position: str) -> str:
            key = (e.attr[0], e.attr[1].key)
            if key in self.whole_tiles:
                return f"{self.whole_tiles[key]}.v[{self.kept_index}]"
            name = self.tiles.get(key)
            return f"{name}.v[{self.index}]" if name else plain(e, position)

        return read

    # ------------------------------------------------------------ passes

    def _write_passes(self) -> None:
        """Writes all passes; in two branches where an online softmax is needed only if the row exceeds registers."""
        layout, emit = self.layout, self.emit
        simple = not self.blocks and not layout.segments and not layout.whole
        if not (simple and layout.registers and layout.rest_items == "1" and pairs(self.group.members)):
            self._write_branch()
            return
        taken = set(emit.taken)
        for self.fits in (True, False):
            emit.taken, self.kept = set(taken), {}
            self.prefetched, self.prefetch_done, self.row_sweep.tiles = {}, False, {}
            self._write_branch()
            emit.close()

    def _write_branch(self) -> None:
        self._plan()
        for level in range(self.last_level + 1):
            self._write_pass(level)

    def _plan(self) -> None:
        """Decides what stays in registers, and declares it."""
        layout, emit = self.layout, self.emit
        self._analyse()
        body = self.body
        body.use_fast_functions([m.value for m in body.stored if m.role in (FULL, PART)])
        if all(dtype in ("float16", "bfloat16") for _, dtype in body.need.stores.values()):
            sums = [m for m in self.group.members if m.item.name in pairs(self.group.members)]
            emit.instead |= {m.value.id: "exp_fast" for m in sums if m.value.ctype == "float"}
        self._choose_vectors()
        step = self.threads.count if self.columns or self.vec == "1" else f"{self.threads.count} * {self.vec}"
        self._open_branch(f"{step} * {layout.items}")
        self.registers = layout.registers and self.fits is not False and self._choose_kept()
        self.items = layout.items if self.fits is not False else "2"
        stays = layout.registers and self.whole and not self.blocks
        if self.column_sums or (self.registers and stays and not self.fits):
            self.items = "items"
            step_text = step if " " not in step else f"({step})"
            line = f"constexpr int items = ({self.row_sweep.known_length} + {step_text} - 1) / {step_text};"
            self.column_sums.declare(line, self.vec) if self.column_sums else emit.line(line)
        self._declare_kept()
        if self.blocks:
            reductions = [m.item for m in self.group.members if m.role == "red"]
            floats = all(i.reduction in FLOAT_STATES and COMPUTE[i.dtype] == "float" for i in reductions)
            self.blocks.open(waits=self.last_level > 0, floats=floats)
        if not self.columns:
            self._load_places()
        if layout.prefetch and not self.blocks and not self.columns:
            self._prefetch(ROW)
        if self.last_level > 0 and not self.columns:
            self._prefetch(FULL)

    def _choose_vectors(self) -> None:
        """Chooses between vectors and single elements, and peels unaligned rows."""
        layout = self.layout
        members = [m for level in range(self.last_level + 1) for m in self.members_at(level)]
        stores = [m for m in members if m.role == FULL]
        self.vec = layout.vec
        if not self.columns and not self.row_sweep.vectorises([m.value for m in members], stores):
            self.vec = "1"
        if layout.peeled and self.vec != "1" and not self.peeled:
            self.peeled = PeeledRows(self.row_sweep, self.vec)
            self.peeled.declare(self.emit, self.body.index_type)

    def _open_branch(self, span: str) -> None:
        """Opens the branch of rows that fit the registers of the threads that share them, or that of all others."""
        if self.fits:
            length = self.row_sweep.known_length
            if self.layout.several_rows:
                self.emit.used.add("is_known_at_most")
                kind = self.body.index_type
                self.emit.open(f"if (is_known_at_most<{kind}>({length}, {span}))")
            else:
                self.emit.open(f"if ({length} <= {span})")
        elif self.fits is not None:
            self.emit.open("else")

    def _declare_kept(self) -> None:
        """Declares the arrays of kept values, the size of chunks, and the row cache."""
        layout, emit = self.layout, self.emit
        size = f"{self.items} * {self.vec}" if self.vec != "1" else self.items
        layout.chunked = layout.chunked and self.registers
        for _, (e, _, name) in sorted(self.kept.items()):
            emit.line(f"{self.kept_type(e)} {name}[{size}];  // this thread's tile of the row")
            if self.peeled:
                emit.line(f"{self.kept_type(e)} {name}_peel[1];")
        if layout.chunked or (layout.rest_items == "chunks" and self.registers):
            most = "1" if self.columns else f"{layout.items} < 2 ? 1 : 2"
            emit.line(f"constexpr int chunk_items = {most};  // vectors that are processed at a time")
        elif layout.rest_items == "chunks":
            layout.rest_items = layout.items
        self.row_cache = RowCache(self, layout.cache_tiles) if layout.cache_tiles else None
        if self.row_cache and self.row_cache.applies():
            self.row_cache.declare()
        else:
            self.row_cache, layout.cache_tiles = None, ""

    def _write_pass(self, level: int) -> None:
        """Writes the reductions and stores of one pass."""
        reductions = [m for m in self.members_at(level) if m.role == "red"]
        full = [m for m in self.members_at(level) if m.role == FULL]
        made = states(self.emit, reductions, self.online, self.ignoring_nan)
        if made or full:
            RowPass(self, self.row_sweep, level, made, full).write()
        for column in self.group.columns.values():
            self._write_part(level, column)
        for member in [m for m in self.group.members if m.role == "red" and m.item.name in self.body.need.stores]:
            if self.levels[member.item.name] == level:
                self.store_row(member, self.body.rows[member.item.name])
        for member in self.body.stored:
            if member.role == ROW and max(self.levels[f"={member.item.name}"], 1) == level + 1:
                self.store_row(member, None)

    def _write_part(self, level: int, column: Var) -> None:
        """Writes the values that have columns of their own: a loop over these."""
        assert column.size is not None
        mine = [
            m
            for m in self.body.stored
            if m.role == PART and self.levels[f"={m.item.name}"] == level and column_of(m) == column.size
        ]
        if mine:
            length = self.emit.position(column.size)
            RowPass(self, Sweep("c", length, column.size, self.inner), level, [], mine).write()
