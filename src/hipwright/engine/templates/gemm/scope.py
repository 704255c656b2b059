"""What all writers of a tiled product share: the operands' sizes, the tile, and the kernel that is written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hipwright.engine.ir.expr import STORAGE
from hipwright.engine.ir.index import Ix
from hipwright.engine.templates.call import CallBody
from hipwright.engine.templates.call_kernel import CallKernel
from hipwright.engine.templates.gemm.splits import SplitKPartials
from hipwright.engine.templates.gemm.tiling import DEPTH, LARGE, depth, tile

MFMA = {
    "float32": ("float", "f32_16x16x4f32", 4),
    "float16": ("HalfFragment", "f32_16x16x16f16", 16),
    "bfloat16": ("BfloatFragment", "f32_16x16x16bf16_1k", 16),
}
"""dtype: (one lane's part of an operand, the instruction, its k)."""
CDNA = "defined(__gfx90a__) || defined(__gfx942__) || defined(__gfx950__)"
NAMES = """TM TN GM GN PM PN HM HN WM WN AV BV ROWS_A ROWS_B tile_a tile_b t tiles_m tiles_n row0 col0 b k0 step steps
next_a next_b acc into number ahead to STAGES ask x y i j l q v e wave lane fast_a fast_b fa0 fb0 row col p
slot r kk more T Accumulator HalfFragment BfloatFragment PAD fa fb ty tx part at split all share first pack"""


UNIT_TEXT = f"""#if {CDNA}
#define GEMM_MFMA 1
using Accumulator = float __attribute__((ext_vector_type(4)));
using HalfFragment = _Float16 __attribute__((ext_vector_type(4)));
using BfloatFragment = short __attribute__((ext_vector_type(4)));
#else
#define GEMM_MFMA 0
#endif
"""


@dataclass(eq=False)
class GemmSpec:
    """[batch, m, n], the depth, and the dtype in LDS."""

    space: list[Ix]
    k: Ix
    dtype: str


def tile_knobs(body: CallBody, start: Sequence[int], options: Sequence[Sequence[int]]) -> tuple[str, str, str]:
    """GEMM_M, GEMM_N and GEMM_K."""
    texts = ("rows of a block's tile", "columns of a block's tile", "depth of the tiles in LDS")
    names = ("GEMM_M", "GEMM_N", "GEMM_K")
    m, n, k = (body.knob(*each) for each in zip(names, start, options, texts, strict=True))
    return m, n, k


class GemmScope:
    """The state of one kernel while it is written, and how its text is put together."""

    names = NAMES
    row_major = False  # are operands that run along k kept row-major on the vector units too?
    staged = True  # do tensor cores have their own loop over k? Only where sides are as they lie in memory

    def __init__(self, body: CallBody, split: int = 1) -> None:
        self.spec: GemmSpec = body.data
        self.bm, self.bn, self.bk = self.knobs(body)
        self.split = split
        self.parts = SplitKPartials(body, split, self.spec.space) if split > 1 else None
        self.k: CallKernel = body.kernel("parts" if self.parts else "", self.names)
        self.storage = STORAGE[self.spec.dtype]
        self.tensor = self.tensors()
        self.batch, self.m, self.n = (self.k.size(s) for s in self.spec.space)
        self.depth = self.k.size(self.spec.k)
        self.operands = [t for t in body.operands if t is not None]

    def knobs(self, body: CallBody) -> tuple[str, str, str]:
        """Rows, columns and depth of a tile."""
        batch, m, n = (body.hint(s) for s in self.spec.space)
        rows, columns = tile(batch, m, n)
        small, base = max(rows, columns) <= 64, DEPTH[self.spec.dtype]
        tiles, depths = (LARGE[:2], (base, 2 * base)) if small else (LARGE, (base // 2, base))
        return tile_knobs(body, (rows, columns, depth(batch, m, n, self.spec.dtype)), (tiles, tiles, depths))

    def tensors(self) -> str:
        """Where NVIDIA's tensor cores take over, as the preprocessor reads it; or ""."""
        return ""

    def fill(self, text: str, **more: str) -> None:
        """Write a text with the tile's sizes and the matrix instruction in their places."""
        fragment, instruction, depth = MFMA[self.spec.dtype]
        known = {
            "BM": self.bm,
            "BN": self.bn,
            "BK": self.bk,
            "DEPTH": str(depth),
            "FRAGMENT": fragment,
            "INSTRUCTION": instruction,
            **more,
        }
        for name, value in known.items():
            text = text.replace(f"@{name}@", value)
        self.k.emit.passage(text)

    def loops(self, *loops: tuple[str, str]) -> None:
        """Open unrolled loops: (variable, count)."""
        for name, count in loops:
            self.k.line("#pragma unroll")
            self.k.open(f"for (int {name} = 0; {name} < {count}; ++{name})")

    def ends(self, count: int) -> None:
        """Close loops."""
        for _ in range(count):
            self.k.close()
