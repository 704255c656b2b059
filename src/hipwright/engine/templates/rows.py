"""Rows: reductions and what is computed from them, in passes over the row (softmax, norms, losses, pooled means).

Mappings: `block` one row a block, `lanes` one row by LANES neighbouring lanes, `columns` neighbouring threads on
neighbouring rows (for strided reductions, so that memory is read along the kept dimension).
"""

from __future__ import annotations

from collections.abc import Iterator

from hipwright.engine.emit import ATOM, literal
from hipwright.engine.expr import COMPUTE, E, walk
from hipwright.engine.index import Ix, Var, flatten, ix, product
from hipwright.engine.schedule import FULL, PART, ROW, Group, Member
from hipwright.engine.templates.base import Body, Kernel, depends, fused
from hipwright.engine.templates.sweep import Sweep, Threads

OPERATORS = {"sum": "Sum", "prod": "Product", "max": "Max", "min": "Min", "any": "Any", "all": "All",
             "argmax": "BestMax", "argmin": "BestMin"}  # fmt: skip
START = {"sum": 0, "prod": 1, "any": 0, "all": 1}


MAX_ITEMS = {"block": 8192, "lanes": 1024, "columns": 0}
MAX_KEPT = 3


def rows(body: Body, mapping: str, registers: bool = False, vector: bool = False) -> Kernel:
    """The kernel for a group with reductions.

    registers: keep the row in registers between passes. vector: ROW_VEC neighbours at a time where they lie together.
    """
    return _Rows(body, mapping, registers, vector).kernel()


def can_keep(group: Group, mapping: str) -> bool:
    """A row of fixed, short length can stay in registers."""
    length = product(group.inner).value
    return length is not None and 0 < length <= MAX_ITEMS[mapping]


