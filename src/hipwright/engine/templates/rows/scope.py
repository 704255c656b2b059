"""What kernels by rows share: names of loop variables, the way to a row, and what is computed before its loop.

`row` (or `line` and `column`) counts what is kept, `r` what is reduced, `segment` the contiguous runs of a row, `c` the
columns of values that have columns of their own.
"""

from __future__ import annotations

from collections.abc import Iterator

from hipwright.engine.emit.builder import cname
from hipwright.engine.emit.statements import literal
from hipwright.engine.fuse.groups import GroupMember
from hipwright.engine.ir.expr import E, walk
from hipwright.engine.ir.index import Ind, Ix, Var, ix, product
from hipwright.engine.ir.index_text import to_python
from hipwright.engine.ir.shapes import flatten
from hipwright.engine.templates.access import unconditional_loads
from hipwright.engine.templates.base import Body, depends
from hipwright.engine.templates.rows.column_sums import ColumnSums
from hipwright.engine.templates.rows.cooperative import CooperativeBlocks
from hipwright.engine.templates.rows.layout import RowLayout
from hipwright.engine.templates.sweep import Sweep, Threads, TurnedColumns


class RowScope:
    """One kernel by rows, up to its loops; `emit` receives the statements.

    kept: {expression id: (expression, the pass that computes it, its array)} of what stays in registers.
    """

    def __init__(self, body: Body, layout: RowLayout) -> None:
        self.body, self.layout, self.emit, self.group = body, layout, body.emit, body.group
        self.kept: dict[int, tuple[E, int, str]] = {}
        self.memo: dict[int, bool] = {}
        self.columns = layout.mapping == "columns"
        self.vec = layout.vec
        self.blocks = CooperativeBlocks(body, layout.blocks, self.columns, layout.apart) if layout.blocks else None
        self.column_sums: ColumnSums | None = None

    # ------------------------------------------------------------ names

    def _name_variables(self) -> None:
        """Names the loop variables, and prepares the statements that split the counters."""
        body, group, layout = self.body, self.group, self.layout
        outer_dims = [k for k in range(len(group.space)) if k not in group.dims]
        if self.columns:
            outer, self.outer_lines = body.name_variables(outer_dims[:-1], "i", "line") if outer_dims[1:] else ({}, [])
            outer[group.variables[outer_dims[-1]]] = ix(Var("col", group.space[outer_dims[-1]]))
            self.lines = product([group.space[k] for k in outer_dims[:-1]])
            self.row_width = group.space[outer_dims[-1]]
        else:
            outer, self.outer_lines = body.name_variables(outer_dims, "i", "row") if outer_dims else ({}, [])
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
        self.row_sweep = Sweep("r", length, self.width, changing, splits, unaligned=layout.unaligned)
        if not self.columns and not layout.segments:
            self._alias_position()
        if self.columns and not self.blocks:
            self._turn_columns(outer_dims)
        if len(dims) == 2 and not layout.segments and not self.row_sweep.row_starts:
            self.row_sweep.run = self.emit.position(group.space[dims[1]])

    def _alias_position(self) -> None:
        """Writes an element's position as row * length + r where the reduced dimensions come last."""
        group, length = self.group, self.row_sweep.length
        if list(group.dims) == list(range(len(group.space) - len(group.dims), len(group.space))):
            flat = flatten(group.space, self.flat_index)
            bare = length if length.isidentifier() or length.isdigit() else f"({length})"
            start = "" if product(group.outer).value == 1 else f"row * {bare}"
            self.emit.aliases[flat.key] = f"{start} + r" if start else "r"
            self.row_sweep.row_starts[flat.key] = start or "0"

    def _turn_columns(self, outer_dims: list[int]) -> None:
        """Lets blocks store columns as rows, where these lie in the order of what is kept."""
        group, emit, order = self.group, self.emit, [*outer_dims, *self.group.dims]
        position = flatten([group.space[k] for k in order], [self.flat_index[k] for k in order])
        width, lines = emit.position(self.row_width), emit.position(self.lines)
        self.row_sweep.turned = TurnedColumns(position, self.layout.threads, self.layout.share, width, lines)

    # ------------------------------------------------------------ mapping

    def _locate_row(self) -> str:
        """Emits the way from the block and thread to a row; returns the grid."""
        emit, kind, layout = self.emit, self.body.index_type, self.layout
        count = emit.position(product(self.group.outer))
        self.body.knobs |= {
            n for n in (layout.threads, layout.share, layout.vec, layout.items) if n and not n.isdigit()
        }
        if layout.mapping == "block":
            self.threads = Threads("threadIdx.x", layout.threads)
            if self.blocks:
                return self.blocks.reserve("{rows}")
            if layout.sum_blocks:
                self.column_sums = ColumnSums(self.body, layout, count)
                return layout.sum_blocks
            emit.line(f"const {kind} row = blockIdx.x;")
            return "{rows}"
        block = f"{layout.threads}"
        if layout.mapping == "lanes":
            self.threads = Threads("lane", layout.share, "active")
            self.body.active = "active"
            emit.line(f"const int lane = threadIdx.x % {layout.share};")
            emit.line(
                f"const {kind} first = blockIdx.x * ({kind})({block} / {layout.share}) + threadIdx.x / {layout.share};"
            )
            emit.line(f"const bool active = first < {count};  // false in the last block beyond the last row")
            emit.line(f"const {kind} row = active ? first : {count} - 1;")
            return f"cdiv({{rows}}, {block} // {layout.share})"
        return self._locate_columns()

    def _locate_columns(self) -> str:
        """Emits the way to columns: neighbouring threads take vectors of them, rows of threads share their elements."""
        emit, kind, layout = self.emit, self.body.index_type, self.layout
        self.threads = Threads("lane", f"({layout.threads} / {layout.share})", "active", columns=True)
        self.body.active = "active"
        width, lines = emit.position(self.row_width), emit.position(self.lines)
        groups = f"cdiv({to_python(self.lines)} * cdiv({to_python(self.row_width)}, {layout.vec}), {layout.share})"
        block = "blockIdx.x"
        if self.blocks:
            groups = self.blocks.reserve(groups)
            block = "row"  # cooperative blocks share a group of columns
        emit.line(f"const int lane = threadIdx.x / {layout.share};")
        emit.line(
            f"const {kind} vectors = ({width} + {layout.vec} - 1) / {layout.vec};  // vectors of columns in a row"
        )
        emit.line(f"const {kind} first = {block} * ({kind}){layout.share} + threadIdx.x % {layout.share};")
        total = f"({lines}) * vectors" if " " in lines else f"{lines} * vectors"
        total = "vectors" if self.lines.value == 1 else total
        emit.line(f"const bool active = first < {total};  // false in the last block beyond the last column")
        emit.line(f"const {kind} vector = active ? first : {total} - 1;")
        emit.taken.add("vector")
        if self.lines.value == 1:
            emit.line(f"const {kind} column = vector * {layout.vec};")
        else:
            emit.line(f"const {kind} line = vector / vectors;")
            emit.line(f"const {kind} column = vector % vectors * {layout.vec};")
        emit.taken.add("column")
        emit.line(f"const int width = {width} - column < {layout.vec} ? {width} - column : {layout.vec};")
        return groups

    def _tiles(self) -> str:
        """The number of tiles of a row, as plan text."""
        layout = self.layout
        size = f"{layout.threads} * {layout.vec} * {layout.items}"
        if self.columns:
            size = f"({layout.threads} // {layout.share} * {layout.items})"
            return f"cdiv({to_python(self.width)}, {size})"
        tiles = f"cdiv({to_python(self.width)}, {size})"
        tiles = tiles if self.segments.value == 1 else f"({to_python(self.segments)}) * {tiles}"
        return f"cdiv({tiles}, 1 + {layout.cache_tiles})" if layout.cache_tiles else tiles

    def _full_blocks(self) -> str:
        """The blocks of a row that give each thread a vector, as plan text; a row of short runs has more tiles."""
        layout = self.layout
        each = f"{layout.threads} * {layout.vec}"
        return "" if self.columns else f"cdiv({to_python(product(self.group.inner))}, {each})"

    # ------------------------------------------------------------ a row's values

    def store_row(self, member: GroupMember, name: str | None) -> None:
        """Stores a value of the row by one thread; columns are stored by a thread each. name: its text, or None."""
        emit = self.emit
        own = {"block": "threadIdx.x == 0", "lanes": "active && lane == 0"}.get(self.layout.mapping, "active")
        if self.blocks and self.blocks.waits:
            own = f"block_rank == 0 && {own}"
        emit.open(f"if ({own})")
        if self.columns:
            self.open_columns(f"v < width && lane == v % {self.threads.count}")  # they wait for memory together
        emit.count([member.value])
        text = name if name is not None else emit.text(member.value)[0]
        emit.line(self.body.store(member, text, emit.position(member.position)))
        if self.columns:
            emit.close()
        emit.close()

    def open_columns(self, condition: str = "") -> None:
        """Opens the loop over a thread's columns."""
        emit, vec = self.emit, self.layout.vec
        emit.line("#pragma unroll")
        emit.open(f"for (int v = 0; v < {vec}; ++v)")
        if condition:
            emit.line(f"if (!({condition})) continue;")
        emit.line(f"const {self.body.index_type} col = column + (v < width ? v : width - 1);")

    # ------------------------------------------------------------ before the loop

    def hoist(self, values: list[E], level: int) -> None:
        """Computes what does not change along the row once, before the loop."""
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
        for condition, load in self._guarded_loads(values, level):
            self._bind_guarded(condition, load)

    def _prefetch(self, role: str) -> None:
        """Issues the loads that stored members of a role need before the row's loop, so that they do not wait later."""
        for member in self.body.stored:
            if member.role != role:
                continue
            for load in unconditional_loads([member.value]):
                if self._known_early(load):
                    self.emit.bind(load)
            for condition, load in self._guarded_loads([member.value], 0):
                if (condition is None or self._known_early(condition)) and self._known_early(load):
                    self._bind_guarded(condition, load)

    def _load_places(self) -> None:
        """Loads where the row is stored before its reductions, so that its stores do not wait for that."""
        for member in (m for m in self.body.stored if m.item.place):
            for atom in sorted(member.position.atoms(), key=lambda a: a.key):
                if isinstance(atom, Ind) and self._known_early(atom.value):
                    self.emit.bind(atom.value)

    def _known_early(self, e: E) -> bool:
        """Whether e is the same for the whole row and does not depend on its reductions."""
        return not depends(e, self.inner, self.memo) and not any(a.op == "row" for a in walk([e]))

    def _guarded_loads(self, values: list[E], level: int) -> list[tuple[E | None, E]]:
        """(condition, load) for loads under a condition where both are the same for the whole row.

        condition: None where both branches need the load, so that every row does.
        """
        found: list[tuple[E | None, E]] = []
        stack, seen = list(reversed(values)), set[int]()
        while stack:
            e = stack.pop()
            kept = e.id in self.kept and self.kept[e.id][1] < level
            if e.id in seen or kept or e.op == "loop" or not depends(e, self.inner, self.memo):
                continue
            seen.add(e.id)
            if e.op == "guard" and not depends(e.args[0], self.inner, self.memo):
                loads = [a for a in unconditional_loads([e.args[1]]) if not depends(a, self.inner, self.memo)]
                otherwise = {a.id for a in unconditional_loads([e.args[2]])}
                found += [(None if a.id in otherwise else e.args[0], a) for a in loads]
            stack.extend(reversed(e.args[:1] if e.op == "guard" else e.args))
        return found

    def _bind_guarded(self, condition: E | None, load: E) -> None:
        """Emits a load under its condition, before the loop; its name stands for it only under that condition."""
        emit = self.emit
        if condition is None:
            emit.bind(load)
            return
        if emit.known(load) is not None or load.id in emit.known_under(condition):
            return
        name = emit.fresh(f"{cname(load.attr[0])}_value")
        test = emit.text(condition)[0]
        emit.line(f"{load.ctype} {name} = {literal(0, load.ctype)};")
        emit.open(f"if ({test})")
        emit.line(f"{name} = {emit.text(load)[0]};")
        emit.close()
        emit.name_under(condition, load, name)


def column_of(member: GroupMember) -> Ix | None:
    """The number of columns of its own that a member's values have, or None."""
    return next((a.size for a in member.position.atoms() if isinstance(a, Var) and a.name == "c"), None)


def elements(values: list[E], inner: set[str], memo: dict[int, bool], stop: set[int]) -> Iterator[E]:
    """Expressions that change along the row and are not cheap, outermost first; none below those in `stop` (ids)."""
    stack, done = list(values), set[int]()
    while stack:
        e = stack.pop()
        if e.id in done or not depends(e, inner, memo):
            continue
        done.add(e.id)
        mixed = e.op == "bin" and not all(depends(a, inner, memo) for a in e.args)
        cheap = mixed and (
            e.attr != "/" or e.ctype not in ("float", "double")
        )  # x - mean is recomputed from x; x / scale is not cheap
        if e.op in ("load", "fn", "bin", "sel", "guard", "loop") and not cheap:
            yield e
            if e.id in stop:
                continue
        if e.op not in ("guard", "loop"):
            stack.extend(e.args)
