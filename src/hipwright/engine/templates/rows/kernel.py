"""Rows: reductions and what is computed from them, in passes over the row (softmax, norms, losses, pooled means).

Mappings: `block` one row a block, `lanes` one row by LANES neighbouring lanes, `columns` neighbouring threads on
neighbouring rows (for strided reductions, so that memory is read along the kept dimension). A row goes by in tiles
(engine/device/tile.h); its first tile can stay in registers between passes, the rest of a longer row is read again.
A *team* of blocks shares a long row (templates/rows/team.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from hipwright.engine.fuse.groups import FULL, PART, ROW, GroupMember
from hipwright.engine.ir.expr import COMPUTE, STORAGE, E
from hipwright.engine.ir.index import Var, product
from hipwright.engine.ir.index_text import to_python
from hipwright.engine.templates.base import Body, EmittedKernel, fused
from hipwright.engine.templates.rows.edges import NAMES as EDGES
from hipwright.engine.templates.rows.edges import UnalignedRows
from hipwright.engine.templates.rows.reducers import MOMENTS, ReducerState, levels, pairs, quiet, states
from hipwright.engine.templates.rows.scope import RowLayout, RowScope, column_of, elements
from hipwright.engine.templates.rows.stash import NAMES as STASH
from hipwright.engine.templates.rows.stash import LdsRowCache
from hipwright.engine.templates.rows.tiles import Tiles
from hipwright.engine.templates.sweep import PACK, Sweep, unconditional

MAX_KEPT = 3
FLOAT_STATES = (*MOMENTS, "sum", "prod", "max", "min")
"""Reductions whose states hold values alone."""


def rows(body: Body, layout: RowLayout) -> EmittedKernel:
    """The kernel for a group with reductions."""
    return RowKernel(body, layout).kernel()


class RowKernel(RowScope):
    """Writes one kernel; `emit` holds the text."""

    def __init__(self, body: Body, layout: RowLayout) -> None:
        super().__init__(body, layout)
        self.packs: dict[tuple[str, str], str] = {}
        self.place = ""
        self.packed: set[str] = set()  # buffers that are read in packs
        self.held: dict[tuple[str, str], str] = {}  # tiles that are asked for whole, where the row goes by in parts
        self.held_place = ""
        self.ahead: dict[tuple[str, str], str] = {}  # tiles that are asked for before the pass that reads them
        self.asked = False
        self.fits: bool | None = None  # does a row fit registers, in the branch now written; None: no branches
        self.edges: UnalignedRows | None = None
        self.stash: LdsRowCache | None = None

    def kernel(self) -> EmittedKernel:
        """The finished kernel."""
        body, group, emit = self.body, self.group, self.emit
        emit.taken |= {
            "row",
            "r",
            "c",
            "v",
            "k",
            "col",
            "line",
            "width",
            "start",
            "tile",
            "count",
            "base",
            "live",
            "lane",
            "first",
            "items",
            "across",
            "part",
            "team",
            "ticket",
            "t",
            "segment",
            "bound",
            "arrived",
            *(f"i{k}" for k in range(8)),
            *(f"j{k}" for k in range(8)),
            *EDGES,
            *STASH,
        }
        self._variables()
        grid = self._prologue()
        for line in self.outer_lines:
            emit.line(line)
        emit.read = self._reader(emit.read)
        self._passes()
        if self.crossing:
            self.crossing.leave()
        threads = self.layout.threads
        roomy = f"{threads}, 1" if self.layout.roomy else threads  # or ptxas puts loads off to stay at 32 registers
        kernel = body.finish(grid, threads, fused(group), self.layout.bounds or roomy)
        kernel.exact_bounds = self.layout.exact_bounds
        if self.edges:
            kernel.ragged = True
            kernel.aligned = {b: PACK.get(body.need.dtypes[b], 4) for b in self.packed}
        if self.team:
            self.team.finish(kernel, self._tiles(), to_python(product(group.space)), self._full_blocks())
        return kernel

    def _reader(self, plain: Callable[[E, str], str]) -> Callable[[E, str], str]:
        def read(e: E, position: str) -> str:
            key = (e.attr[0], e.attr[1].key)
            if key in self.held:
                return f"{self.held[key]}.v[{self.held_place}]"
            name = self.packs.get(key)
            return f"{name}.v[{self.place}]" if name else plain(e, position)

        return read

    # ------------------------------------------------------------ passes

    def _passes(self) -> None:
        """All passes; twice where exponentials need no rescaling if the row fits registers, which the sizes decide."""
        layout, emit = self.layout, self.emit
        alone = not self.team and not layout.segments and not layout.whole
        if not (alone and layout.registers and layout.rest == "1" and pairs(self.group.members)):
            self._plan()
            for level in range(self._last() + 1):
                self._pass(level)
            return
        taken = set(emit.taken)
        for self.fits in (True, False):
            emit.taken, self.kept = set(taken), {}
            self.ahead, self.asked, self.row_sweep.packs = {}, False, {}
            self._plan()
            for level in range(self._last() + 1):
                self._pass(level)
            emit.close()

    def _open_variant(self, span: str) -> None:
        """Rows that fit the registers of those who share them, or all others."""
        if self.fits:
            length = self.row_sweep.known
            if self.layout.several:
                self.emit.used.add(("is_known_at_most", ""))
                kind = self.body.index_type
                self.emit.open(f"if (is_known_at_most<{kind}>({length}, {span}))")
            else:
                self.emit.open(f"if ({length} <= {span})")
        elif self.fits is not None:
            self.emit.open("else")

    def _plan(self) -> None:
        """Which reduction goes with which pass, and what stays in registers."""
        layout, emit, members = self.layout, self.emit, self.group.members
        stays = layout.registers and self.whole and not self.team
        self.online = {} if stays else pairs(members)
        self.levels = levels(members, self.online)
        self.quiet = quiet(members, set(self.body.need.stores))
        if all(dtype in ("float16", "bfloat16") for _, dtype in self.body.need.stores.values()):
            sums = [m for m in members if m.item.name in pairs(members)]
            emit.instead |= {m.value.id: "exp_fast" for m in sums if m.value.ctype == "float"}
        whole = [m for level in range(self._last() + 1) for m in self._at(level)]
        stores = [m for m in whole if m.role == FULL]
        self.vec = layout.vec
        if not self.columns and not self.row_sweep.dense([m.value for m in whole], stores):
            self.vec = "1"
        if layout.edges and self.vec != "1" and not self.edges:
            self.edges = UnalignedRows(self)
            self.edges.declare()
        step = self.threads.count if self.columns or self.vec == "1" else f"{self.threads.count} * {self.vec}"
        self._open_variant(f"{step} * {layout.items}")
        self.registers = layout.registers and self.fits is not False and self._choose_kept()
        self.items = layout.items if self.fits is not False else "2"
        if self.crossing or (self.registers and stays and not self.fits):
            self.items = "items"
            step_text = step if " " not in step else f"({step})"
            line = f"constexpr int items = ({self.row_sweep.known} + {step_text} - 1) / {step_text};"
            self.crossing.declare(line) if self.crossing else emit.line(line)
        self.size = f"{self.items} * {self.vec}" if self.vec != "1" else self.items
        layout.parts = layout.parts and self.registers
        for _, (e, _, name) in sorted(self.kept.items()):
            emit.line(f"{self._kept_type(e)} {name}[{self.size}];  // this thread's part of the row")
            if self.edges:
                emit.line(f"{self._kept_type(e)} {name}_edge[1];")
        if layout.parts or (layout.rest == "few" and self.registers):
            emit.line(f"constexpr int few = {layout.items} < 2 ? 1 : 2;  // packs at once of what does not stay")
        elif layout.rest == "few":
            layout.rest = layout.items
        self.stash = LdsRowCache(self, layout.stash) if layout.stash else None
        if self.stash and self.stash.fits():
            self.stash.declare()
        else:
            self.stash, layout.stash = None, ""
        if self.team:
            reds = [m.item for m in self.group.members if m.role == "red"]
            floats = all(i.reduction in FLOAT_STATES and COMPUTE[i.dtype] == "float" for i in reds)
            self.team.open(waits=self._last() > 0, floats=floats)  # does anything follow the first reductions?
        if layout.ahead and not self.team and not self.columns:
            self._ask_ahead(ROW)
        if self._last() > 0 and not self.columns:
            self._ask_ahead(FULL)

    def as_read(self, e: E) -> bool:
        """Does a kept value stay as memory has it? Half types do where the row goes by in parts: two a register."""
        return self.layout.parts and e.op == "load" and e.attr[2] in ("float16", "bfloat16") and e.ctype == "float"

    def _kept_type(self, e: E) -> str:
        return STORAGE[e.attr[2]] if self.as_read(e) else e.ctype

    @property
    def stashing(self) -> bool:
        """Is a tile being written that lies in LDS?"""
        return self.stash is not None and self.stash.now

    def stays(self, name: str) -> str:
        """The array in which a kept value lies of the tile now written."""
        return self.edges.name(name) if self.edges else name

    def kept_text(self, e: E, place: str) -> str:
        """What a pass computes with of a kept value."""
        return f"{e.ctype}({place})" if self.as_read(e) else place

    @property
    def whole(self) -> bool:
        """Is a row one tile?"""
        return self.layout.whole or bool(self.fits)

    def _last(self) -> int:
        full = [self.levels[f"={m.item.name}"] for m in self.body.stored if m.role in (FULL, PART)]
        reds = [self.levels[m.item.name] for m in self.group.members if m.role == "red"]
        return max([*full, *reds])

    def _at(self, level: int) -> list[GroupMember]:
        """The members that a pass evaluates along the row."""
        reds = [m for m in self.group.members if m.role == "red" and self.levels[m.item.name] == level]
        reds = [m for m in reds if m.item.name not in self.online]
        return reds + [m for m in self.body.stored if m.role == FULL and self.levels[f"={m.item.name}"] == level]

    def later(self, level: int) -> Iterator[E]:
        """Loads of whole tensors, or all along the row, that passes after this one read and none before has kept."""
        c, size = self.body.c, product(self.group.space)
        for after in range(level + 1, self._last() + 1):
            known = {number for number, (_, made, _) in self.kept.items() if made < after}
            for e in unconditional([m.value for m in self._at(after)], known):
                numel = self.body.need.numels.get(e.attr[0])
                least = self.row_sweep.width if self.layout.weights else size
                if numel is not None and c.hint(numel) >= c.hint(least):
                    yield e

    def _choose_kept(self) -> bool:
        """What a later pass needs and an earlier one has computed per element stays in an array."""
        seen: dict[int, int] = {}
        found: dict[int, E] = {}
        for level in range(self._last() + 1):
            values = [m.value for m in self._at(level)]
            before = {number for number, made in seen.items() if made < level}
            for e in elements(values, self.inner, self.memo, before):
                if seen.setdefault(e.id, level) < level:
                    found[e.id] = e
        if not 0 < len(found) <= MAX_KEPT:
            return False
        for number, e in sorted(found.items()):
            name = self.emit.fresh(f"{e.label or (e.attr[0] if e.op == 'load' else 'kept')}_row")
            self.kept[number] = (e, seen[number], name)
        return True

    def _pass(self, level: int) -> None:
        reds = [m for m in self._at(level) if m.role == "red"]
        full = [m for m in self._at(level) if m.role == FULL]
        made = states(self.emit, reds, self.online, self.quiet)
        if made or full:
            self._sweep(self.row_sweep, level, made, full)
        for column in self.group.columns.values():
            self._part(level, column)
        named = [m for m in self.group.members if m.role == "red" and self.levels[m.item.name] == level]
        for member in named:
            if member.item.name in self.body.need.stores:
                self.store_row(member, self.body.rows[member.item.name])
        for member in self.body.stored:
            if member.role == ROW and max(self.levels[f"={member.item.name}"], 1) == level + 1:
                self.store_row(member, None)

    def _part(self, level: int, column: Var) -> None:
        """The values that have columns of their own: a loop over these."""
        assert column.size is not None
        mine = [
            m
            for m in self.body.stored
            if m.role == PART and self.levels[f"={m.item.name}"] == level and column_of(m) == column.size
        ]
        if mine:
            length = self.emit.position(column.size)
            self._sweep(Sweep("c", length, column.size, self.inner), level, [], mine)

    # ------------------------------------------------------------ one sweep

    def _sweep(self, sweep: Sweep, level: int, made: list[ReducerState], full: list[GroupMember]) -> None:
        emit = self.emit
        values = [s.value for s in made] + [m.value for m in full]
        emit.count(values)
        if not self.columns:
            self.hoist(values, level)
        for state in made:
            self._declare(state)
            for member, follows in state.results.items():
                self.body.rows[member] = f"{state.name}{'[v]' if self.columns else ''}{follows}"
        kept = (self.registers or self.crossing is not None) and sweep is self.row_sweep
        vec = self.vec if sweep is self.row_sweep or self.columns else self.layout.vec
        if not kept and not self.columns and not sweep.dense(values, full):
            vec = "1"  # what stays in registers lies there in packs, whatever a later pass reads
        tiles = Tiles(self, sweep, level, made, full, vec)
        if self.edges:
            self.edges.take(tiles, keep=kept)
        stash = self.stash if kept else None
        if stash and level == 0:
            stash.ask(tiles)
        if kept:
            tiles.first()
        if stash:
            stash.take(tiles)
        if not (kept and self.whole and not self.team):
            tiles.rest(after_first=kept)
        self._combine(made)

    def _declare(self, state: ReducerState) -> None:
        emit, vec = self.emit, self.layout.vec
        if not self.columns:
            emit.line(f"{state.struct} {state.name} = {state.start};")
            return
        emit.line(f"{state.struct} {state.name}[{vec}];")
        emit.line("#pragma unroll")
        emit.line(f"for (int v = 0; v < {vec}; ++v) {state.name}[v] = {state.value_start};")

    def _combine(self, made: list[ReducerState]) -> None:
        """Each thread's part of the reductions becomes the row's."""
        emit, layout = self.emit, self.layout
        together = self._together(made)
        for s in made:
            op = f"{s.operator}()"
            if s in together:
                continue
            if self.columns:
                emit.used.add(("column_reduce", ""))
                emit.line(f"column_reduce<{layout.threads}, {layout.share}, {layout.vec}>({s.name}, {op});")
            elif layout.mapping == "block":
                emit.used.add(("block_reduce_moments" if s.kind == "moments" else "block_reduce", ""))
                emit.line(f"{s.name} = block_reduce<{layout.threads}>({s.name}, {op});")
            else:
                emit.used.add(("lane_reduce_moments" if s.kind == "moments" else "lane_reduce", ""))
                emit.line(f"{s.name} = lane_reduce<{layout.share}>({s.name}, {op});")
        if self.team and made:
            self.team.combine(made, layout)

    def _together(self, made: list[ReducerState]) -> list[ReducerState]:
        """Plain values of one operator that a block combines at once: one wait for all. These are done."""
        done: list[ReducerState] = []
        plain = [s for s in made if self.layout.mapping == "block" and s.struct == s.ctype and s.kind != "moments"]
        for kind in dict.fromkeys((s.operator, s.ctype) for s in plain):
            some = [s for s in plain if (s.operator, s.ctype) == kind]
            if len(some) < 2:
                continue
            emit, all_ = self.emit, self.emit.fresh(f"{some[0].name}_all")
            emit.used.add(("block_reduce_array", ""))
            emit.line(f"{kind[1]} {all_}[{len(some)}] = {{{', '.join(s.name for s in some)}}};")
            emit.line(f"block_reduce_array<{self.layout.threads}>({all_}, {kind[0]}());")
            for number, s in enumerate(some):
                emit.line(f"{s.name} = {all_}[{number}];")
            done += some
        return done
