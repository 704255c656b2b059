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

    def is_aligned(self, body: Body, vec: str) -> str:
        """Whether the first vector's address is aligned, as C text."""
        kind = STORAGE[body.need.dtypes[self.buffer]]
        return f"is_vector_aligned<{kind}, {self.stride} * {vec}>({body.pointers[self.buffer]})"

    def _are_whole(self, body: Body, vec: str, axis: str, columns: Ix) -> str:
        """Whether all rows begin and end with a vector, as C text: known at compile time where sizes are."""
        emit, size = body.emit, f"{self.stride} * {vec}"
        rows = [f"{emit.position(step)} % ({size}) == 0" for step in other_strides(self.start, axis) if step != ZERO]
        ends = [f"{body.as_index(emit.position(columns))} % {vec} == 0"] if len(body.group.space) > 1 else []
        return " && ".join([*ends, *dict.fromkeys(rows)])

    def load(
        self, body: Body, knobs: tuple[str, str, str], axis: str, index: Sequence[str], bound: str
    ) -> dict[tuple[str, str], str]:
        """Emits the loads of a thread's vectors, or of their elements where rows cut vectors; returns the text of each
        load in the loop over elements `k`.

        knobs: elements of a vector, vectors, threads. axis: the variable of the innermost dimension. index: the
        statements that split the index `i` of an element.
        """
        emit, (vec, items, threads), kind = body.emit, knobs, body.index_type
        pointer, size = body.pointers[self.buffer], f"{self.stride} * {vec}"
        tile, item, first, v = (emit.fresh(name) for name in (f"{pointer}_vectors", "item", "first", "v"))
        emit.used.add("load_vector")
        emit.line(f"Tile<{STORAGE[body.need.dtypes[self.buffer]]}, {size}> {tile}[{items}] = {{}};")
        emit.line("#pragma unroll")
        emit.open(f"for (int {item} = 0; {item} < {items}; ++{item})")
        emit.line(f"const {kind} {first} = base + {item} * ({threads} * {vec});")
        emit.line(f"if ({first} >= {bound}) continue;")
        whole = self._are_whole(body, vec, axis, body.group.space[-1])
        emit.open(f"if ({whole})" if whole else "")
        self._place(body, index, first)
        emit.line(f"load_vector<{size}>({pointer} + {emit.position(self.start)}, {tile}[{item}].v);")
        if whole:
            emit.otherwise()
            emit.line("#pragma unroll")
            emit.open(f"for (int {v} = 0; {v} < {vec}; ++{v})")
            self._place(body, index, f"{first} + {v}")
            for place in sorted(set(self.places.values())):
                at = f"{pointer}[{emit.position(self.start + place)}]"
                emit.line(f"{tile}[{item}].v[{v} * {self.stride} + {place}] = {at};")
            emit.close()
        emit.close()
        emit.close()
        start = f"{tile}[k / {vec}].v[k % {vec} * {self.stride}"
        return {(self.buffer, key): start + (f" + {place}]" if place else "]") for key, place in self.places.items()}

    def _place(self, body: Body, index: Sequence[str], at: str) -> None:
        """Declares the indices of an element."""
        body.emit.line(f"const {body.index_type} i = {at};")
        for text in index:
            body.emit.line_if_used(text)


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
