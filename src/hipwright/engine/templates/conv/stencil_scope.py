"""State of a stencil kernel while it is written: its outputs, its loops, and the span of a row's inputs in
registers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from hipwright.engine.emit.statements import literal
from hipwright.engine.ir.expr import COMPUTE, E, indices, walk
from hipwright.engine.ir.index import ONE, ZERO, Fn, Ix, Var, divide, ix, product
from hipwright.engine.ir.index_text import to_c, to_python
from hipwright.engine.ir.shapes import flatten, unflatten
from hipwright.engine.lower.conv import ConvAxis
from hipwright.engine.templates.access import has_unit_stride
from hipwright.engine.templates.call import CallBody
from hipwright.engine.templates.call_kernel import CallKernel
from hipwright.engine.templates.conv.stencil import SIZES, Stencil, Tile, default_tile, tiles

NAMES = (
    "tile plane t u v j q r c ky kx row col row0 col0 oy ox oy0 ox0 acc best_index span row_in_range valid aligned"
    " from col_in_range taps in_range vec phase value total found_index"
)

DEPTHWISE_WASTE, WASTE, MANY_WEIGHTS_WASTE, MANY_WEIGHTS_CHANNELS = 0.13, 0.4, 0.75, 16
"""Idle threads for each one of a plane up to which a block keeps within a plane: more, the more weights its threads
share. 3 x 3 x 3 of 32 channels, planes of 150 (0.71), took an H200 40 us with what follows so and 55 over all tiles.
"""


@dataclass(eq=False)
class StencilScope:
    """One kernel; `k` emits the text, the rest is geometry."""

    body: CallBody
    s: Stencil
    lead: list[Ix] = field(default_factory=list)
    serial: list[Ix] = field(default_factory=list)

    def __post_init__(self) -> None:
        s, body = self.s, self.body
        x = body.operands[0]
        assert x is not None
        self.x, self.w = x, body.operands[1] if s.weights else None
        names = [str(t) for t in tiles(s)]
        self.tile = Tile(*map(int, body.choose("tile", names, str(default_tile(s, body.hint, x.dtype))).split("x")))
        self.y_axis, self.x_axis = s.axes[-2:]
        self.one_row = not s.weights and self.y_axis.out == ONE  # a pool along rows: memory alone bounds it
        threads = 128 if self.one_row and self._runs_along_memory() else 256  # others share the lines of columns
        self.block = body.knob("STENCIL_BLOCK", threads, (64, 128, 256, 512), "threads of a block")
        self.k: CallKernel = body.kernel(names=NAMES)
        self.type = COMPUTE[x.dtype]
        self.index_type = self.k.kind

    def _runs_along_memory(self) -> bool:
        """Whether the input's last dimension is its buffer's."""
        places = self.body.c.probe(self.x.shape)
        loads = [e for e in walk([self.x.at(places)]) if e.op == "load"]
        names = [a.name for a in places[-1].atoms() if isinstance(a, Var)]
        return all(has_unit_stride(e.attr[1], name) for e in loads for name in names)

    # ------------------------------------------------------------ which outputs

    def locate_tile(self) -> str:
        """Declares the indices of this thread's tile; returns the grid as plan text."""
        s, k, tile = self.s, self.k, self.tile
        sizes = [*s.lead[:-1], divide(s.lead[-1], ix(tile.t)), *(a.out for a in s.axes[:-2])]
        across = [tile_count(a.out, n) for a, n in ((self.y_axis, tile.u), (self.x_axis, tile.v))]
        planes, area = product(sizes), product(across)
        grid_form = self._grid_form(planes, area)
        if grid_form == "plane":
            per = f"(({k.size(area)} + {self.block} - 1) / {self.block})"
            k.line(f"const {self.index_type} plane = blockIdx.x / {per};  // the same for the whole block")
            k.line(f"const {self.index_type} tile = blockIdx.x % {per} * {self.block} + threadIdx.x;")
            k.line(f"if (tile >= {k.size(area)}) return;")
            places = unflatten(sizes, ix(Var("plane", planes))) + unflatten(across, ix(Var("tile", area)))
            grid = f"({to_python(planes)}) * cdiv({to_python(area)}, {self.block})"
        else:
            total = planes * area
            k.line(f"const {self.index_type} tile = blockIdx.x * ({self.index_type}){self.block} + threadIdx.x;")
            k.line(f"if (tile >= {k.size(total)}) return;")
            channel = (
                len(s.lead) - 1 if grid_form == "channels" else len(sizes) + 1
            )  # what neighbouring threads differ in
            walked = [*sizes, *across]
            walked.append(walked.pop(channel))
            places = unflatten(walked, ix(Var("tile", total)))
            places.insert(channel, places.pop())
            grid = f"cdiv({to_python(total)}, {self.block})"
        self._declare_place(places)
        return grid

    def _grid_form(self, planes: Ix, area: Ix) -> str:
        """How threads are numbered: over all tiles ("flat"); with blocks whose tiles are all of one "plane", so that
        they share weights and channels; or along the "channels", where these are neighbours in the input's memory.
        """
        block, size = 256, self.body.hint(area)
        waste = -size % block / size
        default = "plane" if waste <= _waste_allowed(self.s.channels) and not self.one_row else "flat"
        options: tuple[str, ...] = ("flat", "plane")
        if self.s.channels_last:
            options, default = (*options, "channels"), "channels"
        return str(self.body.choose("grid", options, default)) if planes != ONE else "flat"

    def _declare_place(self, places: Sequence[Ix]) -> None:
        s, k, tile = self.s, self.k, self.tile
        sizes = [*s.lead, *(a.out for a in s.axes[:-2])]
        named: list[Ix] = []
        for number, (place, size) in enumerate(zip(places, sizes, strict=False)):
            scaled = place * tile.t if number == len(s.lead) - 1 else place
            if scaled.value is not None:
                named.append(scaled)
                continue
            name = k.fresh(f"p{number}")
            k.line(f"const {self.index_type} {name} = {to_c(scaled)};")
            named.append(ix(Var(name, size)))
        self.lead, self.serial = named[: len(s.lead)], named[len(s.lead) :]
        for name, axis, n, place in zip("yx", s.axes[-2:], (tile.u, tile.v), places[-2:], strict=True):
            start = "row0" if name == "y" else "col0"
            k.line(f"const {self.index_type} o{name}0 = {to_c(place * n)};")
            k.line(f"const {self.index_type} {start} = {to_c(place * axis.step(n) + axis.first(n))};")

    # ------------------------------------------------------------ loops

    @contextmanager
    def unrolled(self, *each: tuple[str, int]) -> Iterator[list[str]]:
        """Unrolled loops; one that runs once is left out, and its variable is 0."""
        opened = 0
        for name, count in each:
            if count > 1:
                self.k.line("#pragma unroll")
                self.k.open(f"for (int {name} = 0; {name} < {count}; ++{name})")
                opened += 1
        yield [name if count > 1 else "0" for name, count in each]
        for _ in range(opened):
            self.k.close()

    def array(self, name: str, *each: tuple[str, int]) -> str:
        """name[a][b], without the dimensions of size 1."""
        return name + "".join(f"[{place}]" for place, count in each if count > 1)

    def sum(self, t: str, u: str, v: str, name: str = "acc") -> str:
        """The sum of one output of the tile, as C text."""
        tile = self.tile
        return self.array(name, (t, tile.t), (u, tile.u), (v, tile.v))

    @property
    def dims(self) -> tuple[tuple[str, int], ...]:
        """The loops over the tile's outputs."""
        return (("t", self.tile.t), ("u", self.tile.u), ("v", self.tile.v))

    def neutral(self) -> str:
        """The neutral element: 0, or minus infinity for a maximum."""
        return literal(0 if self.s.combine == "sum" else -float("inf"), self.type)

    # ------------------------------------------------------------ one row of the input

    def element(self, channel: Ix, row: Ix, col: Ix, places: Sequence[Ix] = ()) -> E:
        """The input at a channel, outer places, row and column."""
        filled = [*places, *[ZERO] * (len(self.s.axes) - 2 - len(places))]
        return self.x.at(self.s.source(self.lead, channel, [*filled, row, col]))

    def vector_width(self) -> int:
        """Columns of the span that one aligned load reads; 1 for none."""
        step = self.x_axis.step(self.tile.v)
        load = self.row_load(self.input(ZERO, []), ZERO, [], "row")
        if load is None:
            return 1
        most = min(16 // SIZES.get(load.attr[2], 16), self.x_axis.span(self.tile.v))
        row = self.body.hint(self.x_axis.size)
        return max((w for w in (8, 4, 2) if w <= most and step % w == 0 and row % w == 0), default=1)

    def row_load(self, e: E, channel: Ix, places: list[Ix], row: str) -> E | None:
        """The only load that runs along rows, if the input is contiguous as it is indexed."""
        filled = [*places, *[ZERO] * (len(self.s.axes) - 2 - len(places))]
        place = [*filled, ix(Var(row, self.y_axis.size)), ix(Var("col", self.x_axis.size))]
        flat = flatten(self.x.shape, self.s.source(self.lead, channel, place))
        found = None
        for part in walk([e]):
            if not any(isinstance(a, Var) and a.name == "col" for p in indices(part) for a in p.atoms()):
                continue
            if part.op != "load" or part.attr[1] != flat or found not in (None, part):
                return None
            found = part
        return found

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
        load = self.row_load(e, channel, places, row)
        assert load is not None
        buffer, position, _ = load.attr
        pointer, where = k.pointer(buffer), k.emit.position(position)
        reader = f"load_aligned<{width}>({pointer} + {where})"
        if zero_outside:
            k.use("load_or_zero")
            reader = f"load_or_zero<{width}>({pointer}, {where}, in_range)"
        k.line(f"const auto vec = {reader};")
        with self.unrolled(("q", count)) as (q,):
            k.loaded[buffer, position.key] = f"vec.v[{q if not skip else f'{q} + {skip}'}]"
            k.emit.count([e])
            value = k.emit.text(e)[0]
            k.line(f"span[{j} + {q}] = {value if zero_outside else f'in_range ? {value} : {self.neutral()}'};")
            k.loaded = {}
            if self.s.positions:
                k.line(f"valid[{j} + {q}] = in_range;")
        k.close()

    def _reads_zero_outside(self, channel: Ix, places: list[Ix]) -> bool:
        """Whether the input is read unchanged and summed, so that zeros may stand for what is outside."""
        e = self.input(channel, places)
        load = self.row_load(e, channel, places, "row")
        plain = e is load or (e.op == "cast" and e.args[0] is load)
        return self.s.combine == "sum" and plain


def _waste_allowed(channels: int) -> float:
    """Idle threads for each one of a plane up to which blocks keep within planes."""
    if channels >= MANY_WEIGHTS_CHANNELS:
        return MANY_WEIGHTS_WASTE
    return WASTE if channels > 1 else DEPTHWISE_WASTE


def tile_count(size: Ix, tile: int) -> Ix:
    """Tiles along an axis."""
    return size if tile == 1 else divide(size + (tile - 1), ix(tile))


def loop_index(name: str, count: int) -> Ix:
    """A loop's variable, or 0 when it runs once."""
    return ZERO if name == "0" else ix(Var(name, ix(count)))


def window_count(axis: ConvAxis, place: Ix, kind: str) -> Ix:
    """Elements of an average's window along an axis."""
    start = place * axis.stride - axis.padding
    if kind == "padded":
        return ix(Fn("min", start + axis.kernel, axis.size + axis.padding)) - start
    return ix(Fn("min", start + axis.kernel, axis.size)) - ix(Fn("max", start, ZERO))


def linear_text(*terms: tuple[str, int]) -> str:
    """a * m + b * n as C text, for loop variables that may be the text 0."""
    total = ZERO
    for name, factor in terms:
        total = total + (ZERO if name == "0" else ix(Var(name)) * factor)
    return to_c(total)


def skip_condition(axis: ConvAxis, tile: int, ky: str, u: str, r: str) -> str:
    """The condition under which input row r of the tile does not contribute to output row u through tap ky."""
    if axis.transposed:
        left = linear_text((u, 1), (ky, -axis.dilation))
        return f"{left} + {axis.padding} != {axis.stride} * ({r} + {axis.first(tile)})".replace("+ -", "- ")
    return f"{linear_text((u, axis.stride), (ky, axis.dilation))} != {r}"
