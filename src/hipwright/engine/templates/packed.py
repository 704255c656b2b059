"""Operands of which one element in memory makes several: `packed[r, p // 2]`, two 4-bit numbers a byte.

An axis that a kernel walks in packs is written `width * pack + v`, v < width. What is read at `base + v // d` is then
one pack of `width / d` elements at `base`; what is read at `pack // g` (a scale for each group) is one element. Where a
group's length is a size, it must be a multiple of the width, which the kernel tests.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hipwright.engine.ir.expr import E, indices, walk
from hipwright.engine.ir.index import Atom, Fn, Ix, Sym, Var, divide, ix, modulo, replace
from hipwright.engine.lower.context import LoweringContext
from hipwright.engine.lower.values import Tensor

WIDTHS = (16, 8, 4)
BYTES = 16


@dataclass
class Pack:
    """One load: `count` neighbours from `base` on; v reads number v // share."""

    load: E
    base: Ix
    share: int
    count: int


@dataclass
class Packs:
    """An element over (pack, v), its packs, and sizes that must be multiples of the width."""

    element: E
    packs: list[Pack]
    multiples: list[Ix]


def packs(c: LoweringContext, element: E, axis: str, width: int) -> Packs | None:
    """How an element is read along an axis in packs of `width`; None where something is read in another way."""
    v, moved = Var("v", ix(width)), ix(Var(f"{axis}_pack")) * width
    multiples: dict[str, Ix] = {}

    def atom(a: Atom) -> Ix | None:
        if isinstance(a, Var) and a.name == axis:
            return moved + ix(v)
        if not isinstance(a, Fn) or a.op not in ("//", "%"):
            return None
        left, right = replace(a.a, atom), replace(a.b, atom)
        rest = left - ix(v)
        whole = right.value is None or right.value % width == 0
        if left.terms.get((v,)) != 1 or not whole or any(k % width for k in rest.terms.values()) or _names(rest, v):
            return None
        if right.value is None:
            multiples[right.key] = right
        return divide(rest, right) if a.op == "//" else modulo(rest, right) + ix(v)

    (made,) = c.arena.rewrite([element], atom, lambda e: None)
    found: list[Pack] = []
    for load, even in _loads(made, v):
        position: Ix = load.attr[1]
        if any(_names(ix(a), v) for a in position.atoms() if not isinstance(a, (Var, Fn))):
            return None
        if not _names(position, v):
            continue
        pack = _pack(load, v, width)
        if pack is None or pack.share % even:
            return None
        found.append(pack)
    return Packs(made, found, list(multiples.values())) if found else None


def _names(p: Ix, v: Var) -> bool:
    return any(isinstance(a, Var) and a.name == v.name for a in p.atoms())


def _pack(load: E, v: Var, width: int) -> Pack | None:
    mine = {mono: k for mono, k in load.attr[1].terms.items() if _names(Ix({mono: 1}), v)}
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
    return Pack(load, load.attr[1] - Ix(mine), share, width // share)


def _loads(e: E, v: Var) -> list[tuple[E, int]]:
    """(load, n): it is performed for all v of some remainder by n. A load that may not be at all has n = 0."""
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
    """n where a condition asks for the remainder of v by n and for nothing else, else 0."""
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


def packed_width(c: LoweringContext, matrix: Tensor, sizes: dict[str, int]) -> int:
    """Elements along the last axis that a pack of 16 bytes or less makes; 0 where no byte makes two."""
    places = [ix(Var(f"p{k}", s)) for k, s in enumerate(matrix.shape)]
    element = matrix.at(places)
    for width in WIDTHS:
        found = packs(c, element, f"p{matrix.rank - 1}", width)
        shared = found is not None and any(p.share > 1 for p in found.packs)
        if found is not None and shared and all(p.count * sizes.get(p.load.attr[2], 8) <= BYTES for p in found.packs):
            return width
    return 0


def strides(pack: Pack) -> Sequence[Ix]:
    """What must be a multiple of the pack's elements, so that each begins where one may be read at once."""
    return [
        stride
        for mono, k in pack.base.terms.items()
        if (stride := Ix({tuple(a for a in mono if isinstance(a, Sym)): k})).value is None or stride.value % pack.count
    ]


__all__ = ["Pack", "Packs", "packed_width", "packs", "strides"]
