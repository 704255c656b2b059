"""The kernel of templates/conv/gemm.py: the tiled product of templates/gemm/tiled.py with a gathered operand.

A row of a tile is an output channel, a column a position, k a (channel, tap) pair: images and outputs lie in memory
along positions, so neighbouring threads have neighbouring columns. A thread gathers for one position, which it takes
apart once; it counts up a tap and a channel, so that the loop over k has no division. What a tap adds to a position
stands in LDS, written when the block starts.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd

from hipwright.engine.ir.index import ZERO, Ix, Var, divide, ix, modulo
from hipwright.engine.ir.index_text import to_c, to_python
from hipwright.engine.ir.shapes import flatten, unflatten
from hipwright.engine.lower.conv import ConvAxis
from hipwright.engine.templates.access import WIDE
from hipwright.engine.templates.base import EmittedKernel
from hipwright.engine.templates.call import CallBody
from hipwright.engine.templates.call_kernel import CallKernel
from hipwright.engine.templates.conv.window import Window
from hipwright.engine.templates.gemm.scope import NAMES, GemmScope
from hipwright.engine.templates.gemm.side import KEEP, ProductOperand
from hipwright.engine.templates.gemm.tiled import Gemm

OURS = """columns depth count cycle Tap taps tap i d0 d1 d2 i0 i1 i2 k0 k1 k2 o0 o1 o2 phase0 phase1 phase2 first0
first1 first2 count0 count1 count2 start0 start1 start2 spot image inside base place at weight AL BL r_a r_b kk_a kk_b
t_a t_b c c_a c_b hop_a hop_b skip_a skip_b which whole s reads value BP valid_a valid_b at0 at1 at2"""


def write(body: CallBody) -> list[EmittedKernel]:
    """One kernel."""
    return [Implicit(body).kernel()]


class Implicit(Gemm):
    """A convolution as a product; b is the group of channels."""

    names = f"{NAMES} {OURS}"
    staged = False

    def __init__(self, body: CallBody) -> None:
        super().__init__(body)
        self.conv: Window = body.data
        self.int = self.k.kind
        self.columns, self.n = self.n, "columns"
        if self.conv.phases > 1:
            self.depth = "depth"

    def sides(self) -> list[ProductOperand]:
        """Weights lie along k; those of a transposed convolution do not, and a phase has only some."""
        weights, x = self.operands
        rows = (Scattered if self.conv.transposed else ProductOperand)("a", weights, "row", self.m, self.bm)
        return [rows, Gathered("b", x, "col", self.n, self.bn)]

    def grid(self) -> str:
        """Tiles of every group and phase."""
        total = self.conv.groups * self.conv.phases
        return f"cdiv({self.conv.outputs}, {self.bm}) * cdiv({to_python(self.conv.positions)}, {self.bn}) * {total}"

    # ------------------------------------------------------------ set up

    def place(self) -> None:
        """Phases and channels change first from block to block: those blocks read the same inputs."""
        k = self.k
        k.line("unsigned t = blockIdx.x;")
        k.line(f"const {self.int} columns = {self.columns};")
        for number, axis in enumerate(self.conv.axes):
            if axis.phases > 1:
                k.line(f"const int phase{number} = t % {axis.phases};")
                k.line(f"t /= {axis.phases};")
        k.line(f"const unsigned tiles_m = ({self.m} + {self.bm} - 1) / {self.bm};")
        k.line(f"const unsigned tiles_n = (columns + {self.bn} - 1) / {self.bn};")
        k.line(f"const {self.int} row0 = t % tiles_m * {self.bm};")
        k.line("t /= tiles_m;")
        k.line(f"const {self.int} col0 = t % tiles_n * {self.bn}, b = t / tiles_n;")
        counts = self._counts()
        fields = self._fields()
        wide = {"int": {2: "alignas(8) ", 3: "alignas(16) ", 4: "alignas(16) "}}.get(self.int, {}).get(len(fields), "")
        k.line(f"struct {wide}Tap {{ {self.int} {', '.join(fields)}; }};  // what a tap adds to a position")
        k.line(f"__shared__ Tap taps[{self.conv.taps}];")
        k.open("for (int i = threadIdx.x; i < count; i += 256)")
        self._tap(counts)
        k.line(f"taps[i] = {{{', '.join(fields.values())}}};")
        k.close()
        k.line("__syncthreads();")

    def _counts(self) -> list[str]:
        """Taps of this block along each axis: all of them, or those that meet its phase."""
        k, counts = self.k, []
        for number, a in enumerate(self.conv.axes):
            if a.phases == 1:
                counts.append(str(a.kernel))
                continue
            name, jump = f"first{number}", _jump(a)
            met = f"(phase{number} + {a.padding} - {name} * {a.dilation}) % {a.stride} == 0"
            k.line(f"int {name} = 0;  // the first tap of this phase")
            k.line(f"while ({name} < {a.kernel} && !({met})) ++{name};")
            k.line(f"const int count{number} = ({a.kernel} - {name} + {jump} - 1) / {jump};")
            counts.append(f"count{number}")
        if self.conv.phases > 1:
            k.line(f"const int count = {' * '.join(counts)}, depth = count * {self.conv.channels};")
            k.line("const int cycle = count > 0 ? count : 1;")
        else:
            k.line(f"constexpr int count = {self.conv.taps}, cycle = count;")
        return counts

    def _fields(self) -> dict[str, str]:
        """A tap's numbers, and what they are in the loop that writes them."""
        conv = self.conv
        fields = {f"d{n}": f"i{n}" for n in conv.coordinates}
        if conv.flat:
            fields["at"] = to_c(flatten([a.size for a in conv.axes], [ix(Var(f"i{n}")) for n in range(len(conv.axes))]))
        if conv.transposed:
            fields["weight"] = to_c(
                flatten([ix(a.kernel) for a in conv.axes], [ix(Var(f"k{n}")) for n in range(len(conv.axes))])
            )
        return fields

    def _tap(self, counts: list[str]) -> None:
        """k0, k1, k2: the i-th tap's place in the window; i0, i1, i2: the inputs it is away from a position's start."""
        k, rest = self.k, "i"
        for number in reversed(range(len(counts))):
            a, count = self.conv.axes[number], counts[number]
            step = "0" if count == "1" else f"{rest} % {count}" if number else rest
            rest = rest if count == "1" else f"{rest} / {count}"
            tap = f"first{number} + {step} * {_jump(a)}" if a.phases > 1 else step
            k.line(f"const int k{number} = {tap};")
            phase = f"phase{number} + " if a.phases > 1 else ""
            away = to_c(ix(Var(f"k{number}")) * (-a.dilation if a.transposed else a.dilation))
            away = f"({phase}{a.padding} + {away}) / {a.stride}" if a.transposed else away
            k.line(f"const {self.int} i{number} = {away};")

    # ------------------------------------------------------------ results

    def store(self) -> None:
        """Sums to the epilogue, each column's position taken apart once."""
        k = self.k
        k.emit.directive("#if GEMM_MFMA")
        self.loops(("j", "WN"))
        k.line(f"const {self.int} col = col0 + (wave % 2 * WN + j) * 16 + lane % 16;")
        place = self._position("col")
        self.loops(("i", "WM"), ("e", "4"))
        k.line(f"const {self.int} row = row0 + (wave / 2 * WM + i) * 16 + lane / 16 * 4 + e;")
        k.line(f"if (row >= {self.m}) continue;")
        k.epilogue("acc[i][j][e]", self._index(place))
        self.ends(3)
        k.emit.directive("#else")
        self._singly() if self.conv.phases > 1 else self._packs()
        k.emit.directive("#endif")

    def _packs(self) -> None:
        """Neighbours of one image at once."""
        k, size = self.k, self.k.size(self.conv.area)
        self.loops(("j", "TN / GN"))
        self.column_of("j")
        place = self._position("col")
        k.line(f"const bool whole = s + GN <= {size};")
        self._rows()
        k.open("if (whole)")
        k.epilogue_vector("acc[i][j * GN + v]", self._index(place), "s", "GN")
        k.close()
        k.open("else")
        self.loops(("e", "GN"))
        k.line(f"const {self.int} at = col + e;")
        k.epilogue("acc[i][j * GN + e]", self._index(self._position("at", names=False)))
        self.ends(4)

    def _singly(self) -> None:
        """Neighbours of a phase are no neighbours in memory."""
        k = self.k
        self.loops(("j", "TN"))
        self.column_of("(j / GN)" if self.tensor else "j / GN", "j % GN")
        place = self._position("col")
        self._rows()
        k.epilogue("acc[i][j]", self._index(place))
        self.ends(2)

    def _rows(self) -> None:
        self.loops(("i", "TM"))
        self.row_of()
        self.k.line(f"if (row >= {self.m}) continue;")

    def _position(self, col: str, *, names: bool = True) -> list[Ix]:
        """Skip what is no output; a column's image and its place there, under names of their own or as they are."""
        k, conv = self.k, self.conv
        k.line(f"if ({col} >= columns) continue;")
        at = ix(Var(col, conv.positions))
        if conv.phases == 1:
            image, place = divide(at, conv.area), modulo(at, conv.area)
            if not names:
                return [image, place]
            k.line(f"const {self.int} image = {to_c(image)}, s = {to_c(place)};")
            return [ix(Var("image", conv.batch)), ix(Var("s", conv.area))]
        image, *steps = unflatten([conv.batch, *conv.steps], at)
        found = [image]
        for number, (axis, step) in enumerate(zip(conv.axes, steps, strict=True)):
            phase = ix(Var(f"phase{number}")) if axis.phases > 1 else ZERO
            k.line(f"const {self.int} o{number} = {to_c(step * axis.phases + phase)};")
            if axis.phases > 1:
                k.line(f"if (o{number} >= {k.size(axis.out)}) continue;")
            found.append(ix(Var(f"o{number}", axis.out)))
        return found

    def _index(self, place: list[Ix]) -> list[Ix | str | int]:
        channel = _channel(self.conv, self.conv.outputs, "row")
        return [place[0], channel, *place[1:]]


