"""Split-k: several blocks share the sum along k of a tile, store float partials, and a second kernel sums them.

The second kernel adds in the order of k and computes the epilogue; there are no atomics, so every run gives the same
result. (Split-k and stream-k of matrix products: Osama et al., PPoPP 2023; here the parts are equal.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hipwright.engine.ir.index import Ix, ix, product
from hipwright.engine.ir.index_text import to_python
from hipwright.engine.templates.base import EmittedKernel
from hipwright.engine.templates.call import CallBody
from hipwright.engine.templates.call_kernel import CallKernel
from hipwright.engine.templates.call_operands import Place

SPLITS = (1, 2, 4, 8, 16, 32, 64)
BLOCK = 256


@dataclass(eq=False)
class SplitKPartials:
    """The partials float[split, batch, x, y] of a result; `sum_kernel` is the kernel that adds them up."""

    body: CallBody
    split: int
    shape: Sequence[Ix]  # batch, x, y

    def __post_init__(self) -> None:
        self.buffer = self.body.temporary("partials", [ix(self.split), *self.shape], "float32")

    def address(self, k: CallKernel, x: str, y: str) -> str:
        """The address of this block's partial (`split`, `b`) at x, y, as C text."""
        k.written.add(self.buffer)
        batch, many_x, many_y = (k.size(s) for s in self.shape)
        return f"{k.pointer(self.buffer)} + ((split * {batch} + b) * {many_x} + {x}) * {many_y} + {y}"

    def sum_kernel(self, index: Place) -> EmittedKernel:
        """The kernel in which one thread an element adds the partials in order. index: the output's, of the names b, x
        and y.
        """
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
        return k.finish(grid, str(BLOCK), str(BLOCK), "the blocks' parts are sum_kernel in order")


def locate_block(k: CallKernel, split: int, rows: str, height: str, vectors: str) -> None:
    """Decodes blockIdx.x = (batch, vectors, rows, split), the last fastest: declares `split` (where k is divided),
    `tile`, `first_vector` and `b`.

    rows: their number; height: those of a tile; vectors: their number, of which a block has VECTORS; C texts.
    """
    k.line("unsigned block_index = blockIdx.x;")
    if split > 1:
        k.line(f"const {k.kind} split = block_index % {split};")
        k.line(f"block_index /= {split};")
    k.line(f"const unsigned tiles = ({rows} + {height} - 1) / {height};")
    k.line(f"const {k.kind} tile = block_index % tiles;")
    k.line("block_index /= tiles;")
    chunks = f"(({vectors} + VECTORS - 1) / VECTORS)"
    k.line(f"const {k.kind} first_vector = block_index % {chunks} * VECTORS, b = block_index / {chunks};")
