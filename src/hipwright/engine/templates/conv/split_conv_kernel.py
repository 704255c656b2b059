"""The kernels of split_conv.py: the parts of weights and images, and the product over windows."""

from __future__ import annotations

from math import prod

from hipwright.engine.ir.index import ONE, ZERO, Ix, Var, divide, ix, modulo
from hipwright.engine.ir.index_text import to_c, to_python
from hipwright.engine.ir.shapes import flatten, unflatten
from hipwright.engine.lower.conv import ConvAxis
from hipwright.engine.templates.base import EmittedKernel
from hipwright.engine.templates.call import CallBody
from hipwright.engine.templates.conv.split_image import SplitImage
from hipwright.engine.templates.conv.window import Window, taps_of
from hipwright.engine.templates.gemm.split_parts import BLOCK, CHUNK, SplitOperand
from hipwright.engine.templates.gemm.split_precision import ROWS, tile_knobs
from hipwright.engine.templates.gemm.tiling import ProductShape
from hipwright.engine.templates.row_tiles import RowTileStates

LOADS = ROWS // 32
"""Rows of a tile that a thread loads."""
MAX_MASKED_TAPS = 64
"""Taps up to which a mask has a bit for each of them; for more, it has one for each place along an axis. Where
those are more, too, there is a range of places along each axis in place of the mask.
"""
_NAMES = """lds tile tiles_m tiles_n b row0 col0 row col at p v i j l r chunk product exact value exponents
column_exponents Tile GN first position image origin group phase0 phase1 phase2 input0 input1 input2 tap channel o0
o1 o2 inside offset needed place0 place1 place2 slice from count sum begin0 begin1 begin2 taps0 taps1 taps2"""


def write(body: CallBody) -> list[EmittedKernel]:
    """Kernels that split the weights and the images, and the product."""
    return _SplitConvolution(body).kernels()


