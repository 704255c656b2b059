"""State of a stencil kernel while it is written: its outputs, its loops, and the span of a row's inputs in
registers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from hipwright.engine.emit.statements import literal
from hipwright.engine.ir.expr import COMPUTE, walk
from hipwright.engine.ir.index import ONE, Ix, Var, divide, ix, product
from hipwright.engine.ir.index_text import to_c, to_python
from hipwright.engine.ir.shapes import unflatten
from hipwright.engine.templates.access import has_unit_stride, other_strides, unconditional_loads
from hipwright.engine.templates.call import CallBody
from hipwright.engine.templates.call_kernel import CallKernel
from hipwright.engine.templates.conv.stencil import SIZES, Stencil, Tile, default_tile, tiles
from hipwright.engine.templates.conv.stencil_places import tile_count, window_count

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
        self.y_axis, self.x_axis = s.axes[-2:]
        self.tile = self.chosen_tile()
        self.one_row = not s.weights and self.y_axis.out == ONE  # a pool along rows: memory alone bounds it
        threads = 128 if self.one_row and self._runs_along_memory() else 256  # others share the lines of columns
        self.block = body.knob("STENCIL_BLOCK", threads, (64, 128, 256, 512), "threads of a block")
        self.k: CallKernel = body.kernel(names=NAMES)
        self.type = COMPUTE[x.dtype]
        self.index_type = self.k.kind

    def chosen_tile(self) -> Tile:
        """The outputs that a thread computes."""
        default = default_tile(self.s, self.body.hint, self.x.dtype)
        return Tile(*map(int, self.body.choose("tile", [str(t) for t in tiles(self.s)], str(default)).split("x")))

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
        """How threads are numbered (`grid_form`)."""
        block, size = 256, self.body.hint(area)
        waste = -size % block / size
        default = "plane" if waste <= _waste_allowed(self.s.channels) and not self.one_row else "flat"
        return grid_form(self.body, default) if planes != ONE else "flat"

    def _declare_place(self, places: Sequence[Ix]) -> None:
        s, k, tile = self.s, self.k, self.tile
        sizes = [*s.lead, *(a.out for a in s.axes[:-2])]
        named: list[Ix] = []
        for number, (place, size) in enumerate(zip(places, sizes, strict=False)):
            scaled = place * tile.t if number == len(s.lead) - 1 else place
            named.append(self.named(f"p{number}", scaled, size))
        self.lead, self.serial = named[: len(s.lead)], named[len(s.lead) :]
        for name, axis, n, place in zip("yx", s.axes[-2:], (tile.u, tile.v), places[-2:], strict=True):
            start = "row0" if name == "y" else "col0"
            k.line(f"const {self.index_type} o{name}0 = {to_c(place * n)};")
            k.line(f"const {self.index_type} {start} = {to_c(place * axis.step(n) + axis.first(n))};")

    def named(self, name: str, place: Ix, size: Ix) -> Ix:
        """A variable of the C text for a place."""
        if place.value is not None:
            return place
        fresh = self.k.fresh(name)
        self.k.line(f"const {self.index_type} {fresh} = {to_c(place)};")
        return ix(Var(fresh, size))

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

    def result_text(self, total: str, ox: str) -> str:
        """The result of a sum: scaled, or divided by the size of the window."""
        if not self.s.count:
            return total if self.s.scale == 1.0 else f"{total} * {literal(self.s.scale, self.type)}"
        places = [*self.serial, ix(Var("oy")), ix(Var("ox0")) + ix(Var("v")) if ox == "v" else ix(Var(ox))]
        counts = [window_count(axis, place, self.s.count) for axis, place in zip(self.s.axes, places, strict=True)]
        return f"{total} / ({self.type})({to_c(product(counts))})"


def grid_form(body: CallBody, default: str) -> str:
    """How threads are numbered: over all tiles ("flat"); with blocks whose tiles are all of one "plane", so that they
    share weights and channels; or along the "channels", where these are neighbours in the input's memory, each thread
    with one of them or with "vectors" of them (stencil_channels.py).

    default: of a stencil whose channels lie apart.
    """
    options: tuple[str, ...] = ("flat", "plane")
    if body.data.channels_last:
        options, default = (*options, "channels"), "channels"
        if channel_vector(body):
            options, default = (*options, "vectors"), "vectors"
    return str(body.choose("grid", options, default))


def channel_vector(body: CallBody) -> int:
    """Neighbouring channels in 16 bytes of the input, where each load of them is aligned and reads them all; else 0."""
    s, x = body.data, body.operands[0]
    assert x is not None
    channels, width = s.lead[-1].value, 16 // SIZES[x.dtype]
    if not s.channels_last or s.weights or s.positions or not channels or channels % width:
        return 0
    places = body.c.probe(x.shape)
    names = [a.name for a in places[len(s.lead) - 1].atoms() if isinstance(a, Var)]
    loads = [e.attr[1] for e in unconditional_loads([x.at(places)])]
    runs = [(p, name) for p in loads for name in names if has_unit_stride(p, name)]
    steps = [factor for p, name in runs for stride in other_strides(p, name) for factor in stride.terms.values()]
    return width if runs and all(factor % width == 0 for factor in steps) else 0


def _waste_allowed(channels: int) -> float:
    """Idle threads for each one of a plane up to which blocks keep within planes."""
    if channels >= MANY_WEIGHTS_CHANNELS:
        return MANY_WEIGHTS_WASTE
    return WASTE if channels > 1 else DEPTHWISE_WASTE
