"""Gathered operands of an implicit matrix product: inputs, and the weights of transposed convolutions."""

from __future__ import annotations

from dataclasses import dataclass

from hipwright.engine.ir.index import ZERO, Ix, Var, ix
from hipwright.engine.ir.index_text import to_c
from hipwright.engine.ir.shapes import flatten, unflatten
from hipwright.engine.templates.call_kernel import CallKernel
from hipwright.engine.templates.conv.window import Window
from hipwright.engine.templates.gemm.operand import ProductOperand
from hipwright.engine.templates.gemm.scope import GemmScope


def channel_index(conv: Window, each: int, name: str) -> Ix:
    """Channel `name` of this block's group, which has `each` channels."""
    group = ix(Var("b", ix(conv.groups))) if conv.groups > 1 else ZERO
    return group * each + ix(Var(name, ix(each)))


@dataclass(eq=False)
class _CountingOperand(ProductOperand):
    """An operand whose threads count k up by taps and channels: tap_a and channel_a, or tap_b and channel_b.

    Every load is legal: what is out of range is loaded at index 0 and replaced when it is stored. So there is no branch
    between the loads of a tile, and all of them are under way at once.
    """

    def declare_counters(self, k: CallKernel, g: GemmScope, taken: str) -> None:
        """Declares the first tap and channel of this thread; `taken`: the k of a tile that it counts while it loads."""
        n = self.name
        k.line(f"unsigned valid_{n} = 0;")
        k.line(f"int tap_{n} = k_{n} % tap_count, channel_{n} = k_{n} / tap_count;")
        rest = f"({g.bk} - {taken})"
        k.line(f"const int tap_step_{n} = {rest} % tap_count, channel_step_{n} = {rest} / tap_count;")

    def advance_counters(self, k: CallKernel) -> None:
        """Advances to this thread's k of the next tile."""
        n = self.name
        k.line(f"tap_{n} += tap_step_{n};")
        k.line(f"channel_{n} += channel_step_{n};")
        k.open(f"if (tap_{n} >= tap_count)")
        k.line(f"tap_{n} -= tap_count;")
        k.line(f"++channel_{n};")
        k.close()

    def load_or_mark(self, k: CallKernel, g: GemmScope, index: list[Ix | str | int]) -> None:
        """Loads element v at a legal index, and marks whether it is valid (`in_range`)."""
        n = self.name
        k.line(f"valid_{n} |= (unsigned)in_range << v;")
        k.line(f"next_{n}[v] = {k.load(self.tensor, index, g.spec.dtype)};")

    def store_masked(self, k: CallKernel, g: GemmScope, count: str, row: str, depth: str) -> None:
        """Stores the registers to the LDS buffer that is not being read, zero where they are not valid."""
        n = self.name
        k.line("#pragma unroll")
        k.open(f"for (int v = 0; v < {count}; ++v)")
        k.line(f"const T value = valid_{n} >> v & 1 ? next_{n}[v] : T(0.0f);")
        if g.tensor_cores:
            k.emit.directive(f"#if {g.tensor_cores}")
            k.line(f"tile_{n}[(step + 1) & 1][{self.swizzled_index(row, depth)}] = value;")
            k.emit.directive("#elif GEMM_MFMA")
        else:
            k.emit.directive("#if GEMM_MFMA")
        k.line(f"tile_{n}[(step + 1) & 1][{row}][{depth}] = value;")
        k.emit.directive("#else")
        k.line(f"tile_{n}[(step + 1) & 1][{depth}][{row}] = value;")
        k.emit.directive("#endif")
        k.close()


