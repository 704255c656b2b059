"""One loop along a row: the reduced elements (`r`) or a part's columns (`c`), ROW_VEC neighbours at a time where they
lie side by side in memory, so that a wave reads with its widest loads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from hipwright.engine.expr import STORAGE, E
from hipwright.engine.index import Ind, Ix, Var, ix, to_c
from hipwright.engine.schedule import Member
from hipwright.engine.templates.base import Body


@dataclass
class Threads:
    """How a row's elements are dealt out: thread `first` takes every `step`-th; `guard` says it has a row at all."""

    first: str
    step: str
    guard: str = ""


@dataclass(eq=False)
class Sweep:
    """The loop's variable, its bound as text and number, and how its index splits. row_starts: {position: text}."""

    variable: str
    length: str
    width: Ix
    inner: set[str]
    splits: Sequence[str] = ()
    row_starts: dict[str, str] = field(default_factory=dict)
    packs: dict[tuple[str, str], str] = field(default_factory=dict)
    stores: dict[str, tuple[str, str]] = field(default_factory=dict)  # item -> (its pack, where it goes)

    def start(self, position: Ix) -> str | None:
        """Where the row begins for an access that walks it element by element, else None."""
        if position.key in self.row_starts:
            return self.row_starts[position.key]
        mine = [a for a in position.atoms() if isinstance(a, Var) and a.name == self.variable]
        if len(mine) != 1 or position.terms.get((mine[0],)) != 1:
            return None
        rest = position - ix(mine[0])
        if any(isinstance(a, Ind) or (isinstance(a, Var) and a.name in self.inner) for a in rest.atoms()):
            return None
        return self.row_starts.get(rest.key) or to_c(rest)

    def neighbours(self, values: Sequence[E], members: Sequence[Member], stop: set[int]) -> bool:
        """Does the loop read or write anything element by element?"""
        loads = (e.attr[1] for e in _loads(values, stop))
        return any(self.start(p) is not None for p in [*loads, *(m.position for m in members)])

    # ------------------------------------------------------------ text

    def _bound(self, body: Body) -> str:
        """The loop's bound with the index's own type, which the packs' templates need."""
        return self.length if body.index_type == "int" else f"(long)({self.length})"

    def read_packs(self, body: Body, values: Sequence[E], members: Sequence[Member], stop: set[int]) -> None:
        """Read what the next ROW_VEC elements need, declare what they make."""
        emit = body.emit
        bound = self._bound(body)
        for e in _loads(values, stop):
            buffer, position, _ = e.attr
            if (buffer, position.key) in self.packs:
                continue
            start = self.start(position)
            if start is not None:
                name = emit.fresh(f"{body.pointers[buffer]}_pack")
                where = _offset(body.pointers[buffer], start)
                emit.line(f"const auto {name} = load_pack<ROW_VEC>({where}, base, {bound});")
                self.packs[buffer, position.key] = f"{name}.v[v]"
        for member in members:
            start = self.start(member.position)
            if start is not None:
                buffer, dtype = body.need.stores[member.item.name]
                name = emit.fresh(f"{body.pointers[buffer]}_out")
                emit.line(f"Pack<{STORAGE[dtype]}, ROW_VEC> {name};")
                self.stores[member.item.name] = (name, _offset(body.pointers[buffer], start))

    def write_packs(self, body: Body, guard: str) -> None:
        """Store what the elements made."""
        bound = self._bound(body)
        for name, where in self.stores.values():
            condition = f"if ({guard}) " if guard else ""
            body.emit.line(f"{condition}store_pack<ROW_VEC>({where}, base, {bound}, {name});")
        self.packs, self.stores = {}, {}

    def open_elements(self, body: Body, unroll: bool) -> None:
        """The loop over the ROW_VEC elements; the last ones of a row may be missing."""
        emit = body.emit
        if unroll:
            emit.line("#pragma unroll")
        emit.open("for (int v = 0; v < ROW_VEC; ++v)")
        emit.line(f"const {body.index_type} {self.variable} = base + v;")
        odd = f"{self.length} % ROW_VEC != 0 && " if self.width.value is not None else ""
        emit.line(f"if ({odd}{self.variable} >= {self.length}) break;")
        for text in self.splits:
            emit.line(text)


def _offset(pointer: str, start: str) -> str:
    return pointer if start in ("", "0") else f"{pointer} + {start}"


def _loads(values: Sequence[E], stop: set[int]) -> Iterator[E]:
    """Loads that every element performs: none under a condition, none below the expressions in `stop`."""
    stack, done = list(reversed(values)), set[int]()
    while stack:
        e = stack.pop()
        if e.id in done or e.id in stop:
            continue
        done.add(e.id)
        if e.op == "load":
            yield e
        stack.extend(reversed(e.args[:1] if e.op == "guard" else () if e.op == "loop" else e.args))
