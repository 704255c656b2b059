"""Short rows that lie one behind the other, as windows of four elements: a thread accesses whole rows, as vectors.

An element of such a row is `width` elements from its neighbour's in the next row, so that each access alone is a single
element; all accesses to a row together are one piece of memory (hipwright/short_rows.h).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from hipwright.engine.ir.index import Ind, Ix, Var, below, ix
from hipwright.engine.templates.access import linear

WIDTHS = range(2, 9)
"""Elements of a short row: eight of four bytes are what a thread loads as two vectors."""
VECTOR_BYTES = 16

Access = tuple[str, Ix]
"""A buffer and a position in it."""


@dataclass(frozen=True)
class ShortRow:
    """One access to short rows along a variable: element `place` of each, the first row at `start`."""

    buffer: str
    start: Ix
    width: int
    place: int

    @property
    def key(self) -> tuple[str, str, int]:
        """The same for all elements of a row."""
        return self.buffer, self.start.key, self.width


def short_rows(
    accesses: Iterable[Access], variable: str, numels: Mapping[str, Ix], *, whole: bool = False
) -> dict[tuple[str, str], ShortRow]:
    """{(buffer, key of the position): the access} of rows of which at least half is accessed; whole: of which all is.

    numels: elements of the buffers, within which the whole rows must lie.
    """
    found: dict[tuple[str, str], ShortRow] = {}
    for buffer, position in accesses:
        row = _short_row(buffer, position, variable, numels.get(buffer))
        if row is not None:
            found[buffer, position.key] = row
    places: dict[tuple[str, str, int], set[int]] = {}
    for row in found.values():
        places.setdefault(row.key, set()).add(row.place)
    least = 1 if whole else 2
    return {key: row for key, row in found.items() if least * len(places[row.key]) >= row.width}


def rows_of_vector(widths: Collection[tuple[int, int]], most: int) -> int:
    """The rows that a thread takes at once: as many as are a multiple of 16 bytes, from 2 up to `most`.

    widths: (elements, bytes of an element) of the short rows.
    """
    rows = 2
    while rows < most and any(rows * width * size % VECTOR_BYTES for width, size in widths):
        rows *= 2
    return min(rows, most)


def _short_row(buffer: str, position: Ix, variable: str, numel: Ix | None) -> ShortRow | None:
    found = linear(position, variable)
    if found is None or numel is None or (width := found[0].value) is None or width not in WIDTHS:
        return None
    place = found[1].terms.get((), 0)
    start = found[1] - place
    along = next((a for a in position.atoms() if isinstance(a, Var) and a.name == variable), None)
    if along is None or not 0 <= place < width or any(isinstance(a, Ind) for a in start.atoms()):
        return None
    inside = below(start + ix(along) * width + (width - 1), numel)
    return ShortRow(buffer, start, width, place) if inside else None
