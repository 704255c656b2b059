"""Vectors of a value that are written to places: no condition on the column is left within one.

A row that is concatenated from parts (a rotary embedding's halves, a latent beside its rotary part) has a condition on
the column, under which nothing goes by vectors. Where every part is a multiple of the vectors, a thread computes the
same columns of all equal parts, or the part is chosen once for a vector.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from hipwright.engine.fuse.concatenated import column_ends, parts_of_column, varies
from hipwright.engine.fuse.costs import ITEM_BYTES
from hipwright.engine.ir.expr import STORAGE, E, walk
from hipwright.engine.ir.index import Ix, Var, divide, ix, product
from hipwright.engine.lower.values import Tensor
from hipwright.engine.templates.call import CallBody
from hipwright.engine.templates.call_kernel import CallKernel

PARTS_FROM = 1 << 17
"""Elements from which a thread computes all equal parts: with fewer, twice the threads are worth more than what the
parts share. As for other kernels (layout/pointwise.py), not measured here.
"""
FEW_COLUMNS = 16
"""Columns of a part from which a thread computes all equal parts."""

WORDS = (4, 8, 16)
"""Bytes of a vector that is stored by words."""


@dataclass(frozen=True)
class PlaceColumns:
    """The last dimension of what is written. width: of a vector; count: equal parts of which a thread computes the same
    columns; size: columns of a part, or of a row; ends: where parts of a row end, each a multiple of the width.
    """

    width: int
    count: int
    size: Ix
    ends: tuple[int, ...] = ()


def place_columns(body: CallBody, value: Tensor, index: Sequence[Ix], width: int) -> PlaceColumns:
    """How the columns of a value go by vectors. index: of an element, with a variable for each dimension."""
    size = value.shape[-1]
    column = next(iter(index[-1].atoms()), None)
    whole = PlaceColumns(width, 1, size)
    if not isinstance(column, Var):
        return whole
    element = value.at(index)
    count = parts_of_column([element], column, size) or 1
    part = divide(size, ix(count))
    if count > 1 and body.c.hint(part) % width == 0 and not _conditional(value, index, column, part, count):
        many = body.c.hint(part) >= FEW_COLUMNS and body.c.hint(product(value.shape)) >= PARTS_FROM
        if body.choose("concat", ("parts", "whole"), "parts" if many else "whole") == "parts":
            return PlaceColumns(width, count, part)
    ends = {end.value for end in column_ends([element], column)}
    known = sorted(end for end in ends if end is not None)
    if len(known) < len(ends) or any(end % width for end in known):
        return whole
    return PlaceColumns(width, 1, size, tuple(known))


def _conditional(value: Tensor, index: Sequence[Ix], column: Var, part: Ix, count: int) -> bool:
    """Whether a condition on the column is left in a part."""
    short = Var(column.name, part)
    parts = [value.at([*index[:-1], ix(short) + part * n]) for n in range(count)]
    return any(e.op in ("guard", "sel") and varies(e.args[0], short) for e in walk(parts))


@dataclass
class PlaceVectors:
    """Writes the stores of a thread's vectors, and one by one those of a row's end that are fewer.

    index: of an element; its last variable is the first column of a vector. early: what the places are computed from,
    loaded before the value, which need not wait for it. name_places: writes what `at` needs. at: the position in the
    target of an index.
    """

    k: CallKernel
    target: str
    value: Tensor
    index: list[Ix]
    columns: PlaceColumns
    early: list[E]
    name_places: Callable[[], None]
    at: Callable[[list[Ix]], Ix]
    axis: str = field(init=False)
    storer: str = field(init=False)
    dtype: str = field(init=False)

    def __post_init__(self) -> None:
        self.axis = f"i{len(self.index) - 1}"
        self.dtype = self.k.body.dtype(self.target)

    def write(self) -> None:
        """Writes the statements: by vectors where all are whole and aligned, which is tested once for all; else element
        by element.
        """
        k, width, size = self.k, self.columns.width, self.columns.size
        whole = size.value is not None and size.value % width == 0
        tests = [] if whole else [f"{self.axis} + {width} <= {k.size(size)}"]
        self.storer = "store_whole" if width * ITEM_BYTES.get(self.dtype, 1) in WORDS else "store_aligned"
        k.use("WideVector", self.storer)
        k.open(f"if ({' && '.join(dict.fromkeys([*tests, *self._aligned()]))})")
        if self.columns.ends:
            self._one_part()
        else:
            self._all_parts()
        k.emit.otherwise()
        self.name_places()
        cut = "" if whole else f" && j < {k.size(size)}"
        k.open(f"for ({k.kind} j = {self.axis}; j < {self.axis} + {width}{cut}; ++j)")
        for each in self._parts(ix(Var("j", size))):
            text = k.load(self.value, each, self.dtype)
            k.line(f"*({k.pointer(self.target)} + {k.emit.position(self.at(each))}) = {text};")
        k.close()
        k.close()

    def _aligned(self) -> list[str]:
        """The run-time conditions under which all vectors are aligned."""
        k, width = self.k, str(self.columns.width)
        found = k.store_conditions(self.target, self.at(self.index), self.axis, width)
        if not self.columns.ends:
            for place in self._parts(self.index[-1]):
                found += k.vector_conditions(self.value, place, self.axis, width)
            return found
        for first, size in self._ranges():
            place = [*self.index[:-1], ix(Var(self.axis, size)) + first]
            found += k.vector_conditions(self.value, place, self.axis, width)
        return found

    def _ranges(self) -> list[tuple[int, Ix]]:
        """The first column and the number of columns of each part of a row."""
        ends = self.columns.ends
        sizes = [*(ix(b - a) for a, b in itertools.pairwise((0, *ends))), self.columns.size - ends[-1]]
        return list(zip((0, *ends), sizes, strict=True))

    def _parts(self, column: Ix) -> list[list[Ix]]:
        """The index of the same column of each part."""
        return [[*self.index[:-1], column + self.columns.size * n] for n in range(self.columns.count)]

    def _all_parts(self) -> None:
        """Computes and stores the vectors of all parts."""
        places = self._parts(self.index[-1])
        names = ["wide", *(self.k.fresh("wide") for _ in places[1:])]
        self._compute(names, places, self.axis)
        self.k.behind_loads(self.early)
        self.name_places()
        for name, place in zip(names, places, strict=True):
            self._store(name, place)

    def _compute(self, names: list[str], places: list[list[Ix]], axis: str) -> None:
        """Computes vectors along an axis, whose loads are aligned."""
        k, width = self.k, str(self.columns.width)
        for name in names:
            k.line(f"WideVector<{STORAGE[self.dtype]}, {width}> {name};")
        k.vectors(self.value, places, axis, width, [f"{name}.v" for name in names], dtype=self.dtype, aligned=True)

    def _store(self, name: str, place: list[Ix]) -> None:
        pointer = f"{self.k.pointer(self.target)} + {self.k.emit.position(self.at(place))}"
        self.k.line(f"{self.storer}<{self.columns.width}>({pointer}, {name});")

    def _one_part(self) -> None:
        """Computes the vector by the one part in which it lies, and stores it."""
        k, ranges = self.k, self._ranges()
        for number, (first, size) in enumerate(ranges):
            axis = k.fresh(f"{self.axis}_behind") if first else self.axis
            if first:
                k.line(f"const {k.kind} {axis} = {self.axis} - {first};")
            if number < len(ranges) - 1:
                k.open(f"if ({self.axis} < {ranges[number + 1][0]})")
            place = [*self.index[:-1], ix(Var(axis, size)) + first]
            self._compute(["wide"], [place], axis)
            k.behind_loads(self.early)
            self.name_places()
            self._store("wide", self.index)
            if number < len(ranges) - 1:
                k.emit.otherwise()
        for _ in ranges[1:]:
            k.close()
