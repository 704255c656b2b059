"""The kernel of implicit_gemm.py: the tiled product of gemm/tiled.py with gathered operands.

Rows of a tile are output channels, columns are positions, k is a (channel, tap) pair: images and outputs are contiguous
along positions, so neighbouring threads take neighbouring columns. A thread gathers for one position, which it decodes
once; it counts taps and channels up, so that the loop over k has no division. What a tap adds to a position is a table
in LDS, written when the block starts.
"""

from __future__ import annotations

from math import gcd

from hipwright.engine.ir.index import ZERO, Ix, Var, divide, ix, modulo
from hipwright.engine.ir.index_text import to_c, to_python
from hipwright.engine.ir.shapes import flatten, unflatten
from hipwright.engine.lower.conv import ConvAxis
from hipwright.engine.templates.base import EmittedKernel
from hipwright.engine.templates.call import CallBody
from hipwright.engine.templates.conv.implicit_gemm_operands import GatheredInput, TransposedWeights, channel_index
from hipwright.engine.templates.conv.window import Window
from hipwright.engine.templates.gemm.operand import ProductOperand
from hipwright.engine.templates.gemm.scope import NAMES
from hipwright.engine.templates.gemm.tiled import Gemm

IMPLICIT_NAMES = """columns depth tap_total tap_count WindowTap tap_table tap i d0 d1 d2 i0 i1 i2 k0 k1 k2 o0 o1 o2
phase0 phase1 phase2 first0 first1 first2 count0 count1 count2 start0 start1 start2 position image position_in_image
column_in_range window_start input_index at weight weight_tap K_PER_THREAD ROWS_PER_THREAD VECTOR row_a k_a column_b k_b
tap_a tap_b channel channel_a channel_b tap_step_a tap_step_b channel_step_a channel_step_b same_image in_range value
valid_a valid_b input0 input1 input2"""


def write(body: CallBody) -> list[EmittedKernel]:
    """One kernel."""
    return [ImplicitGemm(body).kernel()]


