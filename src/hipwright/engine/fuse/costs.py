"""What computing a value again costs and saves, and how readers are given the expression that computes it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hipwright.engine.fuse.groups import Group
from hipwright.engine.fuse.schedule import Scheduler
from hipwright.engine.ir.expr import E, indices, walk, weight
from hipwright.engine.ir.index import Atom, Fn, Ix, Sym, Var, divide, product
from hipwright.engine.lower.values import Index, LoweredItem

MORE = 32
"""The weight (engine/ir/expr.py) that recomputing a value may add to one reader whatever it saves: a thread's loads
hide so much."""
PER_BYTE = 4
"""The weight that may be added for each byte that is saved: half of the operations that an H100 issues while it moves
one (132 x 128 at 1.7 GHz, 3.35 TB/s: 8.6; an MI300X 7.7, by their data sheets), as addresses cost operations too.
"""
WRAP = 8
"""The weight of a `//` or `%` of an index, each of which a thread computes once."""
ITEM_BYTES = {"float64": 8, "int64": 8, "float32": 4, "int32": 4, "float16": 2, "bfloat16": 2, "int16": 2}


def operations(value: E) -> int:
    """The weight of an element and of the indices that it reads: of a concatenation, the heaviest part's."""
    conditions: list[E] = []
    heaviest = 0
    while value.op == "guard":
        condition, part, value = value.args
        conditions.append(condition)
        heaviest = max(heaviest, _weight([*conditions, part]))
    return max(heaviest, _weight([*conditions, value]))


def _weight(values: Sequence[E]) -> int:
    positions = [p for e in walk(values) for p in indices(e)]
    return weight(values) + WRAP * len({a.key for p in positions for a in p.atoms() if isinstance(a, Fn)})


def cheap(a: Atom) -> bool:
    """Whether an index is a variable, a size, or the quotient or remainder of a sum of those by a number or a size:
    halves of packed bytes, interleaved pairs, what is rolled.
    """
    if isinstance(a, Fn):
        divided = all(isinstance(x, (Var, Sym)) for x in a.a.atoms())
        return a.op in ("//", "%") and divided and all(isinstance(x, Sym) for x in a.b.atoms())
    return isinstance(a, (Var, Sym))


def sizes_of(a: Atom) -> list[Ix]:
    """The sizes whose product is the number of places that an index takes."""
    if isinstance(a, Fn):
        sizes = [x.size for x in a.a.atoms() if isinstance(x, Var) and x.size is not None]
        return [divide(product(sizes), a.b)] if a.op == "//" else [a.b]
    return [a.size] if isinstance(a, Var) and a.size is not None else []


class Divided(Exception):
    """Raised where an index into a value would have to be divided."""


def with_bodies(
    s: Scheduler, readers: Sequence[LoweredItem], groups: Sequence[Group], inlined: Callable[[E], E]
) -> bool:
    """Gives readers, whose groups are `groups`, the bodies that `inlined` makes of theirs, and places them anew; False,
    with nothing changed, if one does not fit.
    """

    def body(plain: Callable[[Index], E]) -> Callable[[Index], E]:
        return lambda index: inlined(plain(index))

    before = [(reader, reader.body) for reader in readers]
    for reader, plain in before:
        reader.body = body(plain)
    try:
        placed = [(group, s.placed(group)) for group in groups]
    except Divided:
        placed = []
    if not placed or any(new is None for _, new in placed):
        for reader, plain in before:
            reader.body = plain
        return False
    for group, new in placed:
        assert new is not None
        group.variables, group.columns, group.members = new.variables, new.columns, new.members
    for reader in readers:
        s.reread(reader)
    return True
