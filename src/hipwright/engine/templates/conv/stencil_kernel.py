"""The stencil kernel: sweep over the input rows, accumulate, store. stencil.py has the algorithm."""

from __future__ import annotations

from hipwright.engine.ir.index import ZERO, Ix, Var, ix, product
from hipwright.engine.ir.index_text import to_c
from hipwright.engine.ir.shapes import flatten
from hipwright.engine.lower.conv import ConvAxis, plane_position, window_start
from hipwright.engine.templates.base import EmittedKernel
from hipwright.engine.templates.call import CallBody
from hipwright.engine.templates.conv.stencil import mixes_channels, streams_weights
from hipwright.engine.templates.conv.stencil_apart import ApartKernel, outputs_apart
from hipwright.engine.templates.conv.stencil_channels import ChannelsKernel
from hipwright.engine.templates.conv.stencil_places import linear_text, loop_index, skip_condition
from hipwright.engine.templates.conv.stencil_rows import StencilRows
from hipwright.engine.templates.conv.stencil_scope import grid_form
from hipwright.engine.templates.conv.stencil_shared import SharedWindowKernel, window_lanes

BARRIER_TAPS = 16
AHEAD = 4
"""Channels whose loads are issued at once where each is one load a row. A round figure, not measured."""


def write(body: CallBody) -> list[EmittedKernel]:
    """The kernel of a stencil."""
    s = body.data
    if s.channels_last and grid_form(body, "flat") == "vectors":
        return [ChannelsKernel(body, s).kernel()]
    lanes = window_lanes(body)
    if lanes > 1:
        return [SharedWindowKernel(body, s, lanes=lanes).kernel()]
    apart = outputs_apart(body)
    return [ApartKernel(body, s, outputs=apart).kernel() if apart > 1 else _StencilKernel(body, s).kernel()]


