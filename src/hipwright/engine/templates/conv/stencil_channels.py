"""Pools of channels-last images: a thread combines vectors of channels, and a block turns its results around in LDS.

Neighbouring threads read neighbouring vectors of 16 bytes, so that a wave reads whole lines. A thread has some
neighbouring outputs of a row, between which it shares what their windows share. Results are stored as the output lies,
along rows: from LDS, where the block has put them.
"""

from __future__ import annotations

from dataclasses import dataclass

from hipwright.engine.ir.expr import weight
from hipwright.engine.ir.index import ZERO, Ix, Var, ix, product
from hipwright.engine.ir.index_text import to_c, to_python
from hipwright.engine.ir.shapes import unflatten
from hipwright.engine.lower.conv import ConvAxis
from hipwright.engine.templates.base import EmittedKernel
from hipwright.engine.templates.conv.stencil import Tile
from hipwright.engine.templates.conv.stencil_places import tile_count
from hipwright.engine.templates.conv.stencil_scope import StencilScope, channel_vector

THREADS = 256
BLOCK_CHANNELS = 64
"""Channels of a block at most: of half types, a line of 128 bytes."""
ACROSS = 8
"""Threads side by side along a row, of several rows: their outputs share the rows of windows that overlap."""
COLUMNS = (1, 2, 4)
"""Outputs of a thread. With eight channels each, four are 32 sums."""
FEW_THREADS = 1 << 16
"""Threads below which more of them are better than what the outputs of a thread share: a quarter of those that an H200
holds. A round figure, not measured.
"""
NAMES = "staged lane spot c0 channel group oy_first ox_first place value"
BANKS = 32
"""Banks of LDS: four bytes each."""
MOST_UNROLLED = 1024
"""The weight (ir/expr.py) of what a thread computes of its windows up to which their rows are unrolled. More is long
code, and the columns of one row are loads enough in flight. A round figure, not measured.
"""


@dataclass(frozen=True)
class BlockShape:
    """What a block computes: `lanes` threads along channels, of `vec` each; `across` along a row of the output, of
    `columns` outputs each; `down` rows.
    """

    vec: int
    lanes: int
    across: int
    columns: int
    down: int

    @property
    def channels(self) -> int:
        """Channels of the block."""
        return self.lanes * self.vec

    @property
    def width(self) -> int:
        """Outputs of the block along a row."""
        return self.across * self.columns

    @property
    def places(self) -> int:
        """Outputs of the block in each channel."""
        return self.width * self.down

    def swizzled(self, place: str, lane: str) -> str:
        """Where in its row of LDS an output is, as C text: the lanes of a wave write to banks of their own, and those
        that read a row find it in order within each 32 places. lane: of the channels.
        """
        n = self.columns
        return f"({place}) ^ ({lane} % {n} + {lane} / {n} * {n * BANKS // self.lanes}) % {self.places}"