def _channel(conv: Window, each: int, name: str) -> Ix:
    """A channel of this block's group, which has `each`."""
    group = ix(Var("b", ix(conv.groups))) if conv.groups > 1 else ZERO
    return group * each + ix(Var(name, ix(each)))


def _jump(axis: ConvAxis) -> int:
    """From one tap of a phase to its next."""
    return axis.stride // gcd(axis.stride, axis.dilation)


@dataclass(eq=False)
class _Walk(ProductOperand):
    """A side whose threads count k up by a tap and a channel: t_ and c_.

    Every read is legal, what lies outside is read at place 0 and replaced when it is kept: with no branch between them
    all reads of a tile are under way at once.
    """

    def start(self, k: CallKernel, g: GemmScope, taken: str) -> None:
        """The first k of this thread; `taken` of every tile it counts while it reads."""
        n = self.name
        k.line(f"unsigned valid_{n} = 0;")
        k.line(f"int t_{n} = kk_{n} % cycle, c_{n} = kk_{n} / cycle;")
        k.line(f"const int hop_{n} = ({g.bk} - {taken}) % cycle, skip_{n} = ({g.bk} - {taken}) / cycle;")

    def onward(self, k: CallKernel) -> None:
        """To this thread's k's of the next tile."""
        n = self.name
        k.line(f"t_{n} += hop_{n};")
        k.line(f"c_{n} += skip_{n};")
        k.open(f"if (t_{n} >= cycle)")
        k.line(f"t_{n} -= cycle;")
        k.line(f"++c_{n};")
        k.close()

    def take(self, k: CallKernel, g: GemmScope, index: list[Ix | str | int]) -> None:
        """The v-th element at a legal index, and whether it counts (`reads`)."""
        n = self.name
        k.line(f"valid_{n} |= (unsigned)reads << v;")
        k.line(f"next_{n}[v] = {k.load(self.operand, index, g.spec.dtype)};")

    def put(self, k: CallKernel, g: GemmScope, count: str, row: str, depth: str) -> None:
        """Registers to LDS, into the buffer that is not being read."""
        n = self.name
        k.line("#pragma unroll")
        k.open(f"for (int v = 0; v < {count}; ++v)")
        k.line(f"const T value = valid_{n} >> v & 1 ? next_{n}[v] : T(0.0f);")
        if g.tensor:
            k.emit.directive(f"#if {g.tensor}")
            k.line(f"tile_{n}[(step + 1) & 1][{self.lies(row, depth)}] = value;")
            k.emit.directive("#elif GEMM_MFMA")
        else:
            k.emit.directive("#if GEMM_MFMA")
        k.line(f"tile_{n}[(step + 1) & 1][{row}][{depth}] = value;")
        k.emit.directive("#else")
        k.line(f"tile_{n}[(step + 1) & 1][{depth}][{row}] = value;")
        k.emit.directive("#endif")
        k.close()