class _Rows:
    def __init__(self, body: Body, mapping: str, registers: bool, vector: bool) -> None:
        self.body = body
        self.registers = registers
        self.vector = vector and mapping != "columns"
        self.kept: dict[int, tuple[E, int, str]] = {}  # expression id -> (expression, pass that computes it, array)
        self.mapping = mapping
        self.emit = body.emit
        self.group = body.group
        self.levels: dict[str, int] = {}
        self.inner: set[str] = set()
        self.memo: dict[int, bool] = {}
        self.packs: dict[tuple[str, str], str] = {}

    def kernel(self) -> Kernel:
        body, group, emit = self.body, self.group, self.emit
        kept = [k for k in range(len(group.space)) if k not in group.dims]
        emit.taken |= {"row", "r", "c", "v", "live", "lane", *(f"i{k}" for k in range(8)), *(f"j{k}" for k in range(8))}
        outer_table, outer_lines = body.name_variables(kept, "i", "row") if kept else ({}, [])
        inner_table, self.inner_lines = body.name_variables(group.dims, "j", "r")
        columns = {v: ix(Var("c", v.size)) for v in group.columns.values()}
        table = {**outer_table, **inner_table, **columns}
        self.flat_index = [table[v] for v in group.variables]
        body.rename(table)
        self.inner = {"r", "c", *(f"j{k}" for k in range(len(group.dims)))}
        self.count = emit.position(product(group.outer))
        self.length = emit.position(product(group.inner))
        grid = self._prologue()
        for line in outer_lines:
            emit.line(line)
        self.row_sweep = Sweep("r", self.length, product(group.inner), self.inner, self.inner_lines)
        self._alias_position()
        plain = emit.read
        emit.read = lambda e, position: self.packs.get((e.attr[0], e.attr[1].key)) or plain(e, position)
        self._levels()
        whole = [m for level in range(self._last() + 1) for m in self._at(level)]
        stores = [m for m in whole if m.role == FULL]
        self.row_vector = self.vector and self.row_sweep.neighbours([m.value for m in whole], stores, set())
        if self.registers:
            self._plan_registers()
        for level in range(self._last() + 1):
            self._pass(level)
        return body.finish(grid, self.block, fused(group), emit.lines, self.block)

    def _alias_position(self) -> None:
        """Where the reduced dimensions come last, an element's position is row * length + r."""
        group = self.group
        if list(group.dims) == list(range(len(group.space) - len(group.dims), len(group.space))):
            flat = flatten(group.space, self.flat_index)
            length = self.length if self.length.isidentifier() or self.length.isdigit() else f"({self.length})"
            start = "" if product(group.outer).value == 1 else f"row * {length}"
            self.emit.aliases[flat.key] = f"{start} + r" if start else "r"
            self.row_sweep.row_starts[flat.key] = start or "0"

    # ------------------------------------------------------------ mapping

    def _prologue(self) -> str:
        emit, body, kind = self.emit, self.body, self.body.index_type
        if self.mapping == "block":
            self.block, self.threads = "ROW_BLOCK", Threads("threadIdx.x", "ROW_BLOCK")
            body.knobs.add("ROW_BLOCK")
            emit.line(f"const {kind} row = blockIdx.x;")
            return "{rows}"
        if self.mapping == "lanes":
            self.block, self.threads = "BLOCK", Threads("lane", "LANES", "live")
            body.knobs |= {"BLOCK", "LANES"}
            emit.line("const int lane = threadIdx.x % LANES;")
            emit.line(f"const {kind} first = blockIdx.x * ({kind})(BLOCK / LANES) + threadIdx.x / LANES;")
            grid = "cdiv({rows}, BLOCK // LANES)"
        else:
            self.block, self.threads = "BLOCK", Threads("lane", "(BLOCK / COLUMNS)", "live")
            body.knobs |= {"BLOCK", "COLUMNS"}
            emit.line("const int lane = threadIdx.x / COLUMNS;")
            emit.line(f"const {kind} first = blockIdx.x * ({kind})COLUMNS + threadIdx.x % COLUMNS;")
            grid = "cdiv({rows}, COLUMNS)"
        emit.line(f"const bool live = first < {self.count};  // the last block may have rows to spare")
        emit.line(f"const {kind} row = live ? first : {self.count} - 1;")
        emit.taken.add("first")
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
        full = [self.levels[f"={m.item.name}"] for m in self.body.stored if m.role in (FULL, PART)]
        reds = [self.levels[m.item.name] for m in self.group.members if m.role == "red"]
        return max([*full, *reds])

    def _pass(self, level: int) -> None:
        reds = [m for m in self.group.members if m.role == "red" and self.levels[m.item.name] == level]
        full = [m for m in self.body.stored if m.role == FULL and self.levels[f"={m.item.name}"] == level]
        if reds or full:
            self._loop(self.row_sweep, level, reds, full)
        for column in self.group.columns.values():
            self._part(level, column)
        for member in reds:
            if member.item.name in self.body.need.stores:
                self._store_row(member, self.body.rows[member.item.name])
        for member in self.body.stored:
            if member.role == ROW and max(self.levels[f"={member.item.name}"], 1) == level + 1:
                self.emit.count([member.value])
                self._store_row(member, None)

    def _part(self, level: int, column: Var) -> None:
        """The values that have columns of their own: a loop over these."""
        assert column.size is not None
        mine = [
            m
            for m in self.body.stored
            if m.role == PART and self.levels[f"={m.item.name}"] == level and self._column(m) == column.size
        ]
        if mine:
            length = self.emit.position(column.size)
            self._loop(Sweep("c", length, column.size, self.inner), level, [], mine)

    def _column(self, member: Member) -> Ix | None:
        return next((a.size for a in member.position.atoms() if isinstance(a, Var) and a.name == "c"), None)

    def _plan_registers(self) -> None:
        """What a later pass needs and an earlier one has computed per element stays in an array."""
        seen: dict[int, int] = {}
        found: dict[int, E] = {}
        for level in range(self._last() + 1):
            values = [m.value for m in self._at(level)]
            before = {number for number, made in seen.items() if made < level}
            for e in _elements(values, self.inner, self.memo, before):
                if seen.setdefault(e.id, level) < level:
                    found[e.id] = e
        if not 0 < len(found) <= MAX_KEPT:
            self.registers = False
            return
        emit = self.emit
        emit.taken |= {"k", "items"}
        step = f"({self.threads.step} * ROW_VEC)" if self.row_vector else self.threads.step
        emit.line(f"constexpr int items = ({self.length} + {step} - 1) / {step};")
        for number, e in sorted(found.items()):
            name = emit.fresh(f"{e.label or (e.attr[0] if e.op == 'load' else 'kept')}_row")
            count = "items * ROW_VEC" if self.row_vector else "items"
            emit.line(f"{e.ctype} {name}[{count}];  // this thread's part of the row")
            self.kept[number] = (e, seen[number], name)

    def _at(self, level: int) -> list[Member]:
        """The members that a pass evaluates along the row."""
        reds = [m for m in self.group.members if m.role == "red" and self.levels[m.item.name] == level]
        return reds + [m for m in self.body.stored if m.role == FULL and self.levels[f"={m.item.name}"] == level]

    def _open(self, sweep: Sweep, level: int, values: list[E], full: list[Member]) -> bool:
        """The loop along the row (one level deeper when it takes packs, then True)."""
        emit, kind, threads = self.emit, self.body.index_type, self.threads
        registers = self.registers and sweep is self.row_sweep
        known = {number for number, (_, made, _) in self.kept.items() if made < level} if registers else set()
        vector = self.row_vector if registers else self.vector and sweep.neighbours(values, full, known)
        name = "base" if vector else sweep.variable
        first = f"{threads.first} * ROW_VEC" if vector else threads.first
        step = f"{threads.step} * ROW_VEC" if vector else threads.step
        if registers:
            emit.line("#pragma unroll")
            emit.open("for (int k = 0; k < items; ++k)")
            turn = f"({threads.first} + k * {threads.step}) * ROW_VEC" if vector else f"{first} + k * {step}"
            emit.line(f"const {kind} {name} = {turn};")
            emit.line(f"if ({name} >= {sweep.length}) continue;")
        else:
            emit.open(f"for ({kind} {name} = {first}; {name} < {sweep.length}; {name} += {step})")
        if vector:
            self.body.knobs.add("ROW_VEC")
            emit.used.add(("Pack", ""))
            sweep.read_packs(self.body, values, full, known)
            self.packs = sweep.packs
            sweep.open_elements(self.body, registers)
        else:
            for line in sweep.splits:
                emit.line(line)
        if registers:
            self._keep(level, "[k * ROW_VEC + v]" if vector else "[k]")
        return vector

    def _keep(self, level: int, place: str) -> None:
        """Names for what earlier passes kept; what this pass keeps is computed and stored."""
        for e, made, name in self.kept.values():
            if made < level:
                self.emit.name(e, f"{name}{place}")
        for e, made, name in self.kept.values():
            if made == level:
                self.emit.line(f"{name}{place} = {self.emit.text(e)[0]};")
                self.emit.name(e, f"{name}{place}")

    def _loop(self, sweep: Sweep, level: int, reds: list[Member], full: list[Member]) -> None:
        emit = self.emit
        values = [m.value for m in [*reds, *full]]
        emit.count(values)
        self._hoist(values, level)
        for member in reds:
            self._declare(member)
        vector = self._open(sweep, level, values, full)
        for member in reds:
            self._accumulate(member)
        for member in full:
            if member.item.name in sweep.stores:
                text = self.body.as_stored(member, emit.text(member.value)[0])
                emit.line(f"{sweep.stores[member.item.name][0]}.v[v] = {text};")
        direct = [m for m in full if m.item.name not in sweep.stores]
        if direct and self.threads.guard:
            emit.open(f"if ({self.threads.guard})")
        for member in direct:
            emit.line(self.body.store(member, emit.text(member.value)[0], emit.position(member.position)))
        if direct and self.threads.guard:
            emit.close()
        if vector:
            emit.close()
            sweep.write_packs(self.body, self.threads.guard)
            self.packs = {}
        emit.close()
        self._combine(reds)

    def _combine(self, reds: list[Member]) -> None:
        """Each thread's part of the reductions becomes the row's."""
        emit = self.emit
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
            start = _worst(kind == "argmax", ctype)
            self.emit.taken.add(f"{name}_best")
            self.emit.line(f"Best<{ctype}> {name}_best = {{{start}, 0x7fffffffffffffffL}};")
            return
        ctype = self._ctype(member)
        start = _worst(kind == "max", ctype) if kind in ("max", "min") else literal(START[kind], ctype)
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
            typed = text if rank >= ATOM and member.value.op != "index" else f"({self._ctype(member)})({text})"
            emit.line(f"{name} = nan_{kind}({name}, {typed});")
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

    def _hoist(self, values: list[E], level: int) -> None:
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
            if e.op == "guard":
                visit(e.args[0])
            elif e.op != "loop":
                for a in e.args:
                    visit(a)

        for value in values:
            visit(value)
        for e in found:
            self.emit.bind(e)


def _elements(values: list[E], inner: set[str], memo: dict[int, bool], stop: set[int]) -> Iterator[E]:
    """Expressions that change along the row and cost something, outermost first; not below those in `stop`."""
    stack, done = list(values), set[int]()
    while stack:
        e = stack.pop()
        if e.id in done or not depends(e, inner, memo):
            continue
        done.add(e.id)
        cheap = e.op == "bin" and not all(depends(a, inner, memo) for a in e.args)  # x - mean: keep x
        if e.op in ("load", "fn", "bin", "sel", "guard", "loop") and not cheap:
            yield e
            if e.id in stop:
                continue
        if e.op not in ("guard", "loop"):
            stack.extend(e.args)


def _worst(maximum: bool, ctype: str) -> str:
    """What every value beats."""
    if ctype in ("float", "double"):
        return literal(float("-inf") if maximum else float("inf"), ctype)
    big = "0x7fffffffffffffffL" if ctype == "long" else "0x7fffffff"
    return f"-{big} - 1" if maximum else big
