"""The states in which a product's kernel reduces a row of its tile (fuse/row_tiles.py): begun, added to, stored.

Neighbouring lanes hold a row, or two threads do; each adds its columns in order, then their states are combined, the
lower column first among equal values.
"""

from __future__ import annotations

from dataclasses import dataclass

from hipwright.engine.emit.builder import cname
from hipwright.engine.fuse.groups import GroupMember
from hipwright.engine.ir.expr import E
from hipwright.engine.ir.index import replace
from hipwright.engine.templates.call_kernel import CallKernel
from hipwright.engine.templates.call_operands import Place
from hipwright.engine.templates.rows.reducers import OPERATORS, worst

SUMEXP = "sumexp"
"""The sum of exponentials under the tile's maximum."""


@dataclass(eq=False)
class _State:
    """One state, and the members that store it or a part of it."""

    name: str
    kind: str  # sum, max, min, argmax, argmin or sumexp
    value: E
    members: list[GroupMember]

    @property
    def used(self) -> list[str]:
        if self.kind.startswith("arg"):
            return [OPERATORS[self.kind], "IndexedValue"]
        if self.kind == SUMEXP:
            return ["SoftmaxState", "add_products_to_softmax"]
        return [] if self.kind == "sum" else [f"nan_{self.kind}"]

    @property
    def start(self) -> str:
        """The state of no value, as C text."""
        if self.kind.startswith("arg"):
            return f"{{{worst(self.kind == 'argmax', 'float')}, 0x7fffffff}}"
        if self.kind == SUMEXP:
            return f"{{{worst(True, 'float')}, 0.0f}}"
        return "0.0f" if self.kind == "sum" else worst(self.kind == "max", "float")

    def added(self, value: str, column: str, place: str) -> str:
        """The statement that adds a value. place: its number in the lane, as C text."""
        if self.kind.startswith("arg"):
            return f"{OPERATORS[self.kind]}().update({self.name}, {value}, (int)({column}));"
        if self.kind == SUMEXP:
            return f"{self.name}_values[{place}] = {value};"
        return f"{self.name} += {value};" if self.kind == "sum" else self._better(value)

    @property
    def of_lane(self) -> str:
        """The state of the lane at `distance`, as C text."""
        shuffle = "shuffle_xor" if self.kind.startswith("arg") or self.kind == SUMEXP else "__shfl_xor"
        return f"{shuffle}({self.name}, distance)"

    @property
    def type(self) -> str:
        """Its C type."""
        if self.kind.startswith("arg"):
            return "IndexedValue<float, int>"
        return "SoftmaxState<float>" if self.kind == SUMEXP else "float"

    def combined(self, other: str) -> str:
        """The statement that takes in another state, a C text."""
        if self.kind.startswith("arg") or self.kind == SUMEXP:
            operator = "MergeSoftmax" if self.kind == SUMEXP else OPERATORS[self.kind]
            return f"{self.name} = {operator}()({self.name}, {other});"
        return f"{self.name} += {other};" if self.kind == "sum" else self._better(other)

    def _better(self, other: str) -> str:
        return f"{self.name} = nan_{self.kind}({self.name}, {other});"

    def stored(self, member: GroupMember, first: str) -> str:
        """What a member stores of it. first: the first column, as C text."""
        if self.kind == SUMEXP:
            return f"{self.name}.{'sum' if member.item.reduction == SUMEXP else 'max'}"
        if not self.kind.startswith("arg"):
            return self.name
        # columns without any value better than the start consist of it: the first one counts
        place = f"{self.name}.index == 0x7fffffff ? {first} : {self.name}.index"
        return f"({place})" if member.item.reduction.startswith("arg") else f"{self.name}.value"

    def holds(self, member: GroupMember) -> bool:
        """Whether a member's result is a part of it."""
        kind = member.item.reduction
        same = self.kind.removeprefix("arg") == kind or (self.kind == SUMEXP and kind == "max")
        return self.value is member.value and same


