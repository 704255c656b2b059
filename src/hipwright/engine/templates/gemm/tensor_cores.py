"""NVIDIA tensor cores for tiled products: the tiles in LDS, the fragments of a lane, and the multiplication.

`mma.sync.m16n8k16` multiplies half types into float sums; `ldmatrix` loads a warp's fragments from LDS (PTX ISA,
"Matrix Fragments for mma.m16n8k16"), transposed where k is not the contiguous dimension of the operand. A tile is 32
deep and not padded: its vectors of 16 bytes are swizzled, so that the eight rows of an `ldmatrix` lie on different
banks. Operands that are read unchanged are copied to LDS asynchronously (`cp.async`), two or three steps ahead (a
multistage pipeline). At the end neighbouring lanes exchange sums, so that each stores four neighbouring columns.
Without tensor cores the same is computed with shuffles and plain reads; so tests run this path on a processor.

Codes of 8-bit floats (float8_product.py) lie in the same tiles, two where a half type has one: `ldmatrix` moves pairs,
and `mma.sync.m16n8k32` has the fragments of `m16n8k16` with pairs in them. Both operands must have contiguous k.
"""

from __future__ import annotations

from hipwright.engine.lower.values import Tensor
from hipwright.engine.templates.call_kernel import CallKernel
from hipwright.engine.templates.gemm.operand import ProductOperand
from hipwright.engine.templates.gemm.scope import GemmScope

MMA = {"float16": "mma_m16n8k16_half", "bfloat16": "mma_m16n8k16_bfloat"}
"""dtype: the device function that multiplies."""
OCP = ("float8_e4m3fn", "float8_e5m2")
"""The 8-bit floats that tensor cores multiply: from compute capability 8.9, before it as half numbers."""


_MMA_STEP = """
#pragma unroll
for (int q = 0; q < 32; q += 16) {
    unsigned frag_a[WM][4], frag_b[WN / 2][4];
    #pragma unroll
    for (int i = 0; i < WM; ++i) ldmatrix_x4<@TRANSPOSED_A@>(frag_a[i], tile_a[buffer], @AT_A@, lane);
    #pragma unroll
    for (int j = 0; j < WN / 2; ++j) ldmatrix_x4<@TRANSPOSED_B@>(frag_b[j], tile_b[buffer], @AT_B@, lane);
    #pragma unroll
    for (int i = 0; i < WM; ++i) {
        #pragma unroll
        for (int j = 0; j < WN; ++j)
            @MMA@(acc[2 * i][2 * j], acc[2 * i][2 * j + 1], acc[2 * i + 1][2 * j], acc[2 * i + 1][2 * j + 1],
                frag_a[i], frag_b[j / 2][j % 2 * 2], frag_b[j / 2][j % 2 * 2 + 1], lane);
    }
}
"""
_FLOAT8_STEP = """
unsigned frag_b[2][WN / 2][4];
#pragma unroll
for (int q = 0; q < 2; ++q) {
    #pragma unroll
    for (int j = 0; j < WN / 2; ++j)
        ldmatrix_x4<false>(frag_b[q][j], reinterpret_cast<const unsigned short*>(tile_b[buffer]), @AT_B@, lane);
}
#pragma unroll
for (int i = 0; i < WM; ++i) {
    unsigned frag_a[2][4];
    #pragma unroll
    for (int q = 0; q < 2; ++q)
        ldmatrix_x4<false>(frag_a[q], reinterpret_cast<const unsigned short*>(tile_a[buffer]), @AT_A@, lane);
    #pragma unroll
    for (int j = 0; j < WN; ++j) {
        float part[4] = {};  // tensor cores add 8-bit products roughly, so that sums of 64 are added as floats
        #pragma unroll
        for (int q = 0; q < 2; ++q)
            mma_m16n8k32_float8<FORM_A, FORM_B>(part, frag_a[q], frag_b[q][j / 2][j % 2 * 2],
                frag_b[q][j / 2][j % 2 * 2 + 1], lane);
        acc[2 * i][2 * j] += part[0], acc[2 * i][2 * j + 1] += part[1];
        acc[2 * i + 1][2 * j] += part[2], acc[2 * i + 1][2 * j + 1] += part[3];
    }
}
"""


def condition(g: GemmScope) -> str:
    """The preprocessor condition for tensor cores: tiles that divide into 2 x 4 warps of half types; "" for never."""
    return f"GEMM_MMA && {g.bm} >= 64 && {g.bn} >= 64 && {g.bk} == 32" if g.spec.dtype in MMA else ""


def float8_condition(g: GemmScope, operands: list[Tensor]) -> str:
    """The same for codes: two OCP forms, of which both operands have contiguous k; "" for never."""
    ocp = all(dtype in OCP for dtype in g.dtypes) and all(g.k.runs_along(t, 2) for t in operands)
    return f"GEMM_MMA && {g.bm} >= 64 && {g.bn} >= 64 && {g.bk} == 64" if ocp else ""


