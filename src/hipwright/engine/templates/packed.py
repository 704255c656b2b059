"""Packed operands: one stored element makes several, as in `packed[r, p // 2]`, two 4-bit numbers in a byte.

An axis that a kernel traverses in vectors is written `width * vector + v`, v < width. What is loaded at `base + v // d`
is then one vector of `width / d` elements at `base`; what is loaded at `vector // g` (a scale for each group) is one
element. Where a group's length is a size, it must be a multiple of the width, which the kernel tests.

Loosely, what is loaded may also lie at a distance that depends on v alone, one element at a time: numbers that cross
words (3 bits), or words whose neighbours are other rows' (packed along the strided dimension).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hipwright.engine.ir.expr import E, indices, walk
from hipwright.engine.ir.index import Atom, Fn, Ix, Sym, Var, divide, ix, modulo, nonneg, replace
from hipwright.engine.lower.context import LoweringContext
from hipwright.engine.lower.values import Index, Tensor

WIDTHS, LONG_WIDTHS = (16, 8, 4), (32, 16, 8)
BYTES = 16
WORDS = ("int32", "int64", "int16", "uint8")


@dataclass
class PackedLoad:
    """One load: `count` neighbours from `base` on; v uses number v // share. alone: each v loads its own; share is 2
    where several load the same, else 1.
    """

    load: E
    base: Ix
    share: int
    count: int
    alone: bool = False


@dataclass
class PackedElement:
    """An element over (vector, v), its loads, and sizes that must be multiples of the width."""

    element: E
    loads: list[PackedLoad]
    multiples: list[Ix]


def packed_element(
    c: LoweringContext, element: E, axis: str, width: int, *, loose: bool = False
) -> PackedElement | None:
    """How an element is loaded along an axis in vectors of `width`; None where it cannot be."""
    v, moved = Var("v", ix(width)), ix(Var(f"{axis}_vector")) * width
    multiples: dict[str, Ix] = {}

    def atom(a: Atom) -> Ix | None:
        if isinstance(a, Var) and a.name == axis:
            return moved + ix(v)
        if not isinstance(a, Fn) or a.op not in ("//", "%"):
            return None
        left, right = replace(a.a, atom), replace(a.b, atom)
        rest = left - ix(v)
        whole = right.value is None or right.value % width == 0
        if left.terms.get((v,)) != 1 or not whole or any(k % width for k in rest.terms.values()) or _contains(rest, v):
            return None
        if right.value is None:
            multiples[right.key] = right
        return divide(rest, right) if a.op == "//" else modulo(rest, right) + ix(v)

    (made,) = c.arena.rewrite([element], atom, lambda e: None)
    found: list[PackedLoad] = []
    for load, even in _loads(made, v):
        position: Ix = load.attr[1]
        if any(_contains(ix(a), v) for a in position.atoms() if not isinstance(a, (Var, Fn))):
            return None
        if not _contains(position, v):
            if loose and load.attr[2] in WORDS and _contains(position, Var(f"{axis}_vector")):
                found.append(PackedLoad(load, position, width, 0, alone=True))  # one word for all
            continue
        packed = _packed_load(load, v, width)
        if packed is None or packed.share % even:
            packed = _single_loads(load, v) if loose else None
        if packed is None:
            return None
        found.append(packed)
    return PackedElement(made, found, list(multiples.values())) if found else None


def _contains(p: Ix, v: Var) -> bool:
    return any(isinstance(a, Var) and a.name == v.name for a in p.atoms())


def _packed_load(load: E, v: Var, width: int) -> PackedLoad | None:
    mine = {mono: k for mono, k in load.attr[1].terms.items() if _contains(Ix({mono: 1}), v)}
    if len(mine) != 1:
        return None
    ((mono, k),) = mine.items()
    if k != 1 or len(mono) != 1:
        return None
    share = 1
    if isinstance(mono[0], Fn):
        if mono[0].op != "//" or mono[0].a != ix(v) or not mono[0].b.value or width % mono[0].b.value:
            return None
        share = mono[0].b.value
    return PackedLoad(load, load.attr[1] - Ix(mine), share, width // share)


def _single_loads(load: E, v: Var) -> PackedLoad | None:
    """The load where the distance from a base depends on v and on strides alone."""
    share = 2
    for mono in load.attr[1].terms:
        mine = [a for a in mono if _contains(ix(a), v)]
        if any(isinstance(a, Fn) and (a.a.atoms() | a.b.atoms()) != {v} for a in mine):
            return None
        if any(isinstance(a, Var) or (isinstance(a, Fn) and a.op == "%") for a in mine):
            share = 1
    return PackedLoad(load, load.attr[1], share, 0, alone=True)


def with_positions(c: LoweringContext, tensor: Tensor) -> Tensor:
    """The tensor with arithmetic of positions (`arange(k) * 3 // 32`) as index expressions, also where it gathers."""

    def at(index: Index) -> E:
        (made,) = c.arena.rewrite([tensor.at(index)], lambda a: None, lambda e: None, position=_position)
        return made

    return tensor if tensor.buffer else c.tensor(tensor.dtype, tensor.shape, at)


def _position(e: E) -> Ix | None:
    """A 64-bit integer made of positions and constants as an index expression; None where it may be negative."""
    if any(a.op not in ("index", "const") for a in e.args):
        return None
    a, b = ((ix(x.attr) if x.op == "index" else ix(int(x.attr))) for x in e.args) if len(e.args) == 2 else (None, None)
    if a is None or b is None:
        return None
    if e.op == "bin":
        return {"+": lambda: a + b, "-": lambda: a - b, "*": lambda: a * b}.get(e.attr, lambda: None)()
    if not nonneg(a):
        return None
    if e.attr == "wrap_index":
        return a
    if e.attr in ("floor_div", "floor_mod") and b.value is not None and b.value > 0:
        return divide(a, b) if e.attr == "floor_div" else modulo(a, b)
    return None


def _loads(e: E, v: Var) -> list[tuple[E, int]]:
    """(load, n): the load is performed for all v with the same remainder by n. A conditional load has n = 0."""
    out: list[tuple[E, int]] = []
    stack, done = [(e, 1)], set[tuple[int, int]]()
    while stack:
        e, even = stack.pop()
        if (e.id, even) in done:
            continue
        done.add((e.id, even))
        if e.op == "load":
            out.append((e, even or 1 << 30))
        inner = even
        if e.op == "loop":
            inner = 0
        if e.op == "guard":
            stack.append((e.args[0], even))
            by = _remainder(e.args[0], v)
            inner = 0 if not by or not even or max(by, even) % min(by, even) else max(by, even)
        stack += [(a, inner) for a in (e.args[1:] if e.op == "guard" else e.args)]
    return out


def _remainder(test: E, v: Var) -> int:
    """n where a condition depends on the remainder of v by n and nothing else, else 0."""
    found = set[int]()
    for e in walk([test]):
        if e.op == "load":
            return 0
        for p in indices(e):
            for a in p.terms:
                atoms = [x for x in a if not isinstance(x, Sym)]
                if len(atoms) != len(a) or len(atoms) > 1:
                    return 0
                for x in atoms:
                    if not isinstance(x, Fn) or x.op != "%" or x.a != ix(v) or not x.b.value:
                        return 0
                    found.add(x.b.value)
    return found.pop() if len(found) == 1 else 0


def packed_width(
    c: LoweringContext, matrix: Tensor, sizes: dict[str, int], widths: Sequence[int] = WIDTHS, *, loose: bool = False
) -> int:
    """The elements along the last axis, of `widths`, that a vector of 16 bytes or less makes; 0 where no byte makes
    two. loose: so may single loads.
    """
    places = [ix(Var(f"p{k}", s)) for k, s in enumerate(matrix.shape)]
    element = matrix.at(places)
    for width in widths:
        found = packed_element(c, element, f"p{matrix.rank - 1}", width, loose=loose)
        shared = found is not None and any(p.share > 1 for p in found.loads)
        if found is not None and shared and all(p.count * sizes.get(p.load.attr[2], 8) <= BYTES for p in found.loads):
            return width
    return 0


def alignment_strides(packed: PackedLoad) -> Sequence[Ix]:
    """The strides that must be multiples of the vector's elements, so that every vector is aligned."""
    return [
        stride
        for mono, k in packed.base.terms.items()
        if (stride := Ix({tuple(a for a in mono if isinstance(a, Sym)): k})).value is None
        or stride.value % packed.count
    ]


__all__ = ["PackedElement", "PackedLoad", "alignment_strides", "packed_element", "packed_width", "with_positions"]
