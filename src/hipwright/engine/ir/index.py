"""Index algebra: integer polynomials over loop variables and sizes, with // and % simplified by ranges.

The mixed-radix rules (a // b and a % b of a sum whose tail stays below b) are those of loop compilers. They are proved
symbolically: sizes are at least 1, a variable lies in [0, size).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any


@dataclass(frozen=True)
class Var:
    """A loop variable in [0, size); size None when the range is not known."""

    name: str
    size: Ix | None = None

    @cached_property
    def key(self) -> str:
        """Canonical text. The range is part of it: variables of two kernels may share a name."""
        return f"v:{self.name}" if self.size is None else f"v:{self.name}!{self.size.key}"


@dataclass(frozen=True)
class Sym:
    """A size that the plan passes in; at least 1."""

    name: str

    @property
    def key(self) -> str:
        """Canonical text."""
        return f"s:{self.name}"


@dataclass(frozen=True)
class Fn:
    """`//`, `%`, min or max of two expressions."""

    op: str
    a: Ix
    b: Ix

    @cached_property
    def key(self) -> str:
        """Canonical text."""
        return f"f:{self.op}({self.a.key},{self.b.key})"


@dataclass(frozen=True, eq=False)
class Ind:
    """An index that is read from a tensor; `value` is the scalar expression (an object with an `id`)."""

    value: Any

    @property
    def key(self) -> str:
        """Canonical text."""
        return f"i:{self.value.id}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ind) and other.value is self.value

    def __hash__(self) -> int:
        return hash(self.key)


Atom = Var | Sym | Fn | Ind
Mono = tuple[Atom, ...]


class Ix:
    """An immutable integer polynomial: {monomial: coefficient}."""

    __slots__ = ("_key", "terms")

    def __init__(self, terms: Mapping[Mono, int]) -> None:
        self.terms: dict[Mono, int] = {m: c for m, c in terms.items() if c}
        self._key = ""

    @property
    def key(self) -> str:
        """A canonical text; equal polynomials have equal keys."""
        if not self._key:
            self._key = "+".join(sorted(f"{c}*" + ".".join(a.key for a in m) for m, c in self.terms.items())) or "0"
        return self._key

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ix) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)

    def __repr__(self) -> str:
        return f"Ix({self.key})"

    def __add__(self, other: Ix | int) -> Ix:
        out = dict(self.terms)
        for m, c in ix(other).terms.items():
            out[m] = out.get(m, 0) + c
        return _rejoin(Ix(out))

    __radd__ = __add__

    def __neg__(self) -> Ix:
        return Ix({m: -c for m, c in self.terms.items()})

    def __sub__(self, other: Ix | int) -> Ix:
        return self + -ix(other)

    def __rsub__(self, other: int) -> Ix:
        return ix(other) - self

    def __mul__(self, other: Ix | int) -> Ix:
        other = ix(other)
        for factor, rest in ((self, other), (other, self)):  # most factors are numbers, most of those 1
            if (number := factor.value) is not None:
                return rest if number == 1 else Ix({m: c * number for m, c in rest.terms.items()})
        out: dict[Mono, int] = {}
        for m, c in self.terms.items():
            for n, d in other.terms.items():
                mono = tuple(sorted(m + n, key=lambda a: a.key))
                out[mono] = out.get(mono, 0) + c * d
        return Ix(out)

    __rmul__ = __mul__

    def __floordiv__(self, other: Ix | int) -> Ix:
        return divide(self, ix(other))

    def __mod__(self, other: Ix | int) -> Ix:
        return modulo(self, ix(other))

    @property
    def value(self) -> int | None:
        """The integer when this is a constant, else None."""
        if not self.terms:
            return 0
        if len(self.terms) == 1 and () in self.terms:
            return self.terms[()]
        return None

    def atoms(self) -> set[Atom]:
        """Every atom, those inside // and % too."""
        found: set[Atom] = set()
        for mono in self.terms:
            for atom in mono:
                found.add(atom)
                if isinstance(atom, Fn):
                    found |= atom.a.atoms() | atom.b.atoms()
        return found


def ix(value: Ix | int | Atom) -> Ix:
    """A constant or an atom as an expression."""
    if isinstance(value, Ix):
        return value
    if isinstance(value, int):
        return Ix({(): int(value)})
    return Ix({(value,): 1})


ZERO, ONE = ix(0), ix(1)


def product(values: Sequence[Ix]) -> Ix:
    """The product, 1 for none."""
    total = ONE
    for value in values:
        total = total * value
    return total


# ---------------------------------------------------------------- what can be proved


def nonneg(p: Ix) -> bool:
    """True when p >= 0 for all sizes >= 1 and all variables in range (sound, not complete)."""
    return low(p) is not None


def low(p: Ix) -> Ix | None:
    """p with each variable at its least value where that is provably >= 0, else None."""
    rest = _extreme(p, least=True)
    if rest is None:
        return None
    shifted = _shift(rest)
    return rest if all(c >= 0 for c in shifted.terms.values()) else None


