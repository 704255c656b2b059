"""Rows: reductions and what is computed from them, in passes over the row (softmax, norms, losses, pooled means).

Mappings: `block` one row a block, `lanes` one row by LANES neighbouring lanes, `columns` neighbouring threads on
neighbouring rows (for strided reductions, so that memory is read along the kept dimension).
"""

from __future__ import annotations

from hipwright.engine.emit import literal
from hipwright.engine.expr import COMPUTE, E, walk
from hipwright.engine.index import flatten, product
from hipwright.engine.schedule import FULL, ROW, Member
from hipwright.engine.templates.base import Body, Kernel, depends, fused

OPERATORS = {"sum": "Sum", "prod": "Product", "max": "Max", "min": "Min", "any": "Any", "all": "All",
             "argmax": "BestMax", "argmin": "BestMin"}  # fmt: skip
START = {"sum": 0, "prod": 1, "max": float("-inf"), "min": float("inf"), "any": 0, "all": 1}


def rows(body: Body, mapping: str) -> Kernel:
    """The kernel for a group with reductions."""
    return _Rows(body, mapping).kernel()


class _Rows:
    def __init__(self, body: Body, mapping: str) -> None:
        self.body = body
        self.mapping = mapping
        self.emit = body.emit
        self.group = body.group
        self.levels: dict[str, int] = {}
        self.inner: set[str] = set()
        self.memo: dict[int, bool] = {}

    def kernel(self) -> Kernel:
        body, group, emit = self.body, self.group, self.emit
        kept = [k for k in range(len(group.space)) if k not in group.dims]
        emit.taken |= {"row", "r", "live", "lane", *(f"i{k}" for k in range(8)), *(f"j{k}" for k in range(8))}
        outer_table, outer_lines = body.name_variables(kept, "i", "row") if kept else ({}, [])
        inner_table, self.inner_lines = body.name_variables(group.dims, "j", "r")
        table = {**outer_table, **inner_table}
        self.flat_index = [table[v] for v in group.variables]
        body.rename(table)
        self.inner = {"r", *(f"j{k}" for k in range(len(group.dims)))}
        self.count = emit.position(product(group.outer))
        self.length = emit.position(product(group.inner))
        grid = self._prologue()
        for line in outer_lines:
            emit.line(line)
        self._alias_position()
        self._levels()
        for level in range(self._last() + 1):
            self._pass(level)
        return body.finish(grid, self.block, fused(group), emit.lines, self.block)

    def _alias_position(self) -> None:
        """Where the reduced dimensions come last, an element's position is row * length + r."""
        group = self.group
        if list(group.dims) == list(range(len(group.space) - len(group.dims), len(group.space))):
            flat = flatten(group.space, self.flat_index)
            length = self.length if self.length.isidentifier() or self.length.isdigit() else f"({self.length})"
            self.emit.aliases[flat.key] = "r" if product(group.outer).value == 1 else f"row * {length} + r"

    # ------------------------------------------------------------ mapping

    def _prologue(self) -> str:
        emit, body, kind = self.emit, self.body, self.body.index_type
        if self.mapping == "block":
            self.block, self.first, self.step = "ROW_BLOCK", "threadIdx.x", "ROW_BLOCK"
            body.knobs.add("ROW_BLOCK")
            emit.line(f"const {kind} row = blockIdx.x;")
            self.guard = ""
            return "{rows}"
        if self.mapping == "lanes":
            self.block, self.first, self.step = "BLOCK", "lane", "LANES"
            body.knobs |= {"BLOCK", "LANES"}
            emit.line("const int lane = threadIdx.x % LANES;")
            emit.line(f"const {kind} first = blockIdx.x * ({kind})(BLOCK / LANES) + threadIdx.x / LANES;")
            grid = "cdiv({rows}, BLOCK // LANES)"
        else:
            self.block, self.first, self.step = "BLOCK", "lane", "BLOCK / COLUMNS"
            body.knobs |= {"BLOCK", "COLUMNS"}
            emit.line("const int lane = threadIdx.x / COLUMNS;")
            emit.line(f"const {kind} first = blockIdx.x * ({kind})COLUMNS + threadIdx.x % COLUMNS;")
            grid = "cdiv({rows}, COLUMNS)"
        emit.line(f"const bool live = first < {self.count};  // the last block may have rows to spare")
        emit.line(f"const {kind} row = live ? first : {self.count} - 1;")
        emit.taken.add("first")
        self.guard = "live"
        return grid

    def _combined(self, name: str, operator: str) -> str:
        self.emit.used.add((operator, ""))
        if self.mapping == "block":
            self.emit.used.add(("block_reduce", ""))
            return f"block_reduce<ROW_BLOCK>({name}, {operator}())"
        if self.mapping == "lanes":
            self.emit.used.add(("lane_reduce", ""))
            return f"lane_reduce<LANES>({name}, {operator}())"
        self.emit.used.add(("column_reduce", ""))
        return f"column_reduce<BLOCK, COLUMNS>({name}, {operator}())"

    # ------------------------------------------------------------ passes

    def _levels(self) -> None:
        """A reduction's pass comes after those of the row values it uses."""
        for member in self.group.members:
            needs = [self.levels[e.attr] for e in walk([member.value]) if e.op == "row"]
            after = max(needs, default=-1) + 1
            if member.role == "red":
                self.levels[member.item.name] = after
            else:
                self.levels.setdefault(f"={member.item.name}", after)

    def _last(self) -> int:
        full = [self.levels[f"={m.item.name}"] for m in self.body.stored if m.role == FULL]
        reds = [self.levels[m.item.name] for m in self.group.members if m.role == "red"]
        return max([*full, *reds])

    def _pass(self, level: int) -> None:
        reds = [m for m in self.group.members if m.role == "red" and self.levels[m.item.name] == level]
        full = [m for m in self.body.stored if m.role == FULL and self.levels[f"={m.item.name}"] == level]
        if reds or full:
            self._loop(reds, full)
        for member in reds:
            if member.item.name in self.body.need.stores:
                self._store_row(member, self.body.rows[member.item.name])
        for member in self.body.stored:
            if member.role == ROW and max(self.levels[f"={member.item.name}"], 1) == level + 1:
                self.emit.count([member.value])
                self._store_row(member, None)

    def _loop(self, reds: list[Member], full: list[Member]) -> None:
        emit = self.emit
        values = [m.value for m in [*reds, *full]]
        emit.count(values)
        self._hoist(values)
        for member in reds:
            self._declare(member)
        kind = self.body.index_type
        emit.open(f"for ({kind} r = {self.first}; r < {self.length}; r += {self.step})")
        for line in self.inner_lines:
            emit.line(line)
        for member in reds:
            self._accumulate(member)
        if full and self.guard:
            emit.open(f"if ({self.guard})")
        for member in full:
            emit.line(self.body.store(member, emit.text(member.value)[0], emit.position(member.position)))
        if full and self.guard:
            emit.close()
        emit.close()
        for member in reds:
            name = self.body.rows[member.item.name]
            operator = OPERATORS[member.item.reduction]
            if member.item.reduction.startswith("arg"):
                best = f"{name}_best"
                emit.line(f"const {self._ctype(member)} {name} = {self._combined(best, operator)}.index;")
            else:
                emit.line(f"{name} = {self._combined(name, operator)};")

    def _ctype(self, member: Member) -> str:
        if member.item.reduction in ("any", "all"):
            return "int"
        return COMPUTE[member.item.dtype]

    def _declare(self, member: Member) -> None:
        name = self.emit.fresh(member.item.name)
        self.body.rows[member.item.name] = name
        kind = member.item.reduction
        if kind.startswith("arg"):
            ctype = member.value.ctype
            start = literal(float("-inf") if kind == "argmax" else float("inf"), ctype) if ctype in ("float", "double") \
                else f"({ctype})({'-' if kind == 'argmax' else ''}0x7fffffffffffffffL{' - 1' if kind == 'argmax' else ''})"
            self.emit.taken.add(f"{name}_best")
            self.emit.line(f"Best<{ctype}> {name}_best = {{{start}, 0x7fffffffffffffffL}};")
            return
        ctype = self._ctype(member)
        if ctype in ("int", "long") and kind in ("max", "min"):
            big = "0x7fffffffffffffffL" if ctype == "long" else "0x7fffffff"
            start = f"-{big} - 1" if kind == "max" else big
        else:
            start = literal(START[kind], ctype)
        self.emit.line(f"{ctype} {name} = {start};")

    def _accumulate(self, member: Member) -> None:
        emit, name, kind = self.emit, self.body.rows[member.item.name], member.item.reduction
        text, rank = emit.text(member.value)
        if kind.startswith("arg"):
            emit.used.add((OPERATORS[kind], ""))
            ctype = member.value.ctype
            emit.line(f"{name}_best = {OPERATORS[kind]}()({name}_best, Best<{ctype}>{{{text}, r}});")
        elif kind in ("sum", "prod"):
            emit.line(f"{name} {'+' if kind == 'sum' else '*'}= {text};")
        elif kind in ("max", "min"):
            emit.used.add((f"nan_{kind}", ""))
            emit.line(f"{name} = nan_{kind}({name}, ({self._ctype(member)})({text}));" if rank < 14 or member.value.op == "index"
                      else f"{name} = nan_{kind}({name}, {text});")  # fmt: skip
        else:
            emit.line(f"{name} = {name} {'||' if kind == 'any' else '&&'} ({text});")

    def _store_row(self, member: Member, name: str | None) -> None:
        """One thread of the row writes its value."""
        emit = self.emit
        own = "threadIdx.x == 0" if self.mapping == "block" else "live && lane == 0"
        emit.open(f"if ({own})")
        if name is None:
            emit.count([member.value])
            name = emit.text(member.value)[0]
        emit.line(self.body.store(member, name, emit.position(member.position)))
        emit.close()

    def _hoist(self, values: list[E]) -> None:
        """What does not change along the row is computed once, before the loop."""
        found: list[E] = []
        seen: set[int] = set()

        def visit(e: E) -> None:
            if e.id in seen:
                return
            seen.add(e.id)
            if not depends(e, self.inner, self.memo):
                if e.op not in ("const", "index", "row", "loop", "guard"):
                    found.append(e)
                return
            if e.op == "guard":
                visit(e.args[0])
            elif e.op != "loop":
                for a in e.args:
                    visit(a)

        for value in values:
            visit(value)
        for e in found:
            self.emit.bind(e)