def declare_tiles(k: CallKernel, g: GemmScope, *, multistage: bool) -> None:
    """Declares the tiles in LDS, 48 KiB at most, and the sums in registers. multistage: buffers for
    `multistage_loop`.
    """
    m, n = g.bm, g.bn
    k.line(f"constexpr int WM = {m} / 32, WN = {n} / 32;  // 16 x 8 tiles of each of 2 x 4 warps")
    k.line(f"constexpr int TM = {m} / 16, TN = {n} / 16, GN = 4;")
    stages = f"{m} + {n} > 192 ? 3 : 4" if multistage else "2"
    k.line(f"constexpr int STAGES = {stages};")
    line = 64 if g.spec.dtype in OCP else 32
    g.declare_shared(f"tile_a[STAGES][{m} * {line}]", f"tile_b[STAGES][{n} * {line}]")
    k.line("float acc[TM][TN] = {};")
    k.line("const int wave = threadIdx.x / 32, lane = threadIdx.x % 32;")


def multiply(g: GemmScope, operands: list[ProductOperand]) -> None:
    """Emits acc += A B for the tiles in LDS buffer `buffer`."""
    a, b = operands
    if g.spec.dtype in OCP:
        at_row = "(wave / 4 * WM + i) * 16 + lane % 16"
        at_column = "wave % 4 * (WN * 8) + j * 16 + lane / 16 * 8 + lane % 8"
        g.emit_template(
            _FLOAT8_STEP,
            AT_A=f"k_contiguous_index({at_row}, q * 16 + lane / 16 * 8)",
            AT_B=f"k_contiguous_index({at_column}, q * 16 + lane / 8 % 2 * 8)",
        )
        return
    row, column = "(wave / 4 * WM + i) * 16", "wave % 4 * (WN * 8) + j * 16"
    high, middle = "lane / 16 * 8", "lane / 8 % 2 * 8"
    at_a = (
        a.swizzled_index(f"{row} + lane % 16", f"q + {high}")
        if a.k_contiguous
        else a.swizzled_index(f"{row} + {middle}", f"q + {high} + lane % 8")
    )
    at_b = (
        b.swizzled_index(f"{column} + {high} + lane % 8", f"q + {middle}")
        if b.k_contiguous
        else b.swizzled_index(f"{column} + {high}", f"q + {middle} + lane % 8")
    )
    transposed = [str(not s.k_contiguous).lower() for s in operands]
    g.emit_template(
        _MMA_STEP, TRANSPOSED_A=transposed[0], TRANSPOSED_B=transposed[1], AT_A=at_a, AT_B=at_b, MMA=MMA[g.spec.dtype]
    )


def multistage_loop(k: CallKernel, g: GemmScope, operands: list[ProductOperand]) -> None:
    """Emits the loop over k in which tiles are loaded asynchronously, STAGES - 1 steps ahead."""
    k.open("const auto load_tiles = [&](const int load_step, const int load_buffer)")
    k.line(f"const {k.kind} k0 = ({'first_step + ' if g.partials else ''}load_step) * {g.bk};")
    for operand in operands:
        _async_load(k, g, operand)
    k.close()
    k.line(";")
    k.line("#pragma unroll 1")
    k.open("for (int stage = 0; stage < STAGES - 1; ++stage)")
    k.line("if (stage < steps) load_tiles(stage, stage);")
    k.line("cp_async_commit();")
    k.close()
    k.line("int buffer = 0, load_buffer = STAGES - 1;")
    k.line("#pragma unroll 1")
    k.open(f"for ({k.kind} step = 0; step < steps; ++step)")
    k.line("cp_async_wait_group<STAGES - 2>();")
    k.line("__syncthreads();  // the tiles of this step are complete, and those of the last step are no longer read")
    k.line("if (step + (STAGES - 1) < steps) load_tiles(step + (STAGES - 1), load_buffer);")
    k.line("cp_async_commit();")
    multiply(g, operands)
    k.line("buffer = buffer + 1 == STAGES ? 0 : buffer + 1;")
    k.line("load_buffer = load_buffer + 1 == STAGES ? 0 : load_buffer + 1;")
    k.close()


def _async_load(k: CallKernel, g: GemmScope, operand: ProductOperand) -> None:
    """Emits the load of one operand's tile of step `load_step` into LDS buffer `load_buffer`; zero outside the
    operand.
    """
    operand.open_vector_loop(k, g)
    kind = operand.c_type(g)

    def load_vector(index: list[str], axis: str) -> None:
        found = k.unconverted(operand.tensor, index, operand.held(g)) if operand.aligned else None
        if found is not None:
            k.line(f"cp_async_16(destination, {found[0]} + ({k.emit.position(found[1])}));")
            return
        k.use("store_lds_vector")
        k.line(f"{kind} vec[{operand.width}];")
        k.vector(operand.tensor, index, axis, operand.width, "vec", dtype=operand.held(g), aligned=True)
        k.line("store_lds_vector(destination, vec);")

    k.line(f"{kind}* const destination = tile_{operand.name}[load_buffer] + {operand.swizzled_index('r', 'kk')};")
    operand.load_or_zero(k, g, "destination", load_vector)
    k.close()