def below(p: Ix, bound: Ix) -> bool:
    """True when p < bound is certain."""
    top = _extreme(p, least=False)
    return top is not None and all(c >= 0 for c in _shift(bound - 1 - top).terms.values())


def _extreme(p: Ix, *, least: bool) -> Ix | None:
    total = ZERO
    for mono, c in p.terms.items():
        term = ix(c)
        for atom in mono:
            bounds = _bounds(atom)
            want = bounds[0] if (c >= 0) == least else bounds[1]
            if want is None:
                return None
            term = term * want
        total = total + term
    return total


def _bounds(atom: Atom) -> tuple[Ix | None, Ix | None]:
    if isinstance(atom, Sym):
        return ix(atom), ix(atom)
    if isinstance(atom, Var):
        return (ZERO, atom.size - 1) if atom.size is not None else (ZERO, None)
    if isinstance(atom, Ind):
        return None, None
    if atom.op == "%":
        return ZERO, atom.b - 1
    if atom.op == "//" and nonneg(atom.a):
        top = _extreme(atom.a, least=False)
        return ZERO, None if top is None else (divide(top, atom.b) if atom.b.value is not None else top)
    return None, None


def _shift(p: Ix) -> Ix:
    """p with every size s written s + 1, so that all symbols are >= 0. // and % atoms are taken as >= 0."""
    total = ZERO
    for mono, c in p.terms.items():
        term = ix(c)
        for atom in mono:
            term = term * (ix(atom) + 1 if isinstance(atom, Sym) else ix(atom))
        total = Ix(_added(total.terms, term.terms))
    return total


def _added(a: Mapping[Mono, int], b: Mapping[Mono, int]) -> dict[Mono, int]:
    out = dict(a)
    for m, c in b.items():
        out[m] = out.get(m, 0) + c
    return out


# ---------------------------------------------------------------- // and %


def split(a: Ix, b: Ix) -> tuple[Ix, Ix]:
    """a = b * q + rest, term by term."""
    if len(b.terms) != 1:
        return ZERO, a
    ((factor, k),) = b.terms.items()
    quotient: dict[Mono, int] = {}
    rest: dict[Mono, int] = {}
    for mono, c in a.terms.items():
        left = list(mono)
        try:
            for atom in factor:
                left.remove(atom)
        except ValueError:
            rest[mono] = c
            continue
        if c % k == 0:
            quotient[tuple(left)] = quotient.get(tuple(left), 0) + c // k
        elif not factor and not mono and c >= k:
            quotient[()] = quotient.get((), 0) + c // k
            rest[()] = c % k
        else:
            rest[mono] = c
    return Ix(quotient), Ix(rest)


def divide(a: Ix, b: Ix) -> Ix:
    """a // b for a >= 0, b >= 1."""
    if b == ONE:
        return a
    if a.value is not None and b.value:
        return ix(a.value // b.value)
    q, rest = split(a, b)
    if not nonneg(rest):
        return ix(Fn("//", a, b))
    if below(rest, b):
        return q
    inner = _only_atom(rest)
    if isinstance(inner, Fn) and inner.op == "//":  # (x // c) // b = x // (c * b)
        return q + divide(inner.a, inner.b * b)
    return q + ix(Fn("//", rest, b))


def _only_atom(p: Ix) -> Atom | None:
    """The atom when p is just one atom."""
    if len(p.terms) == 1:
        ((mono, c),) = p.terms.items()
        if c == 1 and len(mono) == 1:
            return mono[0]
    return None


def modulo(a: Ix, b: Ix) -> Ix:
    """a % b for a >= 0, b >= 1."""
    if b == ONE:
        return ZERO
    if a.value is not None and b.value:
        return ix(a.value % b.value)
    _, rest = split(a, b)
    if nonneg(rest):
        return rest if below(rest, b) else ix(Fn("%", rest, b))
    return ix(Fn("%", a, b))


def _rejoin(p: Ix) -> Ix:
    """b * (a // b) + a % b -> a, anywhere in a sum."""
    for mono, c in p.terms.items():
        for position, atom in enumerate(mono):
            if isinstance(atom, Fn) and atom.op == "%" and len(atom.b.terms) == 1:
                others = mono[:position] + mono[position + 1 :]
                quotient = Ix({others: c}) * atom.b * divide(atom.a, atom.b)
                if all(p.terms.get(m) == d for m, d in quotient.terms.items()):
                    rest = {m: d for m, d in p.terms.items() if m != mono and m not in quotient.terms}
                    return Ix(rest) + Ix({others: c}) * atom.a
    return p


# ---------------------------------------------------------------- substitution


def replace(p: Ix, found: Callable[[Atom], Ix | None]) -> Ix:
    """p with atoms replaced (None keeps one)."""
    total = ZERO
    for mono, c in p.terms.items():
        term = ix(c)
        for atom in mono:
            new = found(atom)
            if new is None and isinstance(atom, Fn):
                a, b = replace(atom.a, found), replace(atom.b, found)
                new = {"//": divide, "%": modulo}.get(atom.op, lambda x, y, op=atom.op: ix(Fn(op, x, y)))(a, b)
            term = term * (ix(atom) if new is None else new)
        total = total + term
    return total