def block_shape(vec: int, channels: int, columns: int, rows: int, width: int) -> BlockShape:
    """The shape of a block for an output of so many channels, rows and columns. columns: of a thread."""
    most, groups = BLOCK_CHANNELS // vec, channels // vec
    lanes = next((n for n in (16, 8, 4) if n <= most and groups % n == 0), min(most, 8))
    spots = THREADS // lanes
    across = min(_power(-(-width // columns)), ACROSS)
    down = min(spots // across, _power(rows))
    return BlockShape(vec, lanes, spots // down, columns, down)


def _power(value: int) -> int:
    """The next power of two."""
    return 1 << max(value - 1, 0).bit_length()


class ChannelsKernel(StencilScope):
    """Writes one kernel."""

    def chosen_tile(self) -> Tile:
        """The outputs that a thread computes: neighbours of a row."""
        outputs, vec = self.body.hint(product(self.s.space)), channel_vector(self.body)
        fit = [n for n in COLUMNS if self.x_axis.legal(n) and n <= max(self.body.hint(self.x_axis.out), 1)]
        default = max((n for n in fit if outputs // (vec * n) >= FEW_THREADS), default=1)
        names = [str(Tile(1, 1, n)) for n in COLUMNS]
        return Tile(*map(int, self.body.choose("tile", names, str(Tile(1, 1, default))).split("x")))

    def kernel(self) -> EmittedKernel:
        """The kernel."""
        hint, channels = self.body.hint, self.s.lead[-1].value
        assert channels is not None
        out = hint(self.y_axis.out), hint(self.x_axis.out)
        self.shape = block_shape(channel_vector(self.body), channels, self.tile.v, *out)
        self.k.emit.taken |= {*NAMES.split()}
        grid = self._locate_block()
        self._emit_sums()
        if not self.s.stored_last:
            self.k.line("__syncthreads();")
            self._emit_stores()
        threads = str(THREADS)
        return self.k.finish(grid, threads, threads, f"tile {self.tile} of {self.shape.vec} channels")

    def _locate_block(self) -> str:
        """Declares the block's outputs and the first of the thread's; returns the grid as plan text."""
        s, k, shape, kind = self.s, self.k, self.shape, self.index_type
        counts = [tile_count(self.y_axis.out, shape.down), tile_count(self.x_axis.out, shape.width)]
        sizes = [*s.lead[:-1], *(a.out for a in s.axes[:-2]), *counts, tile_count(s.lead[-1], shape.channels)]
        total = product(sizes)
        k.line(f"const {kind} tile = blockIdx.x;")
        places = unflatten(sizes, ix(Var("tile", total)))
        outer, (row, col, group) = places[:-3], places[-3:]
        named = [self.named(f"p{number}", place, sizes[number]) for number, place in enumerate(outer)]
        count = len(s.lead) - 1
        self.lead, self.serial = [*named[:count], ix(Var("c0", s.lead[-1]))], named[count:]
        k.line(f"const {kind} group = {to_c(group * shape.channels)};")
        k.line(f"const {kind} oy_first = {to_c(row * shape.down)}, ox_first = {to_c(col * shape.width)};")
        k.line(f"const int lane = threadIdx.x % {shape.lanes}, spot = threadIdx.x / {shape.lanes};")
        k.line(f"const {kind} c0 = group + lane * {shape.vec};")
        k.line(
            f"const {kind} oy0 = oy_first + spot / {shape.across}, "
            f"ox0 = ox_first + spot % {shape.across} * {shape.columns};"
        )
        for axis, name, at in ((self.y_axis, "row0", "oy0"), (self.x_axis, "col0", "ox0")):
            k.line(f"const {kind} {name} = {to_c(ix(Var(at)) * axis.stride - axis.padding)};")
        if not s.stored_last:
            k.line(f"__shared__ {self.type} staged[{shape.channels}][{shape.places}];")
        return to_python(total)

    # ------------------------------------------------------------ sums

    def _emit_sums(self) -> None:
        """Combines the windows of the thread's outputs, and puts the results into LDS."""
        k, shape, s = self.k, self.shape, self.s
        bounds = (("c0", s.lead[-1]), ("oy0", self.y_axis.out), ("ox0", self.x_axis.out))
        k.open(f"if ({' && '.join(f'{name} < {k.size(size)}' for name, size in bounds)})")
        k.line(f"{self.type} acc[{shape.columns}][{shape.vec}];")
        with self.unrolled(("v", shape.columns), ("q", shape.vec)) as (v, q):
            k.line(f"acc[{v}][{q}] = {self.neutral()};")
        places = self._open_outer_loops()
        self._emit_rows(places)
        for _ in places:
            k.close()
        if s.stored_last:
            self._emit_vectors()
        else:
            with self.unrolled(("v", shape.columns), ("q", shape.vec)) as (v, q):
                place = shape.swizzled(f"spot * {shape.columns} + {v}", "lane")
                k.line(f"staged[lane * {shape.vec} + {q}][{place}] = acc[{v}][{q}];")
        k.close()

    def _open_outer_loops(self) -> list[Ix]:
        """Opens the loops over the outer axes; returns the places they read."""
        k, places = self.k, list[Ix]()
        for number, axis in enumerate(self.s.axes[:-2]):
            tap, name = f"k{number}", f"s{number}"
            k.line("#pragma unroll 1")
            k.open(f"for (int {tap} = 0; {tap} < {axis.kernel}; ++{tap})")
            place = self.serial[number] * axis.stride + ix(Var(tap)) * axis.dilation - axis.padding
            k.line(f"const {self.index_type} {name} = {to_c(place)};")
            if not self.s.whole:
                k.line(f"if ({name} < 0 || {name} >= {k.size(axis.size)}) continue;")
            places.append(ix(Var(name, axis.size)))
        return places

    def _emit_rows(self, places: list[Ix]) -> None:
        k, y, x, shape = self.k, self.y_axis, self.x_axis, self.shape
        span = x.span(shape.columns)
        index = self.s.source(self.lead, ZERO, [*places, ix(Var("row", y.size)), ix(Var("col", x.size))])
        each = weight([self.x.at(index)]) * span + x.kernel * shape.columns
        k.line(f"#pragma unroll{'' if each * y.kernel * shape.vec <= MOST_UNROLLED else ' 1'}")
        k.open(f"for (int r = 0; r < {y.kernel}; ++r)")
        self._declare_read(y, "row", f"row0 + {to_c(ix(Var('r')) * y.dilation)}", certain=True)
        k.line("#pragma unroll")
        k.open(f"for (int j = 0; j < {span}; ++j)")
        self._declare_read(x, "col", "col0 + j", certain=shape.columns == 1)
        k.line(f"{self.type} value[{shape.vec}];")
        k.vectors(self.x, [index], "c0", str(shape.vec), ["value"], aligned=True)
        k.copy_unaligned(self.x, index, "c0", shape.vec)
        if not self.s.whole:
            k.line("const bool in_range = row_in_range & col_in_range;")
            with self.unrolled(("q", shape.vec)) as (q,):
                k.line(f"value[{q}] = in_range ? value[{q}] : {self.neutral()};")
        self._emit_column()
        k.close()
        k.close()

    def _declare_read(self, axis: ConvAxis, name: str, place: str, *, certain: bool) -> None:
        """Declares a row or column of the input, a legal one in any case. certain: each output of the thread exists."""
        k, kind, size = self.k, self.index_type, self.k.size(axis.size)
        if not self.s.whole:
            k.line(f"const bool {name}_in_range = ({place} >= 0) & ({place} < {size});")
            k.line(f"const {kind} {name} = {name}_in_range ? {place} : 0;  // a legal one: all loads are certain")
        elif certain:
            k.line(f"const {kind} {name} = {place};")
        else:
            k.line(f"const {kind} {name} = {place} < {size} ? {place} : {size} - 1;  // behind the last output, any")

    def _emit_column(self) -> None:
        """Adds column j of the span to the outputs whose windows it is in."""
        k, x, shape = self.k, self.x_axis, self.shape
        with self.unrolled(("v", shape.columns)) as (v,):
            first = to_c(ix(Var("v")) * x.stride) if v == "v" else "0"
            tests = [f"j < {first}", f"j > {first} + {x.dilation * (x.kernel - 1)}"]
            tests += [f"(j - {first}) % {x.dilation} != 0"] if x.dilation > 1 else []
            k.line(f"if ({' || '.join(tests)}) continue;")
            with self.unrolled(("q", shape.vec)) as (q,):
                total = f"acc[{v}][{q}]"
                if self.s.combine == "max":
                    k.use("pool_max")
                    k.line(f"{total} = pool_max({total}, value[{q}]);")
                else:
                    k.line(f"{total} += value[{q}];")

    # ------------------------------------------------------------ results

    def _emit_vectors(self) -> None:
        """Stores the thread's results, which lie as they are computed."""
        k, s, shape = self.k, self.s, self.shape
        with self.unrolled(("u", shape.columns)) as (u,):
            k.line(f"const {self.index_type} oy = oy0, ox = ox0 + {u};")
            if shape.columns > 1:
                k.line(f"if (ox >= {k.size(self.x_axis.out)}) continue;")
            place = s.index(self.lead, [*self.serial, ix(Var("oy", self.y_axis.out)), ix(Var("ox", self.x_axis.out))])
            k.epilogue_vector(self.result_text(f"acc[{u}][v]", "ox"), place, "c0", str(shape.vec))

    def _emit_stores(self) -> None:
        """Stores the block's results along rows of the output: a thread has one place in several channels."""
        k, s, shape, kind = self.k, self.s, self.shape, self.index_type
        k.line(f"const int place = threadIdx.x % {shape.places};")
        k.line(f"const {kind} ox = ox_first + place % {shape.width}, oy = oy_first + place / {shape.width};")
        k.open(f"if (oy < {k.size(self.y_axis.out)} && ox < {k.size(self.x_axis.out)})")
        k.line("#pragma unroll 4")
        each = THREADS // shape.places
        k.open(f"for (int c = threadIdx.x / {shape.places}; c < {shape.channels}; c += {each})")
        k.line(f"const {kind} channel = group + c;")
        if s.lead[-1].value is None or s.lead[-1].value % shape.channels:
            k.line(f"if (channel >= {k.size(s.lead[-1])}) break;")
        ends = [ix(Var("oy", self.y_axis.out)), ix(Var("ox", self.x_axis.out))]
        place = s.index([*self.lead[:-1], ix(Var("channel", s.lead[-1]))], [*self.serial, *ends])
        swizzled = shape.swizzled("place", f"(c / {shape.vec})")
        k.epilogue(self.result_text(f"staged[c][{swizzled}]", "ox"), place)
        k.close()
        k.close()


__all__ = ["ChannelsKernel", "block_shape"]