@dataclass(eq=False)
class GatheredInput(_CountingOperand):
    """The inputs: a thread gathers K_PER_THREAD neighbouring k for one position; its neighbours take the next
    positions.
    """

    def declare(self, k: CallKernel, g: GemmScope) -> None:
        """Declares where the window of this thread's position begins."""
        conv: Window = g.spec  # type: ignore[assignment]
        k.line(f"constexpr int K_PER_THREAD = {self.size} * {g.bk} / 256;  // k that a thread gathers for one position")
        k.line("T next_b[K_PER_THREAD];")
        k.line(f"const int column_b = threadIdx.x % {self.size}, k_b = threadIdx.x / {self.size} * K_PER_THREAD;")
        k.line("const bool column_in_range = col0 + column_b < columns;")
        k.line(f"const {k.kind} position = column_in_range ? col0 + column_b : 0;")
        image, *steps = unflatten([conv.batch, *conv.phase_positions], ix(Var("position", conv.positions)))
        k.line(f"const {k.kind} image = {to_c(image)};")
        for number, (axis, step) in enumerate(zip(conv.axes, steps, strict=True)):
            first = step if axis.transposed else step * axis.stride - axis.padding
            k.line(f"const {k.kind} start{number} = {to_c(first)};")
        if conv.flattened:
            starts = [ix(Var(f"start{n}")) for n in range(len(conv.axes))]
            k.line(f"const {k.kind} window_start = {to_c(flatten([a.size for a in conv.axes], starts))};")
        self.declare_counters(k, g, "K_PER_THREAD")

    def read(self, k: CallKernel, g: GemmScope) -> None:
        """Loads the next tile to registers."""
        conv: Window = g.spec  # type: ignore[assignment]
        k.line("valid_b = 0;")
        k.line("#pragma unroll")
        k.open("for (int v = 0; v < K_PER_THREAD; ++v)")
        k.line("const WindowTap tap = tap_table[tap_b];")
        for n in conv.coordinates:
            k.line(f"const {k.kind} input{n} = start{n} + tap.d{n};")
        unsigned = f"unsigned {k.kind}"
        within = [f"(({unsigned})input{n} < ({unsigned}){k.size(conv.axes[n].size)})" for n in conv.padded_axes]
        k.line(f"const bool in_range = {' & '.join(['column_in_range', f'(channel_b < {conv.channels})', *within])};")
        places = ["input_index"] if conv.flattened else [f"i{n}" for n in range(len(conv.axes))]
        sources = ["window_start + tap.at"] if conv.flattened else [f"input{n}" for n in range(len(conv.axes))]
        for place, source in zip(["channel", *places], ["channel_b", *sources], strict=True):
            k.line(f"const {k.kind} {place} = in_range ? {source} : 0;")
        self.load_or_mark(k, g, ["image", channel_index(conv, conv.channels, "channel"), *places])
        k.open("if (++tap_b == tap_count)")
        k.line("tap_b = 0;")
        k.line("++channel_b;")
        k.close()
        k.close()
        self.advance_counters(k)

    def store_to_lds(self, k: CallKernel, g: GemmScope) -> None:
        """Stores the registers to LDS; vectorised for tensor cores, which read rows of half types."""
        if g.tensor_cores:
            k.use("WideVector")
            k.use("store_lds_vector")
            k.emit.directive(f"#if {g.tensor_cores}")
            k.line("constexpr int VECTOR = K_PER_THREAD < 8 ? K_PER_THREAD : 8;")
            k.line("#pragma unroll")
            k.line("for (int v = 0; v < K_PER_THREAD; ++v) next_b[v] = valid_b >> v & 1 ? next_b[v] : T(0.0f);")
            k.line("#pragma unroll")
            k.open("for (int v = 0; v < K_PER_THREAD; v += VECTOR)")
            to = f"&tile_b[(step + 1) & 1][{self.swizzled_index('column_b', 'k_b + v')}]"
            k.line(f"store_lds_vector({to}, reinterpret_cast<const T (&)[VECTOR]>(next_b[v]));")
            k.close()
            k.emit.directive("#else")
        self.store_masked(k, g, "K_PER_THREAD", "column_b", "k_b + v")
        if g.tensor_cores:
            k.emit.directive("#endif")


@dataclass(eq=False)
class TransposedWeights(_CountingOperand):
    """Weights of a transposed convolution, [inputs, outputs, taps]: neighbouring threads take neighbouring k."""

    def declare(self, k: CallKernel, g: GemmScope) -> None:
        """Declares the k and rows of this thread."""
        k.line(f"constexpr int ROWS_PER_THREAD = {self.size} * {g.bk} / 256;  // rows that a thread reads for one k")
        k.line("T next_a[ROWS_PER_THREAD];")
        k.line(f"const int row_a = threadIdx.x / {g.bk}, k_a = threadIdx.x % {g.bk};")
        self.declare_counters(k, g, "0")

    def read(self, k: CallKernel, g: GemmScope) -> None:
        """Loads the next tile to registers."""
        conv: Window = g.spec  # type: ignore[assignment]
        k.line("valid_a = 0;")
        k.line(f"const {k.kind} weight_tap = tap_table[tap_a].weight;")
        k.line("#pragma unroll")
        k.open("for (int v = 0; v < ROWS_PER_THREAD; ++v)")
        k.line(f"const {k.kind} at = row0 + row_a + v * (256 / {g.bk});")
        k.line(f"const bool in_range = (at < {self.count}) & (channel_a < {conv.channels});")
        k.line(f"const {k.kind} row = in_range ? at : 0, channel = in_range ? channel_a : 0;")
        self.load_or_mark(k, g, [channel_index(conv, conv.channels, "channel"), "row", "weight_tap"])
        k.close()
        self.advance_counters(k)

    def store_to_lds(self, k: CallKernel, g: GemmScope) -> None:
        """Stores the registers to LDS."""
        self.store_masked(k, g, "ROWS_PER_THREAD", f"row_a + v * (256 / {g.bk})", "k_a")
