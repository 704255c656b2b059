"""What kernels of rows share: layout, names of loop variables, the way to a row, what is computed before the loop.

`row` (or `line` and `column`) counts what is kept, `r` what is reduced, `segment` its dense runs, `c` a part's columns.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from hipwright.engine.emit.builder import cname
from hipwright.engine.emit.statements import literal
from hipwright.engine.fuse.groups import GroupMember
from hipwright.engine.ir.expr import E, walk
from hipwright.engine.ir.index import Ix, Var, ix, product
from hipwright.engine.ir.index_text import to_python
from hipwright.engine.ir.shapes import flatten
from hipwright.engine.templates.base import Body, depends
from hipwright.engine.templates.rows.crossing import ColumnAccumulator
from hipwright.engine.templates.rows.team import CooperativeBlocks
from hipwright.engine.templates.sweep import Sweep, Threads, unconditional

KEPT_VALUES = 32
"""Elements of a row that a thread keeps in registers, at most."""


@dataclass
class RowLayout:
    """How a row kernel is laid out; names of knobs or literals.

    registers: keep the first tile between passes. whole: the row has a fixed length and is one tile. segments: the row
    is several dense runs, and tiles do not cross their ends.
    """

    mapping: str
    threads: str  # of a block
    share: str = ""  # LANES or COLUMNS
    vec: str = "1"
    items: str = "1"
    rest: str = ""  # of the tiles after the first
    bounds: str = ""  # threads for which the compiler spares registers, if other than `threads`
    exact_bounds: str = ""  # the same where sizes are constants
    registers: bool = False
    whole: bool = False
    segments: bool = False
    several: bool = False  # several rows' values stay in registers
    odd: bool = False  # rows begin off the borders of packs, and are read in packs all the same
    edges: bool = False  # the same where all accesses begin alike: packs between borders (templates/rows/edges.py)
    team: str = ""  # the knob of the blocks a row, or "" for one block
    stash: str = ""  # the knob of the tiles that a block of a waiting team holds in LDS, or "" for none
    ahead: bool = False  # few elements: what later passes and the rows' own values read is asked for first
    roomy: bool = False  # few threads: registers are no reason to put loads off
    weights: bool = False  # so few that what all rows share along the row is asked for first too
    crossed: str = ""  # blocks that take the rows in turn and sum their columns (engine/fuse/column_reductions.py)
    parts: bool = False  # the tile that stays is worked on a few packs at a time: other operands are not held whole


class RowScope:
    """One kernel of rows, up to its loops; `emit` holds the text."""

    def __init__(self, body: Body, layout: RowLayout) -> None:
        self.body, self.layout, self.emit, self.group = body, layout, body.emit, body.group
        self.kept: dict[int, tuple[E, int, str]] = {}  # expression id -> (expression, pass that computes it, array)
        self.memo: dict[int, bool] = {}
        self.columns = layout.mapping == "columns"
        self.vec = layout.vec
        self.team = CooperativeBlocks(body, layout.team, self.columns) if layout.team else None
        self.crossing: ColumnAccumulator | None = None

    # ------------------------------------------------------------ names

    def _variables(self) -> None:
        """Names for the loop variables, and how they come from the counters."""
        body, group, layout = self.body, self.group, self.layout
        kept = [k for k in range(len(group.space)) if k not in group.dims]
        if self.columns:
            outer, self.outer_lines = body.name_variables(kept[:-1], "i", "line") if kept[1:] else ({}, [])
            outer[group.variables[kept[-1]]] = ix(Var("col", group.space[kept[-1]]))
            self.lines = product([group.space[k] for k in kept[:-1]])
            self.across = group.space[kept[-1]]
        else:
            outer, self.outer_lines = body.name_variables(kept, "i", "row") if kept else ({}, [])
        dims = list(group.dims)
        splits: list[str] = []
        self.segment_lines: list[str] = []
        if layout.segments:
            inner, self.segment_lines = body.name_variables(dims[:-1], "j", "segment")
            inner[group.variables[dims[-1]]] = ix(Var("r", group.space[dims[-1]]))
            self.width = group.space[dims[-1]]
            self.segments = product([group.space[d] for d in dims[:-1]])
        else:
            inner, splits = body.name_variables(dims, "j", "r")
            self.width, self.segments = product(group.inner), ix(1)
        table = {**outer, **inner, **{v: ix(Var("c", v.size)) for v in group.columns.values()}}
        self.flat_index = [table[v] for v in group.variables]
        body.rename(table)
        self.inner = {"r", "c", "segment", *(f"j{k}" for k in range(len(dims)))}
        length = self.emit.position(self.width)
        changing = {"r", "c"} if layout.segments else self.inner
        self.row_sweep = Sweep("r", length, self.width, changing, splits, odd=layout.odd)
        if not self.columns and not layout.segments:
            self._alias_position()
        if len(dims) == 2 and not layout.segments and not self.row_sweep.row_starts:
            self.row_sweep.run = self.emit.position(group.space[dims[1]])

    def _alias_position(self) -> None:
        """Where the reduced dimensions come last, an element's position is row * length + r."""
        group, length = self.group, self.row_sweep.length
        if list(group.dims) == list(range(len(group.space) - len(group.dims), len(group.space))):
            flat = flatten(group.space, self.flat_index)
            bare = length if length.isidentifier() or length.isdigit() else f"({length})"
            start = "" if product(group.outer).value == 1 else f"row * {bare}"
            self.emit.aliases[flat.key] = f"{start} + r" if start else "r"
            self.row_sweep.row_starts[flat.key] = start or "0"

    # ------------------------------------------------------------ mapping

    def _prologue(self) -> str:
        emit, kind, layout = self.emit, self.body.index_type, self.layout
        count = emit.position(product(self.group.outer))
        self.body.knobs |= {
            n for n in (layout.threads, layout.share, layout.vec, layout.items) if n and not n.isdigit()
        }
        if layout.mapping == "block":
            self.threads = Threads("threadIdx.x", layout.threads)
            if self.team:
                return self.team.prologue(count, "{rows}")
            if layout.crossed:
                self.crossing = ColumnAccumulator(self, count)
                return layout.crossed
            emit.line(f"const {kind} row = blockIdx.x;")
            return "{rows}"
        block = f"{layout.threads}"
        if layout.mapping == "lanes":
            self.threads = Threads("lane", layout.share, "live")
            emit.line(f"const int lane = threadIdx.x % {layout.share};")
            emit.line(
                f"const {kind} first = blockIdx.x * ({kind})({block} / {layout.share}) + threadIdx.x / {layout.share};"
            )
            emit.line(f"const bool live = first < {count};  // the last block may have rows to spare")
            emit.line(f"const {kind} row = live ? first : {count} - 1;")
            return f"cdiv({{rows}}, {block} // {layout.share})"
        return self._column_prologue()

    def _column_prologue(self) -> str:
        """Threads side by side take packs of columns; the rows of threads share out the elements down a column."""
        emit, kind, layout = self.emit, self.body.index_type, self.layout
        self.threads = Threads("lane", f"({layout.threads} / {layout.share})", "live", columns=True)
        across, lines = emit.position(self.across), emit.position(self.lines)
        groups = f"cdiv({to_python(self.lines)} * cdiv({to_python(self.across)}, {layout.vec}), {layout.share})"
        block = "blockIdx.x"
        if self.team:
            groups = self.team.prologue(groups, groups)
            block = "row"  # the team's number: a group of columns
        emit.line(f"const int lane = threadIdx.x / {layout.share};")
        emit.line(
            f"const {kind} across = ({across} + {layout.vec} - 1) / {layout.vec};  // packs of columns side by side"
        )
        emit.line(f"const {kind} first = {block} * ({kind}){layout.share} + threadIdx.x % {layout.share};")
        total = "across" if self.lines.value == 1 else f"({lines}) * across" if " " in lines else f"{lines} * across"
        emit.line(f"const bool live = first < {total};  // the last block may have columns to spare")
        emit.line(f"const {kind} pack = live ? first : {total} - 1;")
        emit.taken.add("pack")
        if self.lines.value == 1:
            emit.line(f"const {kind} column = pack * {layout.vec};")
        else:
            emit.line(f"const {kind} line = pack / across;")
            emit.line(f"const {kind} column = pack % across * {layout.vec};")
        emit.taken.add("column")
        emit.line(f"const int width = {across} - column < {layout.vec} ? {across} - column : {layout.vec};")
        return groups

    def _tiles(self) -> str:
        """How many tiles a row has, as the plan computes it."""
        layout = self.layout
        size = f"{layout.threads} * {layout.vec} * {layout.items}"
        if self.columns:
            size = f"({layout.threads} // {layout.share} * {layout.items})"
            return f"cdiv({to_python(self.width)}, {size})"
        tiles = f"cdiv({to_python(self.width)}, {size})"
        tiles = tiles if self.segments.value == 1 else f"({to_python(self.segments)}) * {tiles}"
        return f"cdiv({tiles}, 1 + {layout.stash})" if layout.stash else tiles

    def _full_blocks(self) -> str:
        """How many blocks a row gives each of their threads a pack; runs may have more tiles, of few elements each."""
        layout = self.layout
        each = f"{layout.threads} * {layout.vec}"
        return "" if self.columns else f"cdiv({to_python(product(self.group.inner))}, {each})"

    # ------------------------------------------------------------ a row's values

    def store_row(self, member: GroupMember, name: str | None) -> None:
        """One thread of the row writes its value."""
        emit = self.emit
        own = "threadIdx.x == 0" if self.layout.mapping == "block" else "live && lane == 0"
        if self.team and self.team.waits:
            own = f"part == 0 && {own}"
        emit.open(f"if ({own})")
        if self.columns:
            self.open_columns("v < width")
        emit.count([member.value])
        text = name if name is not None else emit.text(member.value)[0]
        emit.line(self.body.store(member, text, emit.position(member.position)))
        if self.columns:
            emit.close()
        emit.close()

    def open_columns(self, condition: str = "") -> None:
        """The loop over a thread's columns."""
        emit, vec = self.emit, self.layout.vec
        emit.line("#pragma unroll")
        emit.open(f"for (int v = 0; v < {vec}; ++v)")
        if condition:
            emit.line(f"if (!({condition})) continue;")
        emit.line(f"const {self.body.index_type} col = column + (v < width ? v : width - 1);")

    # ------------------------------------------------------------ before the loop

    def hoist(self, values: list[E], level: int) -> None:
        """What does not change along the row is computed once, before the loop."""
        found: list[E] = []
        seen: set[int] = set()

        def visit(e: E) -> None:
            if e.id in seen:
                return
            seen.add(e.id)
            if e.id in self.kept and self.kept[e.id][1] < level:
                return
            if not depends(e, self.inner, self.memo):
                if e.op not in ("const", "index", "row", "loop", "guard"):
                    found.append(e)
                return
            if e.op != "loop":
                for a in e.args[:1] if e.op == "guard" else e.args:
                    visit(a)

        for value in values:
            visit(value)
        for e in found:
            self.emit.bind(e)
        for condition, load in self._behind(values, level):
            self._bind_behind(condition, load)

    def _ask_ahead(self, role: str) -> None:
        """What a row's own values read, or all its elements, is asked for before the row: one wait less."""
        for member in self.body.stored:
            if member.role != role:
                continue
            for load in unconditional([member.value], set()):
                if self._early(load):
                    self.emit.bind(load)
            for condition, load in self._behind([member.value], 0):
                if self._early(condition) and self._early(load):
                    self._bind_behind(condition, load)

    def _early(self, e: E) -> bool:
        """Is e the same for the whole row, and known before its reductions?"""
        return not depends(e, self.inner, self.memo) and not any(a.op == "row" for a in walk([e]))

    def _behind(self, values: list[E], level: int) -> list[tuple[E, E]]:
        """(condition, load) where a condition guards a load, and both are the same for the whole row."""
        found: list[tuple[E, E]] = []
        stack, seen = list(reversed(values)), set[int]()
        while stack:
            e = stack.pop()
            kept = e.id in self.kept and self.kept[e.id][1] < level
            if e.id in seen or kept or e.op == "loop" or not depends(e, self.inner, self.memo):
                continue
            seen.add(e.id)
            if e.op == "guard" and not depends(e.args[0], self.inner, self.memo):
                loads = unconditional([e.args[1]], set())
                found += [(e.args[0], a) for a in loads if not depends(a, self.inner, self.memo)]
            stack.extend(reversed(e.args[:1] if e.op == "guard" else e.args))
        return found

    def _bind_behind(self, condition: E, load: E) -> None:
        """What a condition guards is read once too, before the loop."""
        emit = self.emit
        if emit.known(load) is not None:
            return
        name = emit.fresh(f"{cname(load.attr[0])}_value")
        test = emit.text(condition)[0]
        emit.line(f"{load.ctype} {name} = {literal(0, load.ctype)};")
        emit.open(f"if ({test})")
        emit.line(f"{name} = {emit.text(load)[0]};")
        emit.close()
        emit.name(load, name)


def column_of(member: GroupMember) -> Ix | None:
    """How many columns of their own a member's values have; None where they are the row's."""
    return next((a.size for a in member.position.atoms() if isinstance(a, Var) and a.name == "c"), None)


def elements(values: list[E], inner: set[str], memo: dict[int, bool], stop: set[int]) -> Iterator[E]:
    """Expressions that change along the row and cost something, outermost first; not below those in `stop`."""
    stack, done = list(values), set[int]()
    while stack:
        e = stack.pop()
        if e.id in done or not depends(e, inner, memo):
            continue
        done.add(e.id)
        mixed = e.op == "bin" and not all(depends(a, inner, memo) for a in e.args)
        cheap = mixed and (e.attr != "/" or e.ctype not in ("float", "double"))  # x - mean: keep x; x / scale is dear
        if e.op in ("load", "fn", "bin", "sel", "guard", "loop") and not cheap:
            yield e
            if e.id in stop:
                continue
        if e.op not in ("guard", "loop"):
            stack.extend(e.args)
