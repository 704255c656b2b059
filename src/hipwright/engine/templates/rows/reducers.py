"""The states that a row kernel accumulates while it reads: one per reduction, or one for several found together.

`mean`, `rest` and `squares` of the same values are one `Moments`; a maximum and the sum of exponentials under it are
one `SoftmaxState` (online softmax) when the row does not stay in registers, so that memory is read once (Milakov &
Gimelshein 2018).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from hipwright.engine.emit.statements import ATOM, Emitter, literal
from hipwright.engine.fuse.groups import GroupMember
from hipwright.engine.ir.expr import COMPUTE, ROUNDING, E, walk

OPERATORS = {
    "sum": "Sum",
    "prod": "Product",
    "max": "Max",
    "min": "Min",
    "any": "Any",
    "all": "All",
    "argmax": "ArgMax",
    "argmin": "ArgMin",
}
MOMENTS = {"mean": ".mean()", "rest": ".rest()", "squares": ".squares"}
START = {"sum": 0, "prod": 1, "any": 0, "all": 1}
MEMORY = {"float": ("float32", 1), "double": ("float64", 1), "int": ("int32", 1), "long": ("int64", 1)}


@dataclass(eq=False)
class ReducerState:
    """The state of one thread: its type, its start, how two are combined, and whose results it holds."""

    name: str
    kind: str  # a reduction, "moments" or "softmax"
    ctype: str  # of the values
    value: E
    members: list[GroupMember]
    results: dict[str, str] = field(default_factory=dict)  # item -> the suffix of the state's name
    index: str = "long"  # the type of an index in the row
    ignores_nan: bool = False  # a maximum of numbers: what reads it is NaN anyway where a value is
    products: bool = False  # its values may be products, which a compiler would contract instead of rounding
    tile_sum: str = ""  # the sum of one tile that takes the values of a long sum, if one is open (long_sums.py)

    @property
    def struct(self) -> str:
        """The C type."""
        if self.kind.startswith("arg"):
            return f"IndexedValue<{self.ctype}, {self.index}>"
        return {"moments": f"Moments<{self.ctype}>", "softmax": f"SoftmaxState<{self.ctype}>"}.get(
            self.kind, self.ctype
        )

    @property
    def start(self) -> str:
        """The state of no values, as an initialiser."""
        if self.kind.startswith("arg"):
            none = "0x7fffffff" if self.index == "int" else "0x7fffffffffffffffL"
            return f"{{{worst(self.kind == 'argmax', self.ctype)}, {none}}}"
        if self.kind in ("moments", "softmax"):
            zero = literal(0, self.ctype)
            return (
                f"{{{zero}, {zero}, {zero}, {zero}}}"
                if self.kind == "moments"
                else f"{{{worst(True, self.ctype)}, {zero}}}"
            )
        if self.kind in ("max", "min"):
            return worst(self.kind == "max", self.ctype)
        return literal(START[self.kind], self.ctype)

    @property
    def value_start(self) -> str:
        """The state of no values, as an expression."""
        return f"{self.struct}{self.start}" if self.start.startswith("{") else self.start

    @property
    def operator(self) -> str:
        """The functor that combines two states."""
        if self.ignores_nan:
            return "MaxNumber"
        return {"moments": "MergeMoments", "softmax": "MergeSoftmax"}.get(self.kind) or OPERATORS[self.kind]

    @property
    def by_tile(self) -> bool:
        """Whether it takes all values of a thread's tile at a time."""
        return self.kind in ("moments", "softmax")

    @property
    def add_tile(self) -> str:
        """The device function that adds a tile."""
        return f"add_products_to_{self.kind}" if self.products else "add_tile"

    def note(self, emit: Emitter) -> None:
        """Notes the device code that it needs."""
        if self.by_tile:
            emit.used.add("Moments" if self.kind == "moments" else "SoftmaxState")
            self.products = emit.rounding.product(self.value)
            if self.products:
                emit.used.add(self.add_tile)
        else:
            emit.used.add(self.operator)

    def add(self, emit: Emitter, column: str, k: str, flat: str) -> None:
        """Writes the addition of one value.

        column: "" or the column's "[v]"; k: the element's index in the tile; flat: its index in the row.
        """
        text, rank = emit.text(self.value)
        name = self.tile_sum or f"{self.name}{column}"
        if self.by_tile:
            emit.line(f"{self.name}_tile[{k}] = {text};")
        elif self.kind.startswith("arg"):
            emit.line(f"{self.operator}().update({name}, {text}, {flat});")  # a thread processes a row in order
        elif self.kind in ("sum", "prod"):
            emit.line(f"{name} {'+' if self.kind == 'sum' else '*'}= {text};")
        elif self.ignores_nan:
            emit.line(f"{name} = fmax{'f' if self.ctype == 'float' else ''}({name}, {text});")
        elif self.kind in ("max", "min"):
            emit.used.add(f"nan_{self.kind}")
            typed = text if rank >= ATOM and self.value.op != "index" else f"({self.ctype})({text})"
            emit.line(f"{name} = nan_{self.kind}({name}, {typed});")
        else:
            emit.line(f"{name} = {name} {'||' if self.kind == 'any' else '&&'} ({text});")

    def memory(self) -> tuple[str, int]:
        """(dtype, number of elements) of the memory that holds one state."""
        if self.kind.startswith("arg"):
            return "int64", 2
        dtype, _ = MEMORY[self.ctype]
        return dtype, {"moments": 4, "softmax": 2}.get(self.kind, 1)


