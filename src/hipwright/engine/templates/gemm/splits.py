"""A sum along k that several blocks share: each leaves its part in memory as float, a second kernel adds the parts.

The second kernel adds in the order of k and holds the epilogue; there are no atomics, so the result is the same each
time. (Split-K and stream-K of matrix products: Osama et al., PPoPP 2023; here the parts are equal.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hipwright.engine.ir.index import Ix, ix, product
from hipwright.engine.ir.index_text import to_python
from hipwright.engine.templates.base import EmittedKernel
from hipwright.engine.templates.call import CallBody
from hipwright.engine.templates.call_kernel import CallKernel, Place

SPLITS = (1, 2, 4, 8, 16, 32, 64)
BLOCK = 256


@dataclass(eq=False)
class SplitKPartials:
    """float parts [split, batch, x, y] of a result whose second kernel is `added`."""

    body: CallBody
    split: int
    shape: Sequence[Ix]  # batch, x, y

    def __post_init__(self) -> None:
        self.buffer = self.body.temporary("parts", [ix(self.split), *self.shape], "float32")

    def at(self, k: CallKernel, x: str, y: str) -> str:
        """The address, as C text, of this block's part (`split`, `b`) at x, y."""
        k.written.add(self.buffer)
        batch, many_x, many_y = (k.size(s) for s in self.shape)
        return f"{k.pointer(self.buffer)} + ((split * {batch} + b) * {many_x} + {x}) * {many_y} + {y}"

    def added(self, index: Place) -> EmittedKernel:
        """One thread an element adds its parts in order. index: the output's, of the names b, x and y."""
        k = self.body.kernel("sum", "i x y b total q")
        _, many_x, many_y = (k.size(s) for s in self.shape)
        total = k.size(product(list(self.shape)))
        k.line(f"const {k.kind} i = blockIdx.x * ({k.kind}){BLOCK} + threadIdx.x;")
        k.line(f"if (i >= {total}) return;")
        k.line(f"const {k.kind} y = i % {many_y}, x = i / {many_y} % {many_x}, b = i / {many_y} / {many_x};")
        k.line("float total = 0.0f;")
        k.line("#pragma unroll")
        k.line(f"for (int q = 0; q < {self.split}; ++q) total += {k.pointer(self.buffer)}[q * {total} + i];")
        k.epilogue("total", index)
        grid = f"cdiv({to_python(product(list(self.shape)))}, {BLOCK})"
        return k.finish(grid, str(BLOCK), str(BLOCK), "the blocks' parts are added in order")