class _SplitConvolution:
    """Writes the kernels of one convolution. b is the group and phase, a row a position of the phase."""

    def __init__(self, body: CallBody) -> None:
        self.body = body
        self.window: Window = body.data
        groups, outputs, positions = self.window.space
        space = (groups, positions, outputs)
        batch, rows, columns = map(body.hint, space)
        shape = ProductShape(batch, rows, columns, body.hint(self.window.k), "float32")
        self.tile = tile_knobs(body, shape, space)
        self.columns = self.tile.columns
        weights, x = (t for t in body.operands if t is not None)
        self.weights, self.x = SplitOperand(body, "w", weights), SplitImage(body, x)

    def kernels(self) -> list[EmittedKernel]:
        """All kernels, in order."""
        return [self.weights.kernel(), *self.x.kernels(), self._product()]

    def _product(self) -> EmittedKernel:
        k, w = self.body.kernel("", _NAMES), self.window
        self.k, self.kind, self.rows = k, k.kind, RowTileStates(k)
        self.count, self.chunks = k.size(w.positions), self.x.chunks.value or 1
        along = [taps_of(a) for a in w.axes]
        self.taps = prod(along)
        self.by_ranges = sum(along) > MAX_MASKED_TAPS
        self.by_axes = self.taps > MAX_MASKED_TAPS and not self.by_ranges
        self.mask = "unsigned" if (sum(along) if self.by_axes else self.taps) <= 32 else "unsigned long long"
        k.use("SplitTile")
        k.line("extern __shared__ __attribute__((aligned(1024))) unsigned char lds[];")
        k.line(f"using Tile = {self.tile.tile};")
        self._locate()
        self._windows()
        k.line("Tile product;")
        count = self.tile.emit_slice(k, str((w.k.value or 0) // CHUNK))
        k.line(f"product.multiply(lds, {count},")
        self._image_loader()
        self._weight_loader()
        self.tile.emit_end(k, f"blockIdx.x / {self.tile.slices}")
        self._store()
        total = w.groups * w.phases
        grid = f"cdiv({to_python(w.positions)}, {ROWS}) * cdiv({w.outputs}, {self.columns})"
        grid += (f" * {total}" if total > 1 else "") + self.tile.factor
        title = f"windows by tiles of {ROWS} x {self.columns}, {CHUNK} deep, in two parts"
        return k.finish(grid, "256", self.tile.bounds, title, self.tile.lds)

    def _locate(self) -> None:
        """Declares the tile: outputs fastest, then groups and phases, since those read the same inputs."""
        k, w = self.k, self.window
        k.line(f"unsigned tile = {self.tile.block};")
        k.line(f"const unsigned tiles_n = ({w.outputs} + {self.columns} - 1) / {self.columns};")
        k.line(f"const {self.kind} col0 = tile % tiles_n * {self.columns};")
        k.line("tile /= tiles_n;")
        total = w.groups * w.phases
        if total > 1:
            k.line(f"const {self.kind} b = tile % {total}, group = b / {w.phases};")
            k.line(f"tile /= {total};")
        k.line(f"const {self.kind} row0 = ({self.kind})tile * {ROWS};")
        if w.phases > 1:
            for number, place in enumerate(unflatten([ix(a.phases) for a in w.axes], ix(Var("b")))):
                shown = modulo(place, ix(w.axes[number].phases))
                k.line(f"const int phase{number} = {to_c(shown)};")

    def _first(self, number: int, axis: ConvAxis) -> tuple[str, str]:
        """(the input of tap 0 of position 0, the step to that of the next tap), as C texts."""
        if not axis.transposed:
            return str(-axis.padding), f"{axis.dilation}"
        if axis.phases == 1:
            return str(axis.padding), f"{-axis.dilation}"
        met = f"(phase{number} + {axis.padding}) % {axis.stride}"
        return f"(phase{number} + {axis.padding} - {met}) / {axis.stride}", "-1"

    def _windows(self) -> None:
        """Declares where the windows of the rows that a thread loads begin, and which of their taps are inside."""
        k, w = self.k, self.window
        k.line("const int first = threadIdx.x / 8;")
        k.line(f"{self.kind} origin[{LOADS}];")
        for number in range(len(w.axes)) if self.by_ranges else ():
            k.line(f"int begin{number}[{LOADS}], taps{number}[{LOADS}];")
        if not self.by_ranges:
            k.line(f"{self.mask} inside[{LOADS}];")
        k.line("#pragma unroll")
        k.open(f"for (int l = 0; l < {LOADS}; ++l)")
        row = "row0 + first + l * 32"
        k.line(f"const {self.kind} position = {row} < {self.count} ? {row} : {self.count} - 1;")
        image, *steps = unflatten([w.batch, *w.phase_positions], ix(Var("position", w.positions)))
        for number, (axis, step) in enumerate(zip(w.axes, steps, strict=True)):
            scaled = step if axis.transposed else step * axis.stride
            k.line(f"const {self.kind} place{number} = {to_c(scaled)} + {self._first(number, axis)[0]};")
        lead = image * w.groups + ix(Var("group", ix(w.groups))) if w.groups > 1 else image
        start = flatten([a.size for a in w.axes], [ix(Var(f"place{n}")) for n in range(len(w.axes))])
        k.line(f"origin[l] = ({to_c(lead * self.x.area + start)}) * {self.chunks};")
        if self.by_ranges:
            self._find_ranges()
        elif self.by_axes:
            k.line("inside[l] = 0;")
            self._mark_axes()
        else:
            k.line("inside[l] = 0;")
            k.line("#pragma unroll 1")
            k.open(f"for (int tap = 0; tap < {self.taps}; ++tap)")
            self._inputs("place{}")
            k.line(f"if ({self._is_inside()}) inside[l] |= ({self.mask})1 << tap;")
            k.close()
        k.close()

    def _mark_axes(self) -> None:
        """Emits the bits of the places along each axis that are inside the image, those of the first axis lowest."""
        k, first = self.k, 0
        for number, axis in enumerate(self.window.axes):
            count, step = taps_of(axis), self._first(number, axis)[1]
            k.line("#pragma unroll 1")
            k.open(f"for (int tap = 0; tap < {count}; ++tap)")
            k.line(f"const {self.kind} input{number} = place{number} + tap * {step};")
            bit = to_c(ix(Var("tap")) + first)
            k.line(f"if ({self._is_along(number, axis)}) inside[l] |= ({self.mask})1 << ({bit});")
            k.close()
            first += count

    def _find_ranges(self) -> None:
        """Emits the first tap inside the image and how many are, along each axis: taps inside are neighbours."""
        k = self.k
        for number, axis in enumerate(self.window.axes):
            k.line(f"begin{number}[l] = taps{number}[l] = 0;")
            k.line("#pragma unroll 1")
            k.open(f"for (int tap = 0; tap < {taps_of(axis)}; ++tap)")
            k.line(f"const {self.kind} input{number} = place{number} + tap * {self._first(number, axis)[1]};")
            k.line(f"if (!({self._is_along(number, axis)})) continue;")
            k.line(f"if (taps{number}[l]++ == 0) begin{number}[l] = tap;")
            k.close()

    def _is_in_ranges(self) -> str:
        """Whether `tap` is inside the image along each axis, as C text."""
        places = unflatten([ix(taps_of(a)) for a in self.window.axes], ix(Var("tap")))
        tests = (f"(unsigned)({to_c(at)} - begin{n}[l]) < (unsigned)taps{n}[l]" for n, at in enumerate(places))
        return " && ".join(tests)

    def _needed_bits(self) -> str:
        """The bits that `tap` needs in a mask by axes, as C text."""
        bits, first = [], 0
        counts = [taps_of(a) for a in self.window.axes]
        for count, place in zip(counts, unflatten(list(map(ix, counts)), ix(Var("tap"))), strict=True):
            bits.append(f"({self.mask})1 << ({to_c(place + first)})")
            first += count
        return " | ".join(bits)

    def _inputs(self, start: str) -> None:
        """Declares input0, input1, ...: what `tap` reads of a window. start: the texts of its beginning."""
        w = self.window
        taps = [ix(taps_of(a)) for a in w.axes]
        for number, (axis, place) in enumerate(zip(w.axes, unflatten(taps, ix(Var("tap"))), strict=True)):
            step = self._first(number, axis)[1]
            self.k.line(f"const {self.kind} input{number} = {start.format(number)} + ({to_c(place)}) * {step};")

    def _is_inside(self) -> str:
        """Whether the inputs are inside the image, as C text."""
        return " && ".join(self._is_along(n, a) for n, a in enumerate(self.window.axes))

    def _is_along(self, number: int, axis: ConvAxis) -> str:
        """Whether an input is inside the image along one axis, as C text."""
        return f"(unsigned {self.kind})input{number} < (unsigned {self.kind}){self.k.size(axis.size)}"

    def _image_loader(self) -> None:
        """Emits the function that finds the inputs of a window's tap; null outside the image."""
        k, w = self.k, self.window
        k.open("[&](int l, int, int chunk) -> const __half*")
        tap, rest = ("chunk", "") if self.chunks == 1 else (f"chunk / {self.chunks}", f" + chunk % {self.chunks}")
        k.line(f"const int tap = {tap};")
        self._inputs("0")
        away = flatten([a.size for a in w.axes], [ix(Var(f"input{n}")) for n in range(len(w.axes))])
        k.line(f"const {self.kind} offset = ({to_c(away)}) * {self.chunks}{rest};  // the same for all rows")
        if self.by_ranges:
            k.line(f"if (!({self._is_in_ranges()})) return nullptr;")
        elif self.by_axes:
            k.line(f"const {self.mask} needed = {self._needed_bits()};")
            k.line("if ((inside[l] & needed) != needed) return nullptr;")
        else:
            k.line("if (!(inside[l] >> tap & 1)) return nullptr;")
        k.line(f"return {k.pointer(self.x.parts)} + (origin[l] + offset) * {2 * CHUNK};")
        k.close()
        k.line(",")

    def _weight_loader(self) -> None:
        k, w = self.k, self.window
        k.open("[&](int, int r, int chunk)")
        k.line(f"const {self.kind} at = col0 + r < {w.outputs} ? col0 + r : {w.outputs - 1};")
        total = (w.k.value or 0) // CHUNK
        k.line(f"return {k.pointer(self.weights.parts)} + (({self._line('at')}) * {total} + chunk) * {2 * CHUNK};")
        k.close()
        k.line(",")

    def _line(self, output: str) -> str:
        """The row of the weights of an output, as C text."""
        return output if self.window.groups * self.window.phases == 1 else f"b * {self.window.outputs} + {output}"

    # ------------------------------------------------------------ results

    def _store(self) -> None:
        """Emits the epilogue: a thread takes a row of the tile, lanes neighbouring positions."""
        k, w = self.k, self.window
        k.line("product.template publish_sums<true>(lds);")
        k.line(f"const int r = threadIdx.x % {ROWS};")
        if self.rows:
            k.line(f"const {self.kind} row = row0 + r < {self.count} ? row0 + r : {self.count} - 1;")
        else:
            k.line(f"const {self.kind} row = row0 + r;")
            k.line(f"if (row >= {self.count}) return;")
        place = self._output_place()
        k.line(f"const int exponents = {self.x.exponent(k, 'image')};")
        self.rows.begin(1)
        k.line("#pragma unroll 2")
        k.open(f"for (int j = threadIdx.x / {ROWS}; j < {self.columns}; j += {BLOCK // ROWS})")
        k.line(f"const {self.kind} col = col0 + j;")
        k.line(f"if (col >= {w.outputs}) break;")
        exponent = f"exponents + {k.pointer(self.weights.exponents)}[{self._line('col')}]"
        k.line("const float sum = reinterpret_cast<const float*>(lds)[Tile::template sum_index<true>(r, j)];")
        k.line(f"float value = split_unscaled(sum, {exponent});")
        k.open("if (!split_is_finite(value))")
        self._exact()
        k.close()
        channel = ix(Var("group", ix(w.groups))) * w.outputs if w.groups > 1 else ZERO
        index = [place[0], channel + ix(Var("col", ix(w.outputs))), *place[1:]]
        if not self.rows:
            k.epilogue("value", index)
            k.close()
            return
        self.rows.add("value", index, "col", "0")
        self.rows.end("1")
        k.close()
        index[1] = ix(Var("col0", ix(w.outputs)))
        self.rows.store_halves(ROWS, "r", f"row0 + r < {self.count}", index)

    def _output_place(self) -> list[Ix]:
        """Declares image and position of `row`; returns them as the output's index."""
        k, w = self.k, self.window
        at = ix(Var("row", w.positions))
        if w.phases == 1:
            image, place = divide(at, w.area), modulo(at, w.area)
            k.line(f"const {self.kind} image = {to_c(image)}, position = {to_c(place)};")
            return [_named("image", w.batch), _named("position", w.area)]
        image, *steps = unflatten([w.batch, *w.phase_positions], at)
        k.line(f"const {self.kind} image = {to_c(image)};")
        found = [_named("image", w.batch)]
        for number, (axis, step) in enumerate(zip(w.axes, steps, strict=True)):
            phase = ix(Var(f"phase{number}")) if axis.phases > 1 else ZERO
            k.line(f"const {self.kind} o{number} = {to_c(step * axis.phases + phase)};")
            if axis.phases > 1:
                k.line(f"if (o{number} >= {k.size(axis.out)}) return;")
            found.append(_named(f"o{number}", axis.out))
        return found

    def _exact(self) -> None:
        """Emits the sum over the window in float32: splitting loses infinities."""
        k, w = self.k, self.window
        at = ix(Var("row", w.positions))
        _, *steps = unflatten([w.batch, *w.phase_positions], at)
        for number, (axis, step) in enumerate(zip(w.axes, steps, strict=True)):
            scaled = step if axis.transposed else step * axis.stride
            k.line(f"const {self.kind} place{number} = {to_c(scaled)} + {self._first(number, axis)[0]};")
        k.line("float exact = 0.0f;")
        k.line("#pragma unroll 1")
        k.open(f"for (int tap = 0; tap < {self.taps}; ++tap)")
        self._inputs("place{}")
        k.line(f"if (!({self._is_inside()})) continue;")
        k.line("#pragma unroll 1")
        k.open(f"for (int channel = 0; channel < {w.channels}; ++channel)")
        group = ix(Var("group", ix(w.groups))) * w.channels if w.groups > 1 else ZERO
        flat = flatten([a.size for a in w.axes], [_named(f"input{n}", a.size) for n, a in enumerate(w.axes)])
        k.line(f"const {self.kind} at = tap * {self.chunks * CHUNK} + channel;")
        x = k.load(self.x.x, [_named("image", w.batch), group + _named("channel", ix(w.channels)), flat])
        y = k.load(self.weights.tensor, ["b", "col", "at"])
        k.line(f"exact += ({x}) * ({y});")
        k.close()
        k.close()
        k.line("value = exact;")


def _named(name: str, size: Ix) -> Ix:
    """A declared variable in range; 0 of a dimension of one."""
    return ZERO if size == ONE else ix(Var(name, size))