@dataclass(eq=False)
class Gathered(_Walk):
    """The inputs: a thread takes BL neighbouring k's of one position, the threads beside it the next positions."""

    def declare(self, k: CallKernel, g: GemmScope) -> None:
        """Where this thread's position begins to read."""
        conv: Window = g.spec  # type: ignore[assignment]
        k.line(f"constexpr int BL = {self.size} * {g.bk} / 256;  // k's that a thread gathers, of one position")
        k.line("T next_b[BL];")
        k.line(f"const int r_b = threadIdx.x % {self.size}, kk_b = threadIdx.x / {self.size} * BL;")
        k.line("const bool inside = col0 + r_b < columns;")
        k.line(f"const {k.kind} spot = inside ? col0 + r_b : 0;")
        image, *steps = unflatten([conv.batch, *conv.steps], ix(Var("spot", conv.positions)))
        k.line(f"const {k.kind} image = {to_c(image)};")
        for number, (axis, step) in enumerate(zip(conv.axes, steps, strict=True)):
            first = step if axis.transposed else step * axis.stride - axis.padding
            k.line(f"const {k.kind} start{number} = {to_c(first)};")
        if conv.flat:
            starts = [ix(Var(f"start{n}")) for n in range(len(conv.axes))]
            k.line(f"const {k.kind} base = {to_c(flatten([a.size for a in conv.axes], starts))};")
        self.start(k, g, "BL")

    def read(self, k: CallKernel, g: GemmScope) -> None:
        """Memory to registers."""
        conv: Window = g.spec  # type: ignore[assignment]
        k.line("valid_b = 0;")
        k.line("#pragma unroll")
        k.open("for (int v = 0; v < BL; ++v)")
        k.line("const Tap tap = taps[t_b];")
        for n in conv.coordinates:
            k.line(f"const {k.kind} at{n} = start{n} + tap.d{n};")
        size = f"unsigned {k.kind}"
        within = [f"(({size})at{n} < ({size}){k.size(conv.axes[n].size)})" for n in conv.rims]
        k.line(f"const bool reads = {' & '.join(['inside', f'(c_b < {conv.channels})', *within])};")
        places = ["place"] if conv.flat else [f"i{n}" for n in range(len(conv.axes))]
        for place, where in [("c", "c_b"), *((p, f"at{p[1:]}" if p[0] == "i" else "base + tap.at") for p in places)]:
            k.line(f"const {k.kind} {place} = reads ? {where} : 0;")
        self.take(k, g, ["image", _channel(conv, conv.channels, "c"), *places])
        k.open("if (++t_b == cycle)")
        k.line("t_b = 0;")
        k.line("++c_b;")
        k.close()
        k.close()
        self.onward(k)

    def keep(self, k: CallKernel, g: GemmScope) -> None:
        """Registers to LDS; in packs where matrix units read rows of half types."""
        if g.tensor:
            k.define("AlignedWide", WIDE)
            k.define("keep_pack", KEEP)
            k.emit.directive(f"#if {g.tensor}")
            k.line("constexpr int BP = BL < 8 ? BL : 8;")
            k.line("#pragma unroll")
            k.line("for (int v = 0; v < BL; ++v) next_b[v] = valid_b >> v & 1 ? next_b[v] : T(0.0f);")
            k.line("#pragma unroll")
            k.open("for (int v = 0; v < BL; v += BP)")
            to = f"&tile_b[(step + 1) & 1][{self.lies('r_b', 'kk_b + v')}]"
            k.line(f"keep_pack({to}, reinterpret_cast<const T (&)[BP]>(next_b[v]));")
            k.close()
            k.emit.directive("#else")
        self.put(k, g, "BL", "r_b", "kk_b + v")
        if g.tensor:
            k.emit.directive("#endif")