class _StencilKernel(StencilRows):
    """Writes one kernel."""

    def kernel(self) -> EmittedKernel:
        """The kernel."""
        grid = self.locate_tile()
        width = self.vector_width()
        if width > 1:
            self._emit_unaligned(width)
        self._declare_sums()
        self._emit_sweep(width)
        self._emit_stores()
        return self.k.finish(grid, self.block, self.block, f"tile {self.tile}")

    def _declare_sums(self) -> None:
        """Declares the sums, or the maxima with their positions."""
        k, s = self.k, self.s
        tile = (str(self.tile.t), str(self.tile.u), str(self.tile.v))
        k.line(f"{self.type} {self.sum(*tile)};")
        if s.positions:
            k.line(f"{self.index_type} {self.sum(*tile, name='best_index')};")
        with self.unrolled(*self.dims) as (t, u, v):
            k.line(f"{self.sum(t, u, v)} = {self.neutral()};")
            if s.positions:
                k.line(f"{self.sum(t, u, v, 'best_index')} = -1;")

    def _emit_unaligned(self, width: int) -> None:
        """The path for rows that cannot be vectorised, of other calls than the captured one: output by output, correct
        but slow.
        """
        k = self.k
        k.line(f"const bool aligned = {' && '.join(self.vector_conditions(width))};")
        k.open("if (!aligned)")
        for name, count in self.dims:
            k.line("#pragma unroll 1")
            k.open(f"for (int {name} = 0; {name} < {count}; ++{name})")
        t, u, v = (ix(Var(name, ix(count))) for name, count in self.dims)
        self._emit_output(t, u, v)
        for _ in self.dims:
            k.close()
        k.line("return;")
        k.close()

    def _emit_output(self, t: Ix, u: Ix, v: Ix) -> None:
        """One output, tap by tap."""
        k, s, (y, x) = self.k, self.s, (self.y_axis, self.x_axis)
        k.line(f"const {self.index_type} oy = {to_c(ix(Var('oy0')) + u)}, ox = {to_c(ix(Var('ox0')) + v)};")
        k.line(f"if (oy >= {k.size(y.out)} || ox >= {k.size(x.out)}) continue;")
        k.line(f"{self.type} total = {self.neutral()};")
        if s.positions:
            k.line(f"{self.index_type} found_index = -1;")
        channel, taps, places = self._open_outer_loops()
        for axis, tap, at_, place in ((y, "ky", "oy", "row"), (x, "kx", "ox", "col")):
            k.open(f"for (int {tap} = 0; {tap} < {axis.kernel}; ++{tap})")
            self._declare_outer_place(axis, ix(Var(at_, axis.out)), tap, place)
        e = self.input(channel, places)
        k.emit.count([e])
        k.line(f"const {self.type} value = {k.emit.text(e)[0]};")
        if s.weights is not None and self.w is not None:
            kernel = [ix(Var("ky", ix(y.kernel))), ix(Var("kx", ix(x.kernel)))]
            k.line(f"total += value * {k.load(self.w, s.weights(self.lead, t, channel, [*taps, *kernel]))};")
        elif s.positions:
            self._replace_best("true", "found_index", "total", "col")
        else:
            self._accumulate("total", "value", "0", "0", "0")
        for _ in range(2 + len(places) + (s.channels > 1)):
            k.close()
        lead = [*self.lead[:-1], self.lead[-1] + t]
        where = s.index(lead, [*self.serial, ix(Var("oy", y.out)), ix(Var("ox", x.out))])
        self._store(where, "total", "found_index", "ox")

    def _emit_sweep(self, width: int) -> None:
        """The loops over channels, outer axes and rows."""
        channel, taps, places = self._open_outer_loops(AHEAD if mixes_channels(self.s) else 1)
        self._emit_rows(channel, taps, places, width)
        for _ in range(len(places) + (self.s.channels > 1)):
            self.k.close()

    def _open_outer_loops(self, ahead: int = 1) -> tuple[Ix, list[Ix], list[Ix]]:
        """Opens the loops over channels and outer axes; returns the channel, the taps, and the places they read.

        ahead: steps of the loop over channels that are unrolled.
        """
        s, k = self.s, self.k
        channel: Ix = ZERO
        if s.channels > 1:
            k.line(f"#pragma unroll {ahead}")
            k.open(f"for (int c = 0; c < {s.channels}; ++c)")
            channel = ix(Var("c", ix(s.channels)))
        taps, places = [], []
        for number, axis in enumerate(s.axes[:-2]):
            tap, place = f"k{number}", f"s{number}"
            k.line("#pragma unroll 1")
            k.open(f"for (int {tap} = 0; {tap} < {axis.kernel}; ++{tap})")
            self._declare_outer_place(axis, self.serial[number], tap, place)
            taps.append(ix(Var(tap, ix(axis.kernel))))
            places.append(ix(Var(place, axis.size)))
        return channel, taps, places

    def _declare_outer_place(self, axis: ConvAxis, at: Ix, tap: str, name: str) -> None:
        k, moved = self.k, at + axis.padding - ix(Var(tap)) * axis.dilation
        if axis.transposed:
            if axis.stride > 1:
                k.line(f"if (({to_c(moved)}) % {axis.stride} != 0) continue;")
            k.line(f"const {self.index_type} {name} = ({to_c(moved)}) / {axis.stride};")
        else:
            place = at * axis.stride + ix(Var(tap)) * axis.dilation - axis.padding
            k.line(f"const {self.index_type} {name} = {to_c(place)};")
        k.line(f"if ({name} < 0 || {name} >= {k.size(axis.size)}) continue;")

    # ------------------------------------------------------------ one row of the input

    def _emit_rows(self, channel: Ix, taps: list[Ix], places: list[Ix], width: int) -> None:
        y, tile, k = self.y_axis, self.tile, self.k
        if streams_weights(self.s, tile):
            k.line("#pragma unroll 1")
            k.open(f"for (int ky = 0; ky < {y.kernel}; ++ky)")
            self._load_weights(channel, [*taps, ix(Var("ky", ix(y.kernel)))], 1)
            self.load_span(channel, places, to_c(ix(Var("row0")) + ix(Var("ky")) * y.dilation), width)
            self._emit_taps("0", "0")
            k.close()
            return
        self._load_weights(channel, taps, y.kernel)
        with self.unrolled(("r", y.span(tile.u))) as (r,):
            self.load_span(channel, places, "row0" if r == "0" else "row0 + r", width)
            with self.unrolled(("ky", y.kernel), ("u", tile.u)) as (ky, u):
                if y.span(tile.u) > 1 or y.transposed:
                    k.line(f"if ({skip_condition(y, tile.u, ky, u, r)}) continue;")
                self._emit_taps(ky, u)
            if self.tile.t * y.kernel * self.x_axis.kernel > BARRIER_TAPS and r != "0":
                k.use("schedule_barrier")
                k.line("schedule_barrier(acc);")

    def _load_weights(self, channel: Ix, taps: list[Ix], rows: int) -> None:
        """Loads the weights of these taps into registers."""
        s, k, x = self.s, self.k, self.x_axis
        if s.weights is None or self.w is None:
            return
        sizes = (("t", self.tile.t), ("ky", rows), ("kx", x.kernel))
        k.line(f"{self.type} {self.array('taps', *((str(n), n) for _, n in sizes))};")
        with self.unrolled(*sizes) as (t, ky, kx):
            row = [] if len(taps) == len(s.axes) - 1 else [loop_index(ky, rows)]
            index = s.weights(self.lead, loop_index(t, self.tile.t), channel, [*taps, *row, loop_index(kx, x.kernel)])
            value = k.load(self.w, index)
            k.line(f"{self.array('taps', *((p, n) for p, (_, n) in zip((t, ky, kx), sizes, strict=True)))} = {value};")

    # ------------------------------------------------------------ combining

    def _emit_taps(self, ky: str, u: str) -> None:
        """Accumulates the row's taps into row u of the tile."""
        x, k, tile = self.x_axis, self.k, self.tile
        with self.unrolled(("kx", x.kernel), ("v", tile.v)) as (kx, v):
            place = linear_text((v, 1 if x.transposed else x.stride), (kx, -x.dilation if x.transposed else x.dilation))
            if x.transposed:
                k.line(f"const int phase = {place} + {x.padding};")
                if x.stride > 1:
                    k.line(f"if (phase % {x.stride} != 0) continue;")
                place = f"phase / {x.stride} - {x.first(tile.v)}".replace("- -", "+ ")
            if self.s.positions:
                self._update_best(u, v, place)
                return
            with self.unrolled(("t", tile.t)) as (t,):
                self._accumulate(self.sum(t, u, v), f"span[{place}]", t, ky, kx)

    def _accumulate(self, total: str, value: str, t: str, ky: str, kx: str) -> None:
        if self.s.combine == "max":
            self.k.use("pool_max")
            self.k.line(f"{total} = pool_max({total}, {value});")
            return
        if self.s.weights:
            rows = 1 if streams_weights(self.s, self.tile) else self.y_axis.kernel
            sizes = ((t, self.tile.t), (ky, rows), (kx, self.x_axis.kernel))
            value += f" * {self.array('taps', *sizes)}"
        self.k.line(f"{total} += {value};")

    def _update_best(self, u: str, v: str, place: str) -> None:
        self.k.line(f"const {self.type} value = span[{place}];")
        self._replace_best(f"valid[{place}]", self.sum("0", u, v, "best_index"), self.sum("0", u, v), f"col0 + {place}")

    def _replace_best(self, condition: str, best: str, most: str, col: str) -> None:
        """Of equal maxima the first wins; NaN wins over numbers."""
        k = self.k
        k.open(f"if ({condition} && ({best} < 0 || value > {most} || value != value))")
        k.line(f"{most} = value;")
        flat = ix(Var("row")) * self.x_axis.size
        for number, axis in enumerate(self.s.axes[:-2]):
            rest = product([a.size for a in self.s.axes[number + 1 :]])
            flat = flat + ix(Var(f"s{number}", axis.size)) * rest
        k.line(f"{best} = {to_c(flat)} + {col};")
        k.close()

    # ------------------------------------------------------------ results

    def _emit_stores(self) -> None:
        k, tile, out = self.k, self.tile, self.x_axis.out
        with self.unrolled(("t", tile.t), ("u", tile.u)) as (t, u):
            k.line(f"const {self.index_type} oy = oy0{'' if u == '0' else ' + u'};")
            if tile.u > 1:
                k.line(f"if (oy >= {k.size(self.y_axis.out)}) continue;")
            lead = [*self.lead[:-1], self.lead[-1] + loop_index(t, tile.t)]
            row = [*self.serial, ix(Var("oy", self.y_axis.out))]
            even = out.value is not None and out.value % tile.v == 0
            if tile.v & (tile.v - 1) or tile.v == 1 or self.body.placed.offer.whole:
                self._store_each(lead, row, t, u)
                return
            if not even:
                k.open(f"if (ox0 + {tile.v} <= {k.size(out)})")
            k.epilogue_vector(
                self.result_text(self.sum(t, u, "v"), "v"),
                self.s.index(lead, [*row, ix(Var("ox0", out))]),
                "ox0",
                str(tile.v),
            )
            if not even:
                k.close()
                k.open("else")
                self._store_each(lead, row, t, u)
                k.close()

    def _store_each(self, lead: list[Ix], row: list[Ix], t: str, u: str) -> None:
        k, out = self.k, self.x_axis.out
        with self.unrolled(("v", self.tile.v)) as (v,):
            k.line(f"const {self.index_type} ox = ox0{'' if v == '0' else ' + v'};")
            if self.tile.v > 1:
                k.line(f"if (ox >= {k.size(out)}) continue;")
            place = self.s.index(lead, [*row, ix(Var("ox", out))])
            self._store(place, self.sum(t, u, v), self.sum(t, u, v, "best_index"), "ox")

    def _store(self, place: list[Ix], total: str, best: str, ox: str) -> None:
        """Stores one output through the epilogue, or the value and its position."""
        k = self.k
        if not self.body.placed.offer.whole:
            k.epilogue(self.result_text(total, ox), place)
            return
        flat = k.emit.position(flatten(self.s.space, place))
        k.store(0, flat, total)
        k.store(1, flat, self._or_start(best, place))

    def _or_start(self, best: str, place: list[Ix]) -> str:
        """The maximum's position; where a window may be all padding, its start for one that is."""
        axes = self.s.axes
        if not any(axis.padding and axis.dilation > 1 for axis in axes):
            return best
        outs = place[len(place) - len(axes) :]
        starts = [window_start(out, a.stride, a.padding, a.dilation) for out, a in zip(outs, axes, strict=True)]
        return f"{best} < 0 ? {to_c(plane_position([axis.size for axis in axes], starts))} : {best}"
