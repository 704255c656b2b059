"""How a stencil's kernel reads rows of its input: spans in registers, by vectors where all that it reads is aligned."""

from __future__ import annotations

from collections.abc import Sequence

from hipwright.engine.ir.expr import E, indices, walk
from hipwright.engine.ir.index import ZERO, Ix, Var, ix
from hipwright.engine.ir.shapes import flatten
from hipwright.engine.templates.access import has_unit_stride, other_strides, unconditional_loads
from hipwright.engine.templates.conv.stencil import SIZES
from hipwright.engine.templates.conv.stencil_scope import StencilScope


class StencilRows(StencilScope):
    """Emits the loads of rows."""

    def element(self, channel: Ix, row: Ix, col: Ix, places: Sequence[Ix] = ()) -> E:
        """The input at a channel, outer places, row and column."""
        filled = [*places, *[ZERO] * (len(self.s.axes) - 2 - len(places))]
        return self.x.at(self.s.source(self.lead, channel, [*filled, row, col]))

    def vector_width(self) -> int:
        """Columns of the span that one aligned load reads; 1 for none."""
        step, loads = self.x_axis.step(self.tile.v), self.row_loads(*self._anywhere(), "row")
        if not loads:
            return 1
        most = min(16 // max(SIZES.get(load.attr[2], 16) for load in loads), self.x_axis.span(self.tile.v))
        strides = [step, *(self.body.c.captured(stride) for load in loads for stride in self._row_strides(load))]
        return max((w for w in (8, 4, 2) if w <= most and all(s % w == 0 for s in strides)), default=1)

    def _anywhere(self) -> tuple[Ix, list[Ix]]:
        """A channel and places along the outer axes, as variables."""
        places = [ix(Var(f"s{number}", axis.size)) for number, axis in enumerate(self.s.axes[:-2])]
        return ix(Var("c", ix(self.s.channels))) if self.s.channels > 1 else ZERO, places

    def _row_strides(self, load: E) -> list[Ix]:
        """What has to be multiples of a vector's length: of an input contiguous as it is indexed, the row's."""
        channel, places = self._anywhere()
        place = [*places, ix(Var("row", self.y_axis.size)), ix(Var("col", self.x_axis.size))]
        flat = flatten(self.x.shape, self.s.source(self.lead, channel, place))
        return [self.x_axis.size] if load.attr[1] == flat else other_strides(load.attr[1], "col")

    def row_loads(self, channel: Ix, places: list[Ix], row: str) -> list[E]:
        """The loads of an element of the input, of which each that varies along a row runs along it; else none."""
        e = self.input(channel, places, row)
        certain, found = {*unconditional_loads([e]), *guarded_loads(e)}, list[E]()
        for part in walk([e]):
            if any(isinstance(a, Var) and a.name == "col" for p in indices(part) for a in p.atoms()):
                if part not in certain or not has_unit_stride(part.attr[1], "col"):
                    return []
                found.append(part)
        return found

    def vector_conditions(self, width: int) -> list[str]:
        """The run-time conditions of aligned loads of vectors, as C texts."""
        k, tests = self.k, list[str]()
        k.use("WideVector")
        for load in self.row_loads(*self._anywhere(), "row"):
            tests.append(f"is_wide_aligned<{width}>({k.pointer(load.attr[0])})")
            for stride in self._row_strides(load):
                if stride.value is None or stride.value % width:
                    tests.append(f"{k.size(stride)} % {width} == 0")
        return list(dict.fromkeys(tests))

    def load_span(self, channel: Ix, places: list[Ix], row: str, width: int) -> None:
        """Emits the load of a part of a row into `span`; elements outside the input are neutral."""
        k, length = self.k, self.x_axis.span(self.tile.v)
        k.line(f"const {self.index_type} row = {row};")
        k.line(f"const bool row_in_range = (row >= 0) & (row < {k.size(self.y_axis.size)});")
        k.line(
            f"const {self.index_type} from = row_in_range ? row : 0;  // a legal row, so that no load is conditional"
        )
        k.line(f"{self.type} span[{length}];")
        if self.s.positions:
            k.line(f"bool valid[{length}];")
        if width > 1:
            self._load_vectors(channel, places, width)
        else:
            self._load_elements(channel, places, 0, length)

    def _load_vectors(self, channel: Ix, places: list[Ix], width: int) -> None:
        """Loads from one vector boundary to the next; what lies before the first and after the last is part of a
        narrower vector.
        """
        first, length = self.x_axis.first(self.tile.v), self.x_axis.span(self.tile.v)
        j = 0
        while j < length:
            rest = length - j
            skip, pack = (first + j) % width, width
            if skip:  # the end of a pack
                rest = min(rest, width - skip)
                pack = 1 << (width - skip - 1).bit_length()
                skip = pack - (width - skip)
            elif rest < width:
                pack = 1 << (rest - 1).bit_length()
            count = min(rest, pack - skip)
            if pack == 1:
                self._load_elements(channel, places, j, j + 1)
            else:
                self._load_vector(channel, places, j, pack, skip, count)
            j += count

    def _load_elements(self, channel: Ix, places: list[Ix], low: int, high: int) -> None:
        """Loads span[low..high) element by element."""
        k = self.k
        if high <= low:
            return
        if high - low > 1:
            k.line("#pragma unroll")
            k.open(f"for (int j = {low}; j < {high}; ++j)")
        else:
            self.k.open("")
        j = "j" if high - low > 1 else str(low)
        self._declare_column(j)
        e = self.input(channel, places, "from")
        k.emit.count([e])
        k.line(f"span[{j}] = in_range ? {k.emit.text(e)[0]} : {self.neutral()};")
        if self.s.positions:
            k.line(f"valid[{j}] = in_range;")
        k.close()

    def _declare_column(self, j: str) -> None:
        k = self.k
        k.line(f"const bool col_in_range = (col0 + {j} >= 0) & (col0 + {j} < {k.size(self.x_axis.size)});")
        k.line(f"const {self.index_type} col = col_in_range ? col0 + {j} : 0;")
        k.line("const bool in_range = row_in_range & col_in_range;")

    def input(self, channel: Ix, places: list[Ix], row: str = "row") -> E:
        """The input at `row` and `col`."""
        e = self.element(channel, ix(Var(row, self.y_axis.size)), ix(Var("col", self.x_axis.size)), places)
        return self.k.approximated([e])[0]

    def _load_vector(self, channel: Ix, places: list[Ix], j: int, width: int, skip: int, count: int) -> None:
        """Loads span[j..j + count) by one aligned load of `width`, whose first `skip` elements are not used.

        The row length is a multiple of the width, so that a vector is inside the row or outside as a whole.
        """
        k = self.k
        self.k.open("")
        zero_outside = self._reads_zero_outside(channel, places)
        row = "row" if zero_outside else "from"
        e = self.input(channel, places, row)
        if zero_outside:
            k.line(f"const {self.index_type} col = col0 + {j - skip};".replace("+ -", "- "))
            k.line(f"const bool in_range = row_in_range & (col >= 0) & (col < {k.size(self.x_axis.size)});")
        else:
            self._declare_column(str(j - skip))
        loads, guards = self.row_loads(channel, places, row), guarded_loads(e)
        vectors = [
            (load.attr[0], load.attr[1], k.fresh("vec") if number else "vec") for number, load in enumerate(loads)
        ]
        for load, (buffer, position, name) in zip(loads, vectors, strict=True):
            pointer, where = k.pointer(buffer), k.emit.position(position)
            reader = f"load_aligned<{width}>({pointer} + {where})"
            if zero_outside:
                k.use("load_or_zero")
                reader = f"load_or_zero<{width}>({pointer}, {where}, in_range)"
            elif load in guards:
                k.use("load_or_zero")
                reader = f"load_or_zero<{width}>({pointer}, {where}, {k.emit.text(guards[load])[0]})"
            k.line(f"const auto {name} = {reader};")
        with self.unrolled(("q", count)) as (q,):
            for buffer, position, name in vectors:
                k.loaded[buffer, position.key] = f"{name}.v[{q if not skip else f'{q} + {skip}'}]"
            k.emit.count([e])
            value = k.emit.text(e)[0]
            k.line(f"span[{j} + {q}] = {value if zero_outside else f'in_range ? {value} : {self.neutral()}'};")
            k.loaded = {}
            if self.s.positions:
                k.line(f"valid[{j} + {q}] = in_range;")
        k.close()

    def _reads_zero_outside(self, channel: Ix, places: list[Ix]) -> bool:
        """Whether the input is read unchanged and summed, so that zeros may stand for what is outside."""
        e, loads = self.input(channel, places), self.row_loads(channel, places, "row")
        plain = loads == [e] or (e.op == "cast" and loads == [e.args[0]])
        return self.s.combine == "sum" and plain


def guarded_loads(e: E) -> dict[E, E]:
    """Loads under one condition that is the same for a whole row, as of padded channels, and their conditions."""
    found: dict[E, E] = {}
    for guard in (part for part in walk([e]) if part.op == "guard"):
        test, chosen, other = guard.args
        along = any(
            isinstance(a, Var) and a.name == "col" for part in walk([test]) for p in indices(part) for a in p.atoms()
        )
        if not along and other.op == "const":
            found |= dict.fromkeys(unconditional_loads([chosen]), test)
    return found
