"""Neighbours that a pointwise kernel reads with a stride of two or four: interleaved gates, codes in pairs, parts of
complex numbers. A thread's elements and those between them lie in vectors, which are loaded whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hipwright.engine.ir.expr import STORAGE, E
from hipwright.engine.ir.index import ZERO, Ind, Ix, ix
from hipwright.engine.templates.access import linear, other_strides, unconditional_loads
from hipwright.engine.templates.base import Body

STRIDES = (2, 4)


@dataclass(frozen=True)
class StridedVectors:
    """Vectors of a buffer from `start`, of which an element reads the `places` of `stride` each.

    start: the position of an element's first neighbour.
    """

    buffer: str
    stride: int
    start: Ix
    places: dict[str, int]
    """By the positions of the loads (keys)."""

    def tests(self, body: Body, vec: str, axis: str) -> list[str]:
        """What holds where the vectors are aligned, as C texts. axis: the variable of the innermost dimension."""
        size, kind = f"{self.stride} * {vec}", STORAGE[body.need.dtypes[self.buffer]]
        rows = [step for step in other_strides(self.start, axis) if step != ZERO]
        tests = [f"{body.emit.position(step)} % ({size}) == 0" for step in rows]
        return [f"is_vector_aligned<{kind}, {size}>({body.pointers[self.buffer]})", *tests]

    def load(
        self, body: Body, knobs: tuple[str, str, str], index: Sequence[str], bound: str
    ) -> dict[tuple[str, str], str]:
        """Emits the loads of all of a thread's vectors; returns the text of each load in the loop over elements `k`.

        knobs: elements of a vector, vectors, threads. index: the statements that split the index `i` of an element.
        """
        emit, (vec, items, threads) = body.emit, knobs
        pointer, kind = body.pointers[self.buffer], STORAGE[body.need.dtypes[self.buffer]]
        tile, size = emit.fresh(f"{pointer}_vectors"), f"{self.stride} * {vec}"
        emit.line(f"Tile<{kind}, {size}> {tile}[{items}] = {{}};")
        emit.line("#pragma unroll")
        emit.open(f"for (int item = 0; item < {items}; ++item)")
        emit.line(f"const {body.index_type} i = base + item * ({threads} * {vec});")
        emit.line(f"if (i >= {bound}) continue;")
        for text in index:
            emit.line_if_used(text)
        emit.line(f"load_vector<{size}>({pointer} + {emit.position(self.start)}, {tile}[item].v);")
        emit.close()
        emit.used.add("load_vector")
        first = f"{tile}[k / {vec}].v[k % {vec} * {self.stride}"
        return {(self.buffer, key): first + (f" + {place}]" if place else "]") for key, place in self.places.items()}


def strided_vectors(values: Sequence[E], axis: str) -> list[StridedVectors]:
    """The loads that every element performs with a stride along `axis`, the variable of the innermost dimension.

    Of a vector at least half is read.
    """
    found: dict[tuple[str, int, str], StridedVectors] = {}
    for e in unconditional_loads(values):
        position: Ix = e.attr[1]
        along = linear(position, axis)
        if along is None or any(isinstance(a, Ind) for a in position.atoms()):
            continue
        stride = next((s for s in STRIDES if along[0] == ix(s)), 0)
        if not stride:
            continue
        place = along[1].terms.get((), 0) % stride
        start = position - place
        vectors = found.setdefault((e.attr[0], stride, start.key), StridedVectors(e.attr[0], stride, start, {}))
        vectors.places[position.key] = place
    return [v for v in found.values() if 2 * len(set(v.places.values())) >= v.stride]