@dataclass(eq=False)
class Scattered(_Walk):
    """The weights of a transposed convolution, [inputs, outputs, taps]: threads side by side take neighbouring k's."""

    def declare(self, k: CallKernel, g: GemmScope) -> None:
        """Which k and rows are this thread's."""
        k.line(f"constexpr int AL = {self.size} * {g.bk} / 256;  // rows that a thread reads, of one k")
        k.line("T next_a[AL];")
        k.line(f"const int r_a = threadIdx.x / {g.bk}, kk_a = threadIdx.x % {g.bk};")
        self.start(k, g, "0")

    def read(self, k: CallKernel, g: GemmScope) -> None:
        """Memory to registers."""
        conv: Window = g.spec  # type: ignore[assignment]
        k.line("valid_a = 0;")
        k.line(f"const {k.kind} which = taps[t_a].weight;")
        k.line("#pragma unroll")
        k.open("for (int v = 0; v < AL; ++v)")
        k.line(f"const {k.kind} at = row0 + r_a + v * (256 / {g.bk});")
        k.line(f"const bool reads = (at < {self.count}) & (c_a < {conv.channels});")
        k.line(f"const {k.kind} row = reads ? at : 0, c = reads ? c_a : 0;")
        self.take(k, g, [_channel(conv, conv.channels, "c"), "row", "which"])
        k.close()
        self.onward(k)

    def keep(self, k: CallKernel, g: GemmScope) -> None:
        """Registers to LDS."""
        self.put(k, g, "AL", f"r_a + v * (256 / {g.bk})", "kk_a")