class ImplicitGemm(Gemm):
    """A convolution as a product; b is the group of channels."""

    names = f"{NAMES} {IMPLICIT_NAMES}"
    multistage = False

    def __init__(self, body: CallBody) -> None:
        super().__init__(body)
        self.conv: Window = body.data
        self.index_type = self.k.kind
        self.columns, self.n = self.n, "columns"
        if self.conv.phases > 1:
            self.depth = "depth"

    def tile_operands(self) -> list[ProductOperand]:
        """Weights are contiguous along k, except those of a transposed convolution, of which a phase has only some."""
        weights, x = self.tensors
        rows = (TransposedWeights if self.conv.transposed else ProductOperand)("a", weights, "row", self.m, self.bm)
        return [rows, GatheredInput("b", x, "col", self.n, self.bn)]

    def grid(self) -> str:
        """Tiles of every group and phase."""
        total = self.conv.groups * self.conv.phases
        return f"cdiv({self.conv.outputs}, {self.bm}) * cdiv({to_python(self.conv.positions)}, {self.bn}) * {total}"

    # ------------------------------------------------------------ set up

    def locate_tile(self) -> None:
        """Decodes the tile, phases and channels fastest, since blocks that differ in these read the same inputs; writes
        the tap table.
        """
        k = self.k
        k.line("unsigned tile = blockIdx.x;")
        k.line(f"const {self.index_type} columns = {self.columns};")
        for number, axis in enumerate(self.conv.axes):
            if axis.phases > 1:
                k.line(f"const int phase{number} = tile % {axis.phases};")
                k.line(f"tile /= {axis.phases};")
        k.line(f"const unsigned tiles_m = ({self.m} + {self.bm} - 1) / {self.bm};")
        k.line(f"const unsigned tiles_n = (columns + {self.bn} - 1) / {self.bn};")
        k.line(f"const {self.index_type} row0 = tile % tiles_m * {self.bm};")
        k.line("tile /= tiles_m;")
        k.line(f"const {self.index_type} col0 = tile % tiles_n * {self.bn}, b = tile / tiles_n;")
        counts = self._count_taps()
        fields = self._tap_fields()
        alignment = {"int": {2: "alignas(8) ", 3: "alignas(16) ", 4: "alignas(16) "}}.get(self.index_type, {}).get(
            len(fields), ""
        )
        k.line("// What a tap adds to the start of the window.")
        k.line(f"struct {alignment}WindowTap {{ {self.index_type} {', '.join(fields)}; }};")
        k.line(f"__shared__ WindowTap tap_table[{self.conv.taps}];")
        k.open("for (int i = threadIdx.x; i < tap_total; i += 256)")
        self._emit_tap(counts)
        k.line(f"tap_table[i] = {{{', '.join(fields.values())}}};")
        k.close()
        k.line("__syncthreads();")

    def _count_taps(self) -> list[str]:
        """Taps of this block along each axis: all of them, or those of its phase."""
        k, counts = self.k, []
        for number, a in enumerate(self.conv.axes):
            if a.phases == 1:
                counts.append(str(a.kernel))
                continue
            name, jump = f"first{number}", _tap_stride(a)
            met = f"(phase{number} + {a.padding} - {name} * {a.dilation}) % {a.stride} == 0"
            k.line(f"int {name} = 0;  // the first tap of this phase")
            k.line(f"while ({name} < {a.kernel} && !({met})) ++{name};")
            k.line(f"const int count{number} = ({a.kernel} - {name} + {jump} - 1) / {jump};")
            counts.append(f"count{number}")
        if self.conv.phases > 1:
            k.line(f"const int tap_total = {' * '.join(counts)}, depth = tap_total * {self.conv.channels};")
            k.line("const int tap_count = tap_total > 0 ? tap_total : 1;")
        else:
            k.line(f"constexpr int tap_total = {self.conv.taps}, tap_count = tap_total;")
        return counts

    def _tap_fields(self) -> dict[str, str]:
        """The fields of a WindowTap, and the C text of each in the loop that writes the table."""
        conv = self.conv
        fields = {f"d{n}": f"i{n}" for n in conv.coordinates}
        if conv.flattened:
            fields["at"] = to_c(flatten([a.size for a in conv.axes], [ix(Var(f"i{n}")) for n in range(len(conv.axes))]))
        if conv.transposed:
            fields["weight"] = to_c(
                flatten([ix(a.kernel) for a in conv.axes], [ix(Var(f"k{n}")) for n in range(len(conv.axes))])
            )
        return fields

    def _emit_tap(self, counts: list[str]) -> None:
        """Declares k0, k1, k2: the place of tap i in the window; and i0, i1, i2: its input relative to the start of the
        window.
        """
        k, rest = self.k, "i"
        for number in reversed(range(len(counts))):
            a, count = self.conv.axes[number], counts[number]
            step = "0" if count == "1" else f"{rest} % {count}" if number else rest
            rest = rest if count == "1" else f"{rest} / {count}"
            tap = f"first{number} + {step} * {_tap_stride(a)}" if a.phases > 1 else step
            k.line(f"const int k{number} = {tap};")
            phase = f"phase{number} + " if a.phases > 1 else ""
            away = to_c(ix(Var(f"k{number}")) * (-a.dilation if a.transposed else a.dilation))
            away = f"({phase}{a.padding} + {away}) / {a.stride}" if a.transposed else away
            k.line(f"const {self.index_type} i{number} = {away};")

    # ------------------------------------------------------------ results

    def store(self) -> None:
        """Passes the sums to the epilogue; each column's position is decoded once."""
        k = self.k
        k.emit.directive("#if GEMM_MFMA")
        self.open_loops(("j", "WN"))
        k.line(f"const {self.index_type} col = col0 + (wave % 2 * WN + j) * 16 + lane % 16;")
        place = self._declare_position("col")
        self.open_loops(("i", "WM"), ("e", "4"))
        k.line(f"const {self.index_type} row = row0 + (wave / 2 * WM + i) * 16 + lane / 16 * 4 + e;")
        k.line(f"if (row >= {self.m}) continue;")
        k.epilogue("acc[i][j][e]", self._output_index(place))
        self.close_loops(3)
        k.emit.directive("#else")
        self._store_elements() if self.conv.phases > 1 else self._store_vectors()
        k.emit.directive("#endif")

    def _store_vectors(self) -> None:
        """Vectorised where neighbouring positions belong to one image."""
        k, size = self.k, self.k.size(self.conv.area)
        self.open_loops(("j", "TN / GN"))
        self.declare_column("j")
        place = self._declare_position("col")
        k.line(f"const bool same_image = position_in_image + GN <= {size};")
        self._open_row_loop()
        k.open("if (same_image)")
        k.epilogue_vector("acc[i][j * GN + v]", self._output_index(place), "position_in_image", "GN")
        k.close()
        k.open("else")
        self.open_loops(("e", "GN"))
        k.line(f"const {self.index_type} at = col + e;")
        k.epilogue("acc[i][j * GN + e]", self._output_index(self._declare_position("at", names=False)))
        self.close_loops(4)

    def _store_elements(self) -> None:
        """Element by element: neighbours within a phase are not contiguous in memory."""
        k = self.k
        self.open_loops(("j", "TN"))
        self.declare_column("(j / GN)" if self.tensor_cores else "j / GN", "j % GN")
        place = self._declare_position("col")
        self._open_row_loop()
        k.epilogue("acc[i][j]", self._output_index(place))
        self.close_loops(2)

    def _open_row_loop(self) -> None:
        self.open_loops(("i", "TM"))
        self.declare_row()
        self.k.line(f"if (row >= {self.m}) continue;")

    def _declare_position(self, col: str, *, names: bool = True) -> list[Ix]:
        """Skips columns out of range; returns the image and position of a column. names: declare variables for them."""
        k, conv = self.k, self.conv
        k.line(f"if ({col} >= columns) continue;")
        at = ix(Var(col, conv.positions))
        if conv.phases == 1:
            image, place = divide(at, conv.area), modulo(at, conv.area)
            if not names:
                return [image, place]
            k.line(f"const {self.index_type} image = {to_c(image)}, position_in_image = {to_c(place)};")
            return [ix(Var("image", conv.batch)), ix(Var("position_in_image", conv.area))]
        image, *steps = unflatten([conv.batch, *conv.phase_positions], at)
        found = [image]
        for number, (axis, step) in enumerate(zip(conv.axes, steps, strict=True)):
            phase = ix(Var(f"phase{number}")) if axis.phases > 1 else ZERO
            k.line(f"const {self.index_type} o{number} = {to_c(step * axis.phases + phase)};")
            if axis.phases > 1:
                k.line(f"if (o{number} >= {k.size(axis.out)}) continue;")
            found.append(ix(Var(f"o{number}", axis.out)))
        return found

    def _output_index(self, place: list[Ix]) -> list[Ix | str | int]:
        channel = channel_index(self.conv, self.conv.outputs, "row")
        return [place[0], channel, *place[1:]]


def _tap_stride(axis: ConvAxis) -> int:
    """The distance between two taps of a phase."""
    return axis.stride // gcd(axis.stride, axis.dilation)