def worst(maximum: bool, ctype: str) -> str:
    """A value that every value replaces."""
    if ctype in ("float", "double"):
        return literal(float("-inf") if maximum else float("inf"), ctype)
    big = "0x7fffffffffffffffL" if ctype == "long" else "0x7fffffff"
    return f"-{big} - 1" if maximum else big


def pairs(members: Sequence[GroupMember]) -> dict[str, tuple[GroupMember, str]]:
    """Sums of exp(x - max x) with their maxima: {the sum's item: (the maximum, how the sum is read from the state)}."""
    tops = {m.item.name: m for m in members if m.role == "red" and m.item.reduction == "max"}
    found: dict[str, tuple[GroupMember, str]] = {}
    taken: set[str] = set()
    for m in members:
        if m.role != "red" or m.item.reduction != "sum" or m.value.op != "fn" or m.value.attr != "exp":
            continue
        (inner,) = m.value.args
        if inner.op != "bin" or inner.attr != "-":
            continue
        value, shift = inner.args
        safe = shift.op == "fn" and shift.attr == "finite_or_zero"
        row = shift.args[0] if safe else shift
        top = tops.get(row.attr) if row.op == "row" else None
        if top is not None and top.value is value and top.item.name not in taken:
            found[m.item.name] = (top, ".sum" if safe else ".total()")
            taken.add(top.item.name)
    return found


def nan_ignoring(members: Sequence[GroupMember], stored: set[str]) -> set[str]:
    """Maxima that may ignore NaN: each shifts exponentials whose sum is then NaN, and so is all that reads the maximum.

    That is one instruction per value instead of three. stored: the items that reach memory.
    """
    out: set[str] = set()
    for total, (top, _) in pairs(members).items():
        name = top.item.name
        readers = [m for m in members if m.item.name != total and m is not top]
        if name not in stored and all(_unaffected(m.value, name, total) for m in readers):
            out.add(name)
    return out


def _unaffected(e: E, top: str, total: str) -> bool:
    """Whether e is the same if the maximum ignores NaN: it does not read the maximum, or is NaN with the sum."""
    if not any(a.op == "row" and a.attr == top for a in walk([e])) or _is_nan_with(e, total):
        return True
    return e.op in ("bin", "un", "fn", "cast", "sel", "guard") and all(_unaffected(a, top, total) for a in e.args)


def _is_nan_with(e: E, total: str) -> bool:
    """Whether e is NaN where the sum is."""
    if e.op == "row":
        return bool(e.attr == total)
    spreads = e.op in ("bin", "un", "cast") and e.ctype in ("float", "double") and e.attr not in ("<", ">")
    spreads = spreads or (e.op == "fn" and e.attr in ("exp", "log", "reciprocal", *ROUNDING.values()))
    return spreads and any(_is_nan_with(a, total) for a in e.args)


def states(
    emit: Emitter, members: Sequence[GroupMember], online: dict[str, tuple[GroupMember, str]], ignoring_nan: set[str]
) -> list[ReducerState]:
    """The states of one pass's reductions. ignoring_nan: maxima that may ignore NaN."""
    out: list[ReducerState] = []
    sums = {top.item.name: (name, read) for name, (top, read) in online.items()}
    moments: dict[int, ReducerState] = {}
    placed = {(m.item.reduction, m.value.id): m for m in members if m.item.reduction.startswith("arg")}
    by = {m.item.name: m.item for m in members}
    also = {m.item.name: placed.get((f"arg{m.item.reduction}", m.value.id)) for m in members if m.item.name not in sums}
    for m in members:
        kind, name = m.item.reduction, m.item.name
        if name in online:
            continue  # the state of its maximum holds it
        if also.get(name) is not None and COMPUTE[m.item.dtype] == m.value.ctype:
            continue  # the state of its position holds it
        if kind in MOMENTS:
            state = moments.get(m.value.id)
            if state is None:
                label = emit.fresh(f"{m.item.node}_moments" if m.item.node else "moments")
                state = moments[m.value.id] = ReducerState(label, "moments", COMPUTE[m.item.dtype], m.value, [])
                out.append(state)
            state.members.append(m)
            state.results[name] = MOMENTS[kind]
        elif name in sums:
            total, read = sums[name]
            state = ReducerState(emit.fresh(name), "softmax", COMPUTE[m.item.dtype], m.value, [m])
            state.results = {name: ".max", total: read}
            out.append(state)
        else:
            ctype = "int" if kind in ("any", "all") else COMPUTE[m.item.dtype]
            ctype = m.value.ctype if kind.startswith("arg") else ctype
            best = kind.startswith("arg")
            results = {name: ".first()" if best else ""}
            results |= {n: ".value" for n, place in also.items() if place is m and COMPUTE[by[n].dtype] == ctype}
            label = emit.fresh(f"{name}_best" if best else name)
            out.append(ReducerState(label, kind, ctype, m.value, [m], results, emit.index_type, name in ignoring_nan))
    for state in out:
        state.note(emit)
    return out


def levels(members: Sequence[GroupMember], online: dict[str, tuple[GroupMember, str]]) -> dict[str, int]:
    """The pass of each reduction, and under `=name` the first pass after which a value can be computed."""
    out: dict[str, int] = {}
    for member in members:
        needs = [out[e.attr] for e in walk([member.value]) if e.op == "row"]
        after = max(needs, default=-1) + 1
        if member.role == "red":
            out[member.item.name] = out[online[member.item.name][0].item.name] if member.item.name in online else after
        else:
            out.setdefault(f"={member.item.name}", after)
    return out
