"""The images of a float32 convolution in two half parts (gemm/split_parts.py), channels last.

One exponent serves an image, since an output sums over a window of it: numbers keep 22 bits and a sign down to 2^-28 of
the image's largest. A first kernel finds that, a second writes the parts [image and group, position, chunk, 64].
"""

from __future__ import annotations

from hipwright.engine.ir.index import ZERO, Var, divide, ix, modulo, product
from hipwright.engine.ir.index_text import to_python
from hipwright.engine.lower.values import Tensor
from hipwright.engine.templates.base import EmittedKernel
from hipwright.engine.templates.call import CallBody
from hipwright.engine.templates.call_kernel import CallKernel, factor
from hipwright.engine.templates.conv.window import Window
from hipwright.engine.templates.gemm.split_parts import BLOCK, CHUNK, chunks_of, emit_store, emit_transposed
from hipwright.engine.templates.offers import regroup

ELEMENTS_PER_BLOCK, MOST_BLOCKS = 1 << 14, 256
"""Of an image, in the kernel that finds its largest number."""
_NAMES = "lane group line tile b row p p0 at largest scale x v high low parts found_parts part turned image item count"


class SplitImage:
    """The parts of the operand x[batch, groups * channels, position]."""

    def __init__(self, body: CallBody, x: Tensor) -> None:
        self.body, self.x = body, x
        self.window: Window = body.data
        w = self.window
        self.area, self.chunks = x.shape[2], chunks_of(ix(w.channels))
        shape = [w.batch * w.groups, self.area, self.chunks, ix(2 * CHUNK)]
        self.parts = body.temporary("parts_x", shape, "float16")
        self.largest = body.temporary("largest_x", [w.batch], "int32", zero=True)

    def kernels(self) -> list[EmittedKernel]:
        """The two kernels, in order."""
        return [self._largest(), self._split()]

    def exponent(self, k: CallKernel, image: str) -> str:
        """The exponent of an image, as C text."""
        return f"split_exponent(__int_as_float({k.pointer(self.largest)}[{image}]))"

    def _largest(self) -> EmittedKernel:
        k, w = self.body.kernel("largest_x", _NAMES), self.window
        k.use("publish_largest")
        k.written.add(self.largest)
        count = product([ix(w.groups * w.channels), self.area])
        flat = regroup(self.body.c, self.x, [w.batch, count])
        k.line(f"const {k.kind} image = blockIdx.x, count = {k.size(count)};")
        k.line("float largest = 0.0f;")
        k.line("#pragma unroll 4")
        k.open(f"for ({k.kind} p = (blockIdx.y * {BLOCK} + threadIdx.x) * 4; p < count; p += gridDim.y * {4 * BLOCK})")
        k.line("float x[4] = {};")
        k.open("if (p + 4 <= count)")
        k.vector(flat, ["image", "p"], "p", "4", "x")
        k.close()
        k.open("else")
        k.open("for (int v = 0; p + v < count; ++v)")
        k.line(f"const {k.kind} at = p + v;")
        k.line(f"x[v] = {k.load(flat, ['image', 'at'])};")
        k.close()
        k.close()
        k.line("#pragma unroll")
        k.line("for (int v = 0; v < 4; ++v) largest = fmaxf(largest, fabsf(x[v]));")
        k.close()
        k.line(f"publish_largest({k.pointer(self.largest)} + image, largest);")
        blocks = f"min(cdiv({to_python(count)}, {ELEMENTS_PER_BLOCK}), {MOST_BLOCKS})"
        return k.finish(f"({to_python(w.batch)}, {blocks})", str(BLOCK), str(BLOCK), "the largest number of each image")

    def _split(self) -> EmittedKernel:
        k = self.body.kernel("split_x", _NAMES)
        k.use("split_parts", "WideVector")
        k.written.add(self.parts)
        grid = self._lanes_along_positions(k) if k.runs_along(self.x, 2) else self._lanes_along_channels(k)
        return k.finish(grid, str(BLOCK), str(BLOCK), "images in two half parts")

    def _lanes_along_positions(self, k: CallKernel) -> str:
        area, w = k.size(self.area), self.window
        k.line("const int lane = threadIdx.x % 32, group = threadIdx.x / 32;")
        blocks = f"(({area} + 31) / 32)"
        k.line(f"const {k.kind} tile = blockIdx.x % {blocks} * 32, b = blockIdx.x / {blocks};")
        k.line(f"const {k.kind} row = tile + lane < {area} ? tile + lane : {area} - 1;")
        self._scale(k)
        k.open(f"for (int p0 = 0; p0 < {k.size(self.chunks)} * {CHUNK}; p0 += {CHUNK})")
        k.line("const int p = p0 + group * 4;")
        self._load(k, 4)
        emit_transposed(k, self.parts, f"b * {area} + tile", area, k.size(self.chunks))
        k.close()
        return f"cdiv({to_python(self.area)}, 32) * {factor(w.batch * w.groups)}"

    def _lanes_along_channels(self, k: CallKernel) -> str:
        area, w, vectors = k.size(self.area), self.window, 4 * (self.chunks.value or 1)
        lines = product([w.batch * w.groups, self.area])
        k.line(f"const {k.kind} item = blockIdx.x * ({k.kind}){BLOCK} + threadIdx.x, line = item / {vectors};")
        k.line(f"if (line >= {k.size(lines)}) return;")
        k.line(f"const {k.kind} b = line / {area}, row = line % {area};")
        k.line(f"const int p = item % {vectors} * 8;")
        self._scale(k)
        self._load(k, 8)
        emit_store(k, self.parts, "line", str(self.chunks.value))
        return f"cdiv({to_python(lines)} * {vectors}, {BLOCK})"

    def _scale(self, k: CallKernel) -> None:
        """Declares the scale of the image of `b`."""
        groups = self.window.groups
        k.line(f"const float scale = power_of_two({self.exponent(k, f'b / {groups}' if groups > 1 else 'b')});")

    def _load(self, k: CallKernel, width: int) -> None:
        """Declares x[v], channels p + v of position `row` of image and group `b`; zero beyond the last."""
        w = self.window
        k.line(f"float x[{width}];")
        k.line("#pragma unroll")
        k.open(f"for (int v = 0; v < {width}; ++v)")
        k.line("const int at = p + v;")
        k.line("x[v] = 0.0f;")
        k.open(f"if (at < {w.channels})")
        b = ix(Var("b", w.batch * w.groups))
        image, group = (divide(b, ix(w.groups)), modulo(b, ix(w.groups))) if w.groups > 1 else (b, ZERO)
        channel = group * w.channels + ix(Var("at", ix(w.channels)))
        k.line(f"x[v] = {k.load(self.x, [image, channel, 'row'])};")
        k.close()
        k.close()
