"""Packed operands: one stored element makes several, as in `packed[r, p // 2]`, two 4-bit numbers in a byte.

An axis that a kernel traverses in vectors is written `width * vector + v`, v < width. What is loaded at `base + v // d`
is then one vector of `width / d` elements at `base`; what is loaded at `vector // g` (a scale for each group) is one
element. Where a group's length is a size, it must be a multiple of the width, which the kernel tests.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hipwright.engine.ir.expr import E, indices, walk
from hipwright.engine.ir.index import Atom, Fn, Ix, Sym, Var, divide, ix, modulo, replace
from hipwright.engine.lower.context import LoweringContext
from hipwright.engine.lower.values import Tensor

WIDTHS, LONG_WIDTHS = (16, 8, 4), (32, 16, 8)
BYTES = 16


@dataclass
class PackedLoad:
    """One load: `count` neighbours from `base` on; v uses number v // share."""

    load: E
    base: Ix
    share: int
    count: int


@dataclass
class PackedElement:
    """An element over (vector, v), its loads, and sizes that must be multiples of the width."""

    element: E
    loads: list[PackedLoad]
    multiples: list[Ix]


def packed_element(c: LoweringContext, element: E, axis: str, width: int) -> PackedElement | None:
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
            continue
        packed = _packed_load(load, v, width)
        if packed is None or packed.share % even:
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


def packed_width(c: LoweringContext, matrix: Tensor, sizes: dict[str, int], widths: Sequence[int] = WIDTHS) -> int:
    """The elements along the last axis, of `widths`, that a vector of 16 bytes or less makes; 0 where no byte makes
    two.
    """
    places = [ix(Var(f"p{k}", s)) for k, s in enumerate(matrix.shape)]
    element = matrix.at(places)
    for width in widths:
        found = packed_element(c, element, f"p{matrix.rank - 1}", width)
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


__all__ = ["PackedElement", "PackedLoad", "alignment_strides", "packed_element", "packed_width"]
