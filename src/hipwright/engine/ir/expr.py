"""Scalar expressions: what one element of a tensor is computed from. A hash-consed DAG, torch-free.

`ctype` is the type computed in, not the stored one: narrow floats compute in float, as PyTorch does.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hipwright.engine.ir.index import Atom, Ind, Ix, Var, below, ix, nonneg, replace
from hipwright.float8 import FLOAT8

COMPUTE = {
    "float16": "float",
    "bfloat16": "float",
    "float32": "float",
    "float64": "double",
    "int8": "int",
    "int16": "int",
    "uint8": "int",
    "int32": "int",
    "int64": "long",
    "bool": "bool",
    "float8_e4m3fn": "float",
    "float8_e5m2": "float",
    "float8_e4m3fnuz": "float",
    "float8_e5m2fnuz": "float",
}
STORAGE = {
    "float16": "__half",
    "bfloat16": "__hip_bfloat16",
    "float32": "float",
    "float64": "double",
    "int8": "signed char",
    "int16": "short",
    "uint8": "unsigned char",
    "int32": "int",
    "int64": "long",
    "bool": "bool",
    "float8_e4m3fn": "Float8E4M3FN",
    "float8_e5m2": "Float8E5M2",
    "float8_e4m3fnuz": "Float8E4M3FNUZ",
    "float8_e5m2fnuz": "Float8E5M2FNUZ",
}
BIT_WORD = "bit_word"
"""The dtype of a load of four bytes as one word, from a tensor of bytes (hipwright/bit_words.h)."""
HALVES = frozenset({"float16", "bfloat16"})
ROUNDING = {"float16": "round_half", "bfloat16": "round_bfloat16"} | {d: f"round_{d}" for d in FLOAT8}
"""Narrow floats, which are computed with as float: the device function that rounds to each."""
FLOATING = (*ROUNDING, "float32", "float64")
SMALL_INTS = ("int8", "int16", "uint8")


class E:
    """One scalar expression. op: load const index bin un fn cast sel guard loop row (a value that the kernel names)."""

    __slots__ = ("args", "attr", "ctype", "id", "label", "op")

    def __init__(self, number: int, op: str, args: tuple[E, ...], ctype: str, attr: Any) -> None:
        self.id = number
        self.op = op
        self.args = args
        self.ctype = ctype
        self.attr = attr
        self.label = ""

    def __repr__(self) -> str:
        return f"{self.op}{self.attr if self.attr is not None else ''}({', '.join(map(repr, self.args))})"


@dataclass(frozen=True)
class SerialLoop:
    """attr of a `loop`: a serial reduction over small windows; bounds are [low, high) of each variable."""

    kind: str
    variables: tuple[Var, ...]
    bounds: tuple[tuple[Ix, Ix], ...]

    @property
    def key(self) -> str:
        """Canonical text."""
        return self.kind + ";".join(
            f"{v.name}:{a.key}:{b.key}" for v, (a, b) in zip(self.variables, self.bounds, strict=True)
        )


class ExprArena:
    """Makes expressions; equal ones are the same object."""

    def __init__(self) -> None:
        self._made: dict[Any, E] = {}
        self._order: list[E] = []
        self._counter = 0

    def make(self, op: str, args: Sequence[E], ctype: str, attr: Any = None, key: Any = None) -> E:
        """The one expression with this operator, arguments and attribute."""
        full = (op, tuple(a.id for a in args), ctype, attr if key is None else key)
        found = self._made.get(full)
        if found is None:
            found = self._made[full] = E(len(self._order), op, tuple(args), ctype, attr)
            self._order.append(found)
        return found

    def var(self, prefix: str, size: Ix | None) -> Var:
        """A fresh loop variable."""
        self._counter += 1
        return Var(f"{prefix}{self._counter}", size)

    def load(self, buffer: str, position: Ix, dtype: str) -> E:
        """buffer[position] in the compute type."""
        ctype = "int" if dtype == BIT_WORD else COMPUTE[dtype]
        return self.make("load", _values(position), ctype, (buffer, position, dtype), (buffer, position.key, dtype))

    def const(self, value: float | bool, ctype: str) -> E:
        """A literal."""
        if ctype in ("float", "double"):
            value = float(value)
        elif ctype == "bool":
            value = bool(value)
        else:
            value = int(value)
        return self.make("const", (), ctype, value, repr(value))

    def index(self, position: Ix, ctype: str = "long") -> E:
        """An index expression as a number."""
        if position.value is not None:
            return self.const(position.value, ctype)
        return self.make("index", _values(position), ctype, position, position.key)

    def binary(self, token: str, a: E, b: E, ctype: str | None = None) -> E:
        """a token b."""
        return self.make("bin", (a, b), ctype or a.ctype, token)

    def unary(self, token: str, a: E) -> E:
        """token a."""
        return self.make("un", (a,), a.ctype, token)

    def call(self, name: str, *args: E, ctype: str | None = None) -> E:
        """name(args)."""
        return self.make("fn", args, ctype or args[0].ctype, name)

    def cast(self, a: E, ctype: str) -> E:
        """a converted as C does; to bool as != 0."""
        if a.ctype == ctype:
            return a
        if a.op == "const":
            special = isinstance(a.attr, float) and not math.isfinite(a.attr)
            if ctype in ("float", "double", "bool") or not special:
                return self.const(a.attr, ctype)
        if a.op == "index" and ctype in ("int", "long"):
            return self.index(a.attr, ctype)
        if ctype == "bool":
            return self.binary("!=", a, self.const(0, a.ctype), "bool")
        return self.make("cast", (a,), ctype, ctype)

    def select(self, condition: E, a: E, b: E) -> E:
        """condition ? a : b, both always evaluable."""
        if condition.op == "const":
            return a if condition.attr else b
        return a if a is b else self.make("sel", (condition, a, b), a.ctype)

    def guard(self, condition: E, a: E, b: E, before: bool = False) -> E:
        """a where condition, else b; a's loads run only under the condition.

        before: b can be evaluated everywhere, and is evaluated before the branch where a reads it too.
        """
        if condition.op == "const":
            return a if condition.attr else b
        if b.op == "guard" and b.args[0] is condition:
            b = b.args[2]
        if before and a is b:
            return a
        if before and a.op == "guard" and a.args[2] is b and not any(e.op == "load" for e in walk([a.args[0]])):
            return self.guard(self.both(condition, a.args[0]), a.args[1], b, before)  # b[p][q] = c
        return self.make("guard", (condition, a, b), a.ctype, "before" if before else None)

    def both(self, *conditions: E | None) -> E:
        """All conditions at once; true for none."""
        total: E | None = None
        for condition in conditions:
            if condition is None or (condition.op == "const" and condition.attr):
                continue
            total = condition if total is None else self.binary("&&", total, condition, "bool")
        return self.const(True, "bool") if total is None else total

    def compare(self, a: Ix, token: str, b: Ix) -> E:
        """A comparison of two index expressions, folded when it is certain."""
        if (token == "<" and below(a, b)) or (token == ">=" and nonneg(a - b)):
            return self.const(True, "bool")
        if token == "<" and nonneg(a - b):
            return self.const(False, "bool")
        if a.value is not None and b.value is not None:
            table = {
                "<": a.value < b.value,
                ">=": a.value >= b.value,
                "==": a.value == b.value,
                "<=": a.value <= b.value,
            }
            return self.const(table[token], "bool")
        return self.binary(token, self.index(a), self.index(b), "bool")

    def loop(self, kind: str, variables: Sequence[Var], bounds: Sequence[tuple[Ix, Ix]], body: E) -> E:
        """A serial reduction of body over the variables. kind argmax/argmin gives the flat position as long: of the
        last NaN where there are any, as torch's pools do.
        """
        attr = SerialLoop(kind, tuple(variables), tuple(bounds))
        inner = [value for pair in bounds for bound in pair for value in _values(bound)]
        ctype = "long" if kind.startswith("arg") else body.ctype
        return self.make("loop", (body, *inner), ctype, attr, attr.key)

    def rewrite(
        self,
        roots: Sequence[E],
        atom: Any,
        load: Any,
        quotient: Any = None,
        position: Any = None,
        call: Any = None,
        known: Mapping[int, E] | None = None,
    ) -> list[E]:
        """The roots with index atoms replaced by `atom(Atom) -> Ix | None` and loads by `load(E) -> E | None`.

        quotient: the same for divisions, of what a division has become and what it was. position: `position(E) -> Ix |
        None` for 64-bit integers that are known as positions. call: `call(E) -> E | None` for functions. known: what
        expressions have become, by their ids.
        """
        done: dict[int, E] = dict(known or {})

        def on_atom(a: Atom) -> Ix | None:
            if isinstance(a, Ind):
                new = visit(a.value)
                if new.op == "index":
                    return ix(new.attr)
                return ix(Ind(new)) if new is not a.value else None
            found: Ix | None = atom(a)
            return found

        def visit(e: E) -> E:
            if e.id in done:
                return done[e.id]
            new = self._rebuild(e, visit, on_atom)
            if new.op == "load":
                new = load(new) or new
            if quotient and new.op == "bin" and new.attr == "/":
                new = quotient(new, e) or new
            if position and new.op in ("bin", "fn") and new.ctype == "long" and (at := position(new)) is not None:
                new = self.index(at)
            if call and new.op == "fn":
                new = call(new) or new
            is_side = bool(known) and any(new is done.get(a.id) for a in e.args)  # it has a name of its own
            if e.label and not new.label and not is_side:
                new.label = e.label
            done[e.id] = new
            return new

        return [visit(root) for root in roots]

    def _rebuild(self, e: E, visit: Any, on_atom: Any) -> E:
        if e.op == "load":
            buffer, position, dtype = e.attr
            return self.load(buffer, replace(position, on_atom), dtype)
        if e.op == "index":
            return self.index(replace(e.attr, on_atom), e.ctype)
        if e.op == "loop":
            bounds = [(replace(a, on_atom), replace(b, on_atom)) for a, b in e.attr.bounds]
            return self.loop(e.attr.kind, e.attr.variables, bounds, visit(e.args[0]))
        args = [visit(a) for a in e.args]
        if all(a is b for a, b in zip(args, e.args, strict=True)):
            return e
        if e.op == "guard":
            condition, a, b = args
            return self.guard(condition, a, b, before=e.attr is not None)
        if e.op == "sel":
            return self.select(*args)
        if e.op == "bin" and e.attr == "<" and all(a.op in ("index", "const") and a.ctype == "long" for a in args):
            a, b = (ix(x.attr) for x in args)
            return self.compare(a, "<", b)
        return self.make(e.op, args, e.ctype, e.attr)


def _values(position: Ix) -> list[E]:
    """The expressions an index reads."""
    found = [a.value for a in position.atoms() if isinstance(a, Ind)]
    return sorted(found, key=lambda e: int(e.id))


def indices(e: E) -> list[Ix]:
    """The index expressions in e itself, not in its arguments."""
    if e.op == "load":
        return [e.attr[1]]
    if e.op == "index":
        return [e.attr]
    if e.op == "loop":
        return [bound for pair in e.attr.bounds for bound in pair]
    return []


def walk(roots: Sequence[E], stop: Collection[int] = ()) -> Iterator[E]:
    """Yields every expression under the roots once, children before parents; none of `stop` (ids) or only below one."""
    seen = set(stop)
    stack: list[tuple[E, bool]] = [(root, False) for root in reversed(roots)]
    while stack:
        e, ready = stack.pop()
        if ready:
            yield e
        elif e.id not in seen:
            seen.add(e.id)
            stack.append((e, True))
            stack.extend((a, False) for a in reversed(e.args))


def weight(roots: Sequence[E]) -> int:
    """A rough count of instructions, by which recomputing is weighed against storing."""
    return sum(own_weight(e) for e in walk(roots))


def own_weight(e: E) -> int:
    """The weight of one operation, without its operands."""
    return {"load": 2, "fn": 6, "loop": 40, "bin": 1, "sel": 1, "guard": 1, "cast": 1}.get(e.op, 0)
