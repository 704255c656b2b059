"""The states in which a product's kernel reduces a row of its tile (fuse/row_tiles.py): begun, added to, stored.

`lanes` neighbouring lanes hold a row; each adds its columns in order, then the lanes' states are combined, the lower
column first among equal values.
"""

from __future__ import annotations

from dataclasses import dataclass

from hipwright.engine.emit.builder import cname
from hipwright.engine.fuse.groups import GroupMember
from hipwright.engine.ir.expr import E
from hipwright.engine.ir.index import replace
from hipwright.engine.templates.call_kernel import CallKernel
from hipwright.engine.templates.call_operands import Place
from hipwright.engine.templates.rows.reducers import OPERATORS, START, worst


@dataclass(eq=False)
class _State:
    """One state, and the members that store it or its place."""

    name: str
    kind: str  # sum, max, min, argmax or argmin
    value: E
    members: list[GroupMember]

    @property
    def has_place(self) -> bool:
        return self.kind.startswith("arg")

    @property
    def used(self) -> list[str]:
        if self.has_place:
            return [OPERATORS[self.kind], "IndexedValue"]
        return [] if self.kind == "sum" else [f"nan_{self.kind}"]

    @property
    def declaration(self) -> str:
        if self.has_place:
            return f"IndexedValue<float, int> {self.name} = {{{worst(self.kind == 'argmax', 'float')}, 0x7fffffff}};"
        start = f"{START[self.kind]}.0f" if self.kind == "sum" else worst(self.kind == "max", "float")
        return f"float {self.name} = {start};"

    def added(self, value: str, column: str) -> str:
        if self.has_place:
            return f"{OPERATORS[self.kind]}().update({self.name}, {value}, (int)({column}));"
        if self.kind == "sum":
            return f"{self.name} += {value};"
        return f"{self.name} = nan_{self.kind}({self.name}, {value});"

    def combined(self) -> str:
        if self.has_place:
            return f"{self.name} = {OPERATORS[self.kind]}()({self.name}, shuffle_xor({self.name}, distance));"
        other = f"__shfl_xor({self.name}, distance)"
        if self.kind == "sum":
            return f"{self.name} += {other};"
        return f"{self.name} = nan_{self.kind}({self.name}, {other});"

    def stored(self, member: GroupMember) -> str:
        if not self.has_place:
            return self.name
        # a row without any value better than the start consists of it: the tile's first column counts
        place = f"{self.name}.index == 0x7fffffff ? (int)(col0) : {self.name}.index"
        return f"({place})" if member.item.reduction.startswith("arg") else f"{self.name}.value"


class RowTileStates:
    """The states of one kernel; none where nothing reduces the product's rows."""

    def __init__(self, k: CallKernel) -> None:
        self.k = k
        members = [m for m in k.body.group.members if m.item.kind == "tiles" and m.item.name in k.body.need.stores]
        self.states: list[_State] = []
        for member in sorted(members, key=lambda m: not m.item.reduction.startswith("arg")):
            kind = member.item.reduction
            alike = [s for s in self.states if s.value is member.value]
            found = next((s for s in alike if s.kind.removeprefix("arg") == kind), None)
            if found is not None:
                found.members.append(member)
                continue
            name = k.fresh(f"{cname(member.item.name)}_state")
            self.states.append(_State(name, kind, member.value, [member]))

    def __bool__(self) -> bool:
        return bool(self.states)

    def begin(self) -> None:
        """Declares the states."""
        for state in self.states:
            self.k.use(*state.used)
            self.k.line(state.declaration)

    def add(self, value: str, index: Place, column: str) -> None:
        """Adds the element at an index in range. value: the product's, as C text; column: that of the index."""
        k = self.k

        table = k.variables_at(index)
        values = k.c.arena.rewrite([s.value for s in self.states], table.get, lambda e: None)
        k.rows[k.body.group.items[0].name] = value
        k.emit.scopes.append({})
        k.emit.count(values)
        for state, e in zip(self.states, values, strict=True):
            k.line(state.added(k.emit.text(e)[0], column))
        k.emit.scopes.pop()

    def store(self, lanes: int, condition: str, index: Place) -> None:
        """Combines the states of a row's lanes; the first one stores them where the condition holds.

        index: of the tile's first element.
        """
        k = self.k
        k.line("#pragma unroll")
        k.open(f"for (int distance = {lanes // 2}; distance > 0; distance /= 2)")
        for state in self.states:
            k.line(state.combined())
        k.close()

        table = k.variables_at(index)
        k.open(f"if ({condition})")
        for state in self.states:
            for member in state.members:
                buffer = k.body.need.stores[member.item.name][0]
                k.written.add(buffer)
                place = k.emit.position(replace(member.position, table.get))
                k.line(f"{k.pointer(buffer)}[{place}] = {state.stored(member)};")
        k.close()