class RowTileStates:
    """The states of one kernel; none where nothing reduces the product's rows."""

    def __init__(self, k: CallKernel) -> None:
        self.k = k
        members = [m for m in k.body.group.members if m.item.kind == "tiles" and m.item.name in k.body.need.stores]
        self.states: list[_State] = []
        for member in sorted(members, key=lambda m: m.item.reduction in ("max", "min")):
            kind = member.item.reduction
            found = next((s for s in self.states if s.holds(member)), None)
            if found is not None:
                found.members.append(member)
                continue
            name = k.fresh(f"{cname(member.item.name)}_state")
            self.states.append(_State(name, kind, member.value, [member]))

    def __bool__(self) -> bool:
        return bool(self.states)

    def begin(self, width: int) -> None:
        """Declares the states. width: columns of a lane."""
        for state in self.states:
            self.k.use(*state.used)
            self.k.line(f"{state.type} {state.name} = {state.start};")
            self._declare_values(state, str(width))

    def begin_rows(self, count: str) -> None:
        """Declares the states of a thread's `count` rows, a C text; between `open_row` and `end` they are row i's."""
        for state in self.states:
            self.k.use(*state.used)
            self.k.line(f"{state.type} {state.name}_rows[{count}];")
            self.k.line("#pragma unroll")
            self.k.line(f"for (int i = 0; i < {count}; ++i) {state.name}_rows[i] = {state.start};")

    def open_row(self, width: str) -> None:
        """Names the states of row i. width: columns that are added at once, as C text."""
        for state in self.states:
            self.k.line(f"{state.type}& {state.name} = {state.name}_rows[i];")
            self._declare_values(state, width)

    def _declare_values(self, state: _State, width: str) -> None:
        if state.kind == SUMEXP:
            self.k.line(f"float {state.name}_values[{width}] = {{}};")

    def end(self, count: str) -> None:
        """Takes in the values that are added together. count: how many columns of the lane are in range."""
        for state in self.states:
            if state.kind == SUMEXP:
                added = f"{state.name}, {state.name}_values, {count}"
                self.k.line(f"{state.name} = add_products_to_softmax({added});")

    def add(self, value: str, index: Place, column: str, place: str) -> None:
        """Adds the element at an index in range. C texts: the product's value, its column, its number in the lane."""
        k, table = self.k, self.k.variables_at(index)
        values = k.c.arena.rewrite([s.value for s in self.states], table.get, lambda e: None)
        k.rows[k.body.group.items[0].name] = value
        k.emit.scopes.append({})
        k.emit.count(values)
        for state, e in zip(self.states, values, strict=True):
            k.line(state.added(k.emit.text(e)[0], column, place))
        k.emit.scopes.pop()

    def store(self, lanes: int, condition: str, index: Place) -> None:
        """Combines the states of a row's lanes; the first one stores them where the condition holds.

        index: of the tile's first element.
        """
        k = self.k
        k.line("#pragma unroll")
        k.open(f"for (int distance = {lanes // 2}; distance > 0; distance /= 2)")
        for state in self.states:
            k.line(state.combined(state.of_lane))
        k.close()
        k.open(f"if ({condition})")
        self._stores(index)
        k.close()

    def store_halves(self, rows: int, row: str, condition: str, index: Place) -> None:
        """Combines the states of the two threads of each row, `rows` apart; the first one stores them.

        row: that of a thread, as C text; condition: under which there is one; index: of the tile's first element. All
        threads of the block call it, and `lds`, which held the product's sums, is free.
        """
        k = self.k
        k.line("__syncthreads();  // the sums have been read")
        for number, state in enumerate(self.states):
            place = f"lds + {8 * rows * number}"
            k.line(f"{state.type}* const {state.name}_half = reinterpret_cast<{state.type}*>({place});")
            k.line(f"if (threadIdx.x >= {rows}) {state.name}_half[{row}] = {state.name};")
        k.line("__syncthreads();")
        k.line(f"if (threadIdx.x >= {rows} || !({condition})) return;")
        for state in self.states:
            k.line(state.combined(f"{state.name}_half[{row}]"))
        self._stores(index)

    def store_shares(self, tile: str, rows: int, condition: str, index: Place) -> None:
        """Combines the states of all threads that have columns of a row; one thread of each row stores them.

        tile: a type with TM, SHARES, row(i) and share(), as C text; rows: of the block; condition: under which there is
        row `threadIdx.x`; index: of its first element. All threads call it, and `lds` is free after a barrier.
        """
        k = self.k
        for state in self.states:
            shares = f"{state.name}_shares"
            k.line("__syncthreads();  // what was in LDS has been read")
            k.line(f"{state.type}* const {shares} = reinterpret_cast<{state.type}*>(lds);")
            k.line("#pragma unroll")
            place = f"{tile}::share() * {rows} + {tile}::row(i)"
            k.line(f"for (int i = 0; i < {tile}::TM; ++i) {shares}[{place}] = {state.name}_rows[i];")
            k.line("__syncthreads();")
            k.line(f"{state.type} {state.name} = {shares}[threadIdx.x % {rows}];")
            k.open(f"for (int i = 1; i < {tile}::SHARES; ++i)")
            k.line(state.combined(f"{shares}[i * {rows} + threadIdx.x % {rows}]"))
            k.close()
        k.line(f"if (threadIdx.x >= {rows} || !({condition})) return;")
        self._stores(index, "0")

    def _stores(self, index: Place, first: str = "(int)(col0)") -> None:
        k, table = self.k, self.k.variables_at(index)
        for state in self.states:
            for member in state.members:
                buffer = k.body.need.stores[member.item.name][0]
                k.written.add(buffer)
                place = k.emit.position(replace(member.position, table.get))
                k.line(f"{k.pointer(buffer)}[{place}] = {state.stored(member, first)};")
