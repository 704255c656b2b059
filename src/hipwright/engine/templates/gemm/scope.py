"""State shared by the writers of a tiled product: operand sizes, block tile, and the kernel under construction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hipwright.engine.ir.expr import STORAGE
from hipwright.engine.ir.index import Ix
from hipwright.engine.knobs import CDNA4
from hipwright.engine.templates.call import CallBody
from hipwright.engine.templates.call_kernel import CallKernel
from hipwright.engine.templates.gemm.split_k import SplitKPartials
from hipwright.engine.templates.gemm.tiling import DEPTH, LARGE, default_depth, default_tile

MFMA = {
    "float32": ("float", "f32_16x16x4f32", 4),
    "float16": ("HalfFragment", "f32_16x16x16f16", 16),
    "bfloat16": ("BfloatFragment", "f32_16x16x16bf16_1k", 16),
}
"""dtype: (a lane's fragment of an operand, the MFMA instruction, the k of one instruction)."""
FRAGMENTS = {"float16": "HalfFragments", "bfloat16": "BfloatFragments"}
"""dtype: the template of fragments by k, for types of which gfx950 multiplies 32 of k at once."""
NAMES = """TM TN GM GN WM WN AV BV tile_a tile_b tile tiles_m tiles_n row0 col0 b k0 step steps next_a next_b acc
load_buffer load_step load_tiles stage STAGES x y i j l q v e wave lane aligned_a aligned_b frag_row_a
frag_row_b frag_a frag_b row col p vec vec_index r kk has_next T Accumulator HalfFragment BfloatFragment
PAD MFMA_K HalfFragments BfloatFragments matrix_product ty tx buffer at destination split all_steps
split_steps first_step"""
"""Identifiers that the emitted kernel declares."""


@dataclass(eq=False)
class GemmSpec:
    """A product: space is [batch, m, n], k the summed dimension, dtype that of the tiles in LDS."""

    space: list[Ix]
    k: Ix
    dtype: str


def tile_knobs(body: CallBody, start: Sequence[int], options: Sequence[Sequence[int]]) -> tuple[str, str, str]:
    """The knobs GEMM_M, GEMM_N and GEMM_K as C text. start: their defaults; options: what a search may try."""
    texts = ("rows of a block's tile", "columns of a block's tile", "depth of the tiles in LDS")
    names = ("GEMM_M", "GEMM_N", "GEMM_K")
    m, n, k = (body.knob(*each) for each in zip(names, start, options, texts, strict=True))
    return m, n, k


class GemmScope:
    """State of one tiled kernel while it is written, and helpers that emit its text."""

    names = NAMES
    types = ("T", "T")  # the C types of the tiles of A and B
    row_major = False  # whether operands with contiguous k are stored [row][k] on the vector units, too
    two_blocks = True  # whether tensor cores leave a multiprocessor registers for a second block
    multistage = True  # whether tensor cores have a loop over k of their own, which loads asynchronously

    def __init__(self, body: CallBody, split: int = 1) -> None:
        self.spec: GemmSpec = body.data
        self.bm, self.bn, self.bk = self.knobs(body)
        self.split = split
        self.partials = SplitKPartials(body, split, self.spec.space) if split > 1 else None
        self.k: CallKernel = body.kernel("partials" if self.partials else "", self.names)
        self.storage = STORAGE[self.spec.dtype]
        self.tensor_cores = self.tensor_core_condition()
        self.batch, self.m, self.n = (self.k.size(s) for s in self.spec.space)
        self.depth = self.k.size(self.spec.k)
        self.tensors = [t for t in body.operands if t is not None]
        self.mfma_k = ""  # the knob of the k of one instruction, where it is one
        if self.spec.dtype in FRAGMENTS and body.call.choices.get(CDNA4):
            self.mfma_k = body.knob("GEMM_MFMA_K", 32, (16, 32), "k of a matrix instruction of AMD's")

    def declare_mfma_depth(self) -> None:
        """Declares MFMA_K where it is a knob, at most `deepest`."""
        if self.mfma_k:
            self.k.line(f"constexpr int MFMA_K = {self.mfma_k} < {self.deepest} ? {self.mfma_k} : {self.deepest};")

    @property
    def deepest(self) -> str:
        """The most k of one instruction, as C text: the depth of the tiles in LDS."""
        return self.bk

    def knobs(self, body: CallBody) -> tuple[str, str, str]:
        """Rows, columns and depth of the block tile, as C text."""
        batch, m, n = (body.hint(s) for s in self.spec.space)
        rows, columns = default_tile(batch, m, n)
        small, base = max(rows, columns) <= 64, DEPTH[self.spec.dtype]
        tiles, depths = (LARGE[:2], (base, 2 * base)) if small else (LARGE, (base // 2, base))
        return tile_knobs(body, (rows, columns, default_depth(batch, m, n, self.spec.dtype)), (tiles, tiles, depths))

    def tensor_core_condition(self) -> str:
        """The preprocessor condition under which NVIDIA tensor cores are used; "" for never."""
        return ""

    @property
    def dtypes(self) -> tuple[str, str]:
        """The dtypes of the tiles of A and B."""
        return self.spec.dtype, self.spec.dtype

    def matrix_instruction(self) -> tuple[str, str, str]:
        """A lane's fragment of an operand under MFMA, the product of two, and the k of one instruction, as C text."""
        fragment, instruction, depth = MFMA[self.spec.dtype]
        if self.mfma_k:
            return f"{FRAGMENTS[self.spec.dtype]}<MFMA_K>", "matrix_product(frag_a[i], frag_b[j], acc[i][j])", "MFMA_K"
        product = f"__builtin_amdgcn_mfma_{instruction}(frag_a[i], frag_b[j], acc[i][j], 0, 0, 0)"
        return fragment, product, str(depth)

    def declare_types(self) -> None:
        """Declares T, the type of the tiles in LDS."""
        self.k.line(f"using T = {self.storage};")

    def declare_shared(self, a: str, b: str) -> None:
        """Declares the tiles of A and B in LDS."""
        first, second = self.types
        both = [f"{first} {a}, {b}"] if first == second else [f"{first} {a}", f"{second} {b}"]
        for tiles in both:
            self.k.line(f"__shared__ __attribute__((aligned(16))) {tiles};")

    def emit_template(self, text: str, **more: str) -> None:
        """Emits a text template, with tile sizes and the matrix instruction in place of its @MARKS@."""
        fragment, product, depth = self.matrix_instruction()
        known = {
            "BM": self.bm,
            "BN": self.bn,
            "BK": self.bk,
            "TYPE_A": self.types[0],
            "TYPE_B": self.types[1],
            "DEPTH": depth,
            "FRAGMENT": fragment,
            "PRODUCT": product,
            **more,
        }
        for name, value in known.items():
            text = text.replace(f"@{name}@", value)
        self.k.emit.passage(text)

    def open_loops(self, *loops: tuple[str, str]) -> None:
        """Opens unrolled loops, each given as (variable, count)."""
        for name, count in loops:
            self.k.line("#pragma unroll")
            self.k.open(f"for (int {name} = 0; {name} < {count}; ++{name})")

    def close_loops(self, count: int) -> None:
        """Closes the innermost `count` loops."""
        for _ in range(count):
            self.k.close()
