"""A stencil kernel's scope: which outputs a thread computes, its loops, and a row's span of inputs in registers."""

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
from hipwright.engine.templates.call import CallBody
from hipwright.engine.templates.call_kernel import CallKernel
from hipwright.engine.templates.conv.stencil import SIZES, Stencil, Tile, tiles, usual_tile

NAMES = (
    "tile plane t u v j q r c ky kx row col row0 col0 oy ox oy0 ox0 acc best span inside taken aligned from across taps"
    " read pack phase value total found"
)


@dataclass(eq=False)
class StencilScope:
    """One kernel; `k` prints, the rest is geometry."""

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
        self.tile = Tile(*map(int, body.choose("tile", names, str(usual_tile(s, body.hint, x.dtype))).split("x")))
        self.y_axis, self.x_axis = s.axes[-2:]
        self.flat = not s.weights and self.y_axis.out == ONE  # a pool along rows: memory alone bounds it
        self.block = body.knob("STENCIL_BLOCK", 128 if self.flat else 256, (64, 128, 256, 512), "threads of a block")
        self.k: CallKernel = body.kernel(names=NAMES)
        self.type = COMPUTE[x.dtype]
        self.int = self.k.kind

    # ------------------------------------------------------------ which outputs

    def decode(self) -> str:
        """Name this thread's tile; the grid as plan text."""
        s, k, tile = self.s, self.k, self.tile
        sizes = [*s.lead[:-1], divide(s.lead[-1], ix(tile.t)), *(a.out for a in s.axes[:-2])]
        across = [valid_elements(a.out, n) for a, n in ((self.y_axis, tile.u), (self.x_axis, tile.v))]
        planes, area = product(sizes), product(across)
        if self._whole_planes(planes, area):
            per = f"(({k.size(area)} + {self.block} - 1) / {self.block})"
            k.line(f"const {self.int} plane = blockIdx.x / {per};  // the same for the whole block")
            k.line(f"const {self.int} tile = blockIdx.x % {per} * {self.block} + threadIdx.x;")
            k.line(f"if (tile >= {k.size(area)}) return;")
            places = unflatten(sizes, ix(Var("plane", planes))) + unflatten(across, ix(Var("tile", area)))
            grid = f"({to_python(planes)}) * cdiv({to_python(area)}, {self.block})"
        else:
            total = planes * area
            k.line(f"const {self.int} tile = blockIdx.x * ({self.int}){self.block} + threadIdx.x;")
            k.line(f"if (tile >= {k.size(total)}) return;")
            places = unflatten([*sizes, *across], ix(Var("tile", total)))
            grid = f"cdiv({to_python(total)}, {self.block})"
        self._name(places)
        return grid

    def _whole_planes(self, planes: Ix, area: Ix) -> bool:
        """Give each block tiles of one plane, so that weights and channels are the same for its threads?"""
        block, size = 256, self.body.hint(area)
        waste = -size % block / size
        waste_allowed = 0.4 if self.s.channels > 1 else 0.13
        default = "plane" if waste <= waste_allowed and not self.flat else "flat"
        return self.body.choose("grid", ("flat", "plane"), default) == "plane" if planes != ONE else False

    def _name(self, places: Sequence[Ix]) -> None:
        s, k, tile = self.s, self.k, self.tile
        sizes = [*s.lead, *(a.out for a in s.axes[:-2])]
        named: list[Ix] = []
        for number, (place, size) in enumerate(zip(places, sizes, strict=False)):
            scaled = place * tile.t if number == len(s.lead) - 1 else place
            if scaled.value is not None:
                named.append(scaled)
                continue
            name = k.fresh(f"p{number}")
            k.line(f"const {self.int} {name} = {to_c(scaled)};")
            named.append(ix(Var(name, size)))
        self.lead, self.serial = named[: len(s.lead)], named[len(s.lead) :]
        for name, axis, n, place in zip("yx", s.axes[-2:], (tile.u, tile.v), places[-2:], strict=True):
            start = "row0" if name == "y" else "col0"
            k.line(f"const {self.int} o{name}0 = {to_c(place * n)};")
            k.line(f"const {self.int} {start} = {to_c(place * axis.step(n) + axis.first(n))};")

    # ------------------------------------------------------------ loops

    @contextmanager
    def loops(self, *each: tuple[str, int]) -> Iterator[list[str]]:
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
        """The sum of one output of the tile."""
        tile = self.tile
        return self.array(name, (t, tile.t), (u, tile.u), (v, tile.v))

    @property
    def dims(self) -> tuple[tuple[str, int], ...]:
        """The loops over the tile's outputs."""
        return (("t", self.tile.t), ("u", self.tile.u), ("v", self.tile.v))

    def empty(self) -> str:
        """What combines to nothing: 0 or minus infinity."""
        return literal(0 if self.s.combine == "sum" else -float("inf"), self.type)

    # ------------------------------------------------------------ one row of the input

    def element(self, channel: Ix, row: Ix, col: Ix, places: Sequence[Ix] = ()) -> E:
        """The input at a channel, serial places, row and column."""
        filled = [*places, *[ZERO] * (len(self.s.axes) - 2 - len(places))]
        return self.x.at(self.s.source(self.lead, channel, [*filled, row, col]))

    def pack(self) -> int:
        """Columns of the span that one aligned load reads, 1 for none."""
        step = self.x_axis.step(self.tile.v)
        load = self.row_load(self.input(ZERO, []), ZERO, [], "row")
        if load is None:
            return 1
        most = min(16 // SIZES.get(load.attr[2], 16), self.x_axis.span(self.tile.v))
        row = self.body.hint(self.x_axis.size)
        return max((w for w in (8, 4, 2) if w <= most and step % w == 0 and row % w == 0), default=1)

    def row_load(self, e: E, channel: Ix, places: list[Ix], row: str) -> E | None:
        """The one load of the input that walks along rows, if it lies in memory as the input is numbered."""
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

    def span(self, channel: Ix, places: list[Ix], row: str, width: int) -> None:
        """Read a row's part into registers; outside the input stands the neutral value."""
        k, length = self.k, self.x_axis.span(self.tile.v)
        k.line(f"const {self.int} row = {row};")
        k.line(f"const bool inside = (row >= 0) & (row < {k.size(self.y_axis.size)});")
        k.line(f"const {self.int} from = inside ? row : 0;  // every read is legal, so none needs a branch")
        k.line(f"{self.type} span[{length}];")
        if self.s.positions:
            k.line(f"bool taken[{length}];")
        if width > 1:
            self._wide(channel, places, width)
        else:
            self._singly(channel, places, 0, length)

    def _wide(self, channel: Ix, places: list[Ix], width: int) -> None:
        """Packs from border to border; what lies before the first and behind the last is part of a narrower pack."""
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
                self._singly(channel, places, j, j + 1)
            else:
                self._pack_at(channel, places, j, pack, skip, count)
            j += count

    def _singly(self, channel: Ix, places: list[Ix], low: int, high: int) -> None:
        """span[low..high), element by element."""
        k = self.k
        if high <= low:
            return
        if high - low > 1:
            k.line("#pragma unroll")
            k.open(f"for (int j = {low}; j < {high}; ++j)")
        else:
            self.k.open("")
        j = "j" if high - low > 1 else str(low)
        self._column(j)
        e = self.input(channel, places, "from")
        k.emit.count([e])
        k.line(f"span[{j}] = read ? {k.emit.text(e)[0]} : {self.empty()};")
        if self.s.positions:
            k.line(f"taken[{j}] = read;")
        k.close()

    def _column(self, j: str) -> None:
        k = self.k
        k.line(f"const bool across = (col0 + {j} >= 0) & (col0 + {j} < {k.size(self.x_axis.size)});")
        k.line(f"const {self.int} col = across ? col0 + {j} : 0;")
        k.line("const bool read = inside & across;")

    def input(self, channel: Ix, places: list[Ix], row: str = "row") -> E:
        """The input at `row` and `col`."""
        return self.element(channel, ix(Var(row, self.y_axis.size)), ix(Var("col", self.x_axis.size)), places)

    def _pack_at(self, channel: Ix, places: list[Ix], j: int, width: int, skip: int, count: int) -> None:
        """span[j..j + count) from one aligned load of `width`, whose first `skip` are not wanted.

        Where rows are a multiple of it, it is inside the row or outside as a whole.
        """
        k = self.k
        self.k.open("")
        zero = self._zero_outside(channel, places)
        row = "row" if zero else "from"
        e = self.input(channel, places, row)
        if zero:
            k.line(f"const {self.int} col = col0 + {j - skip};".replace("+ -", "- "))
            k.line(f"const bool read = inside & (col >= 0) & (col < {k.size(self.x_axis.size)});")
        else:
            self._column(str(j - skip))
        load = self.row_load(e, channel, places, row)
        assert load is not None
        buffer, position, _ = load.attr
        pointer, where = k.pointer(buffer), k.emit.position(position)
        reader = f"load_aligned<{width}>({pointer} + {where})"
        if zero:
            k.define("load_or_zero", LOAD_OR_ZERO)
            reader = f"load_or_zero<{width}>({pointer}, {where}, read)"
        k.line(f"const auto pack = {reader};")
        with self.loops(("q", count)) as (q,):
            k.packs[buffer, position.key] = f"pack.v[{q if not skip else f'{q} + {skip}'}]"
            k.emit.count([e])
            value = k.emit.text(e)[0]
            k.line(f"span[{j} + {q}] = {value if zero else f'read ? {value} : {self.empty()}'};")
            k.packs = {}
            if self.s.positions:
                k.line(f"taken[{j} + {q}] = read;")
        k.close()

    def _zero_outside(self, channel: Ix, places: list[Ix]) -> bool:
        """Is the input read as it lies in memory and summed, so that what is outside may be read as zeros?"""
        e = self.input(channel, places)
        load = self.row_load(e, channel, places, "row")
        plain = e is load or (e.op == "cast" and e.args[0] is load)
        return self.s.combine == "sum" and plain


LOAD_OR_ZERO = """// N aligned neighbours, or zeros: on NVIDIA by a predicated load, whose address may be anything.
template <int N, typename T>
__device__ __forceinline__ WideVector<T, N> load_or_zero(const T* p, long at, bool read) {
    constexpr int words = sizeof(T) * N / 4;
    struct alignas(words * 4) Words {
        unsigned v[words];
    };
#if defined(__AMDGCN__)
    Words bits = *reinterpret_cast<const Words*>(p + (read ? at : 0));
    for (int k = 0; k < words; ++k) bits.v[k] = read ? bits.v[k] : 0u;
#else
    Words bits = {};
    if (read) bits = *reinterpret_cast<const Words*>(p + at);
#endif
    return __builtin_bit_cast(WideVector<T, N>, bits);
}
"""


def valid_elements(size: Ix, tile: int) -> Ix:
    """Tiles along an axis."""
    return size if tile == 1 else divide(size + (tile - 1), ix(tile))


def at(name: str, count: int) -> Ix:
    """A loop's variable, or 0 when it runs once."""
    return ZERO if name == "0" else ix(Var(name, ix(count)))


def window_count(axis: ConvAxis, place: Ix, kind: str) -> Ix:
    """Elements of an average's window along an axis."""
    start = place * axis.stride - axis.padding
    if kind == "padded":
        return ix(Fn("min", start + axis.kernel, axis.size + axis.padding)) - start
    return ix(Fn("min", start + axis.kernel, axis.size)) - ix(Fn("max", start, ZERO))


def scaled(*terms: tuple[str, int]) -> str:
    """a * m + b * n as C, for loop variables that may be the text 0."""
    total = ZERO
    for name, factor in terms:
        total = total + (ZERO if name == "0" else ix(Var(name)) * factor)
    return to_c(total)


def meets(axis: ConvAxis, tile: int, ky: str, u: str, r: str) -> str:
    """When does input row r of the tile not meet output row u through tap ky?"""
    if axis.transposed:
        left = scaled((u, 1), (ky, -axis.dilation))
        return f"{left} + {axis.padding} != {axis.stride} * ({r} + {axis.first(tile)})".replace("+ -", "- ")
    return f"{scaled((u, axis.stride), (ky, axis.dilation))} != {r}"
