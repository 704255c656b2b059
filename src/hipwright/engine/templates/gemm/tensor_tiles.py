"""NVIDIA's tensor cores for the tiles of gemm.py: how tiles stand in LDS, what a lane holds of them, and the product.

`mma.sync.m16n8k16` of half types into float sums; `ldmatrix` fills a warp's fragments from LDS (PTX ISA, "Matrix
Fragments for mma.m16n8k16"), turned where the operand runs across k. A tile is 32 deep, without padding: packs of 16
bytes change places with the row, so that the eight of an `ldmatrix` lie on different banks. Packs go from memory to LDS
beside the registers (`cp.async`), two or three steps ahead. At the end neighbouring lanes exchange sums, so that each
has four neighbours of a row to store. Elsewhere the same is done with shuffles and plain reads, which is how tests run
this path on a processor.
"""

from __future__ import annotations

from hipwright.engine.ir.index_text import to_c
from hipwright.engine.templates.call_kernel import CallKernel
from hipwright.engine.templates.gemm.scope import GemmScope
from hipwright.engine.templates.gemm.side import KEEP, ProductOperand

MMA = {"float16": "mma_half", "bfloat16": "mma_bfloat"}
"""dtype: the product."""

TENSOR = """#if __CUDA_ARCH__ >= 800
#define GEMM_MMA 1
#else
#define GEMM_MMA 0
#endif

// Where element (r, k) of a tile stands: of rows of 32, or of 32 lines that run across k.
__device__ __forceinline__ int in_rows(int r, int k) {
    return r * 32 + ((k / 8 ^ r / 2 % 4) * 8) + k % 8;
}
template <int ROWS>
__device__ __forceinline__ int across_rows(int r, int k) {
    return k * ROWS + ((r / 8 ^ k % 8) * 8) + r % 8;
}

// Four blocks of 8 x 8 halves, whose rows lanes 8 m .. 8 m + 7 point to: of block m elements 2 (l % 4) and 1 on of row
// l / 4, or turned, of that column.
template <bool TURNED, typename T>
__device__ __forceinline__ void four_blocks(unsigned (&f)[4], const T* tile, int at, int lane) {
#ifdef __CUDA_ARCH__
    const unsigned from = (unsigned)__cvta_generic_to_shared(tile + at);
    if constexpr (TURNED)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(f[0]), "=r"(f[1]), "=r"(f[2]), "=r"(f[3])
                     : "r"(from)
                     : "memory");
    else
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(f[0]), "=r"(f[1]), "=r"(f[2]), "=r"(f[3])
                     : "r"(from)
                     : "memory");
#else
    for (int m = 0; m < 4; ++m) {
        T pair[2];
        for (int e = 0; e < 2; ++e) {
            const int row = TURNED ? lane % 4 * 2 + e : lane / 4, column = TURNED ? lane / 4 : lane % 4 * 2 + e;
            pair[e] = tile[__shfl(at, m * 8 + row, 32) + column];
        }
        __builtin_memcpy(&f[m], pair, 4);
    }
#endif
}

// A pack from memory to LDS; those asked for since the last `ask_done` are one group, `ask_wait` leaves LEFT under way.
template <typename T>
__device__ __forceinline__ void ask_pack(T* to, const T* from) {
#ifdef __CUDA_ARCH__
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;"
                 :
                 : "r"((unsigned)__cvta_generic_to_shared(to)), "l"(__cvta_generic_to_global(from))
                 : "memory");
#else
    __builtin_memcpy(to, from, 16);
#endif
}
__device__ __forceinline__ void ask_done() {
#ifdef __CUDA_ARCH__
    asm volatile("cp.async.commit_group;" : : : "memory");
#endif
}
template <int LEFT>
__device__ __forceinline__ void ask_wait() {
#ifdef __CUDA_ARCH__
    asm volatile("cp.async.wait_group %0;" : : "n"(LEFT) : "memory");
#endif
}

// Neighbouring lanes exchange halves of two tiles: each has four neighbours of one, where it had two of both.
template <int TM, int TN>
__device__ __forceinline__ void exchange(float (&acc)[TM][TN], int lane) {
#pragma unroll
    for (int i = 0; i < TM; ++i) {
#pragma unroll
        for (int j = 0; j < TN; j += 4) {
            const bool odd = lane % 2;
            const float x = __shfl_xor(odd ? acc[i][j] : acc[i][j + 2], 1);
            const float y = __shfl_xor(odd ? acc[i][j + 1] : acc[i][j + 3], 1);
            acc[i][j] = odd ? x : acc[i][j];
            acc[i][j + 1] = odd ? y : acc[i][j + 1];
            acc[i][j + 2] = odd ? acc[i][j + 2] : x;
            acc[i][j + 3] = odd ? acc[i][j + 3] : y;
        }
    }
}

// c += A B of a warp: sums of row l / 4 (c0, c1) and 8 below (c2, c3), columns 2 (l % 4) and 1 on.
#ifdef __CUDA_ARCH__
#define GEMM_PRODUCT(NAME, HALVES, T)                                                                                  \
    __device__ __forceinline__ void NAME(float& c0, float& c1, float& c2, float& c3, const unsigned (&a)[4],           \
                                         unsigned b0, unsigned b1, int) {                                              \
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." HALVES "." HALVES                                        \
                     ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"                            \
                     : "+f"(c0), "+f"(c1), "+f"(c2), "+f"(c3)                                                          \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));                                  \
    }
#else
template <typename T>
__device__ float gemm_product(unsigned a, unsigned b) {
    T x[2], y[2];
    __builtin_memcpy(x, &a, 4);
    __builtin_memcpy(y, &b, 4);
    return (float)x[0] * (float)y[0] + (float)x[1] * (float)y[1];
}
#define GEMM_PRODUCT(NAME, HALVES, T)                                                                                  \
    __device__ void NAME(float& c0, float& c1, float& c2, float& c3, const unsigned (&a)[4], unsigned b0, unsigned b1, \
                         int lane) {                                                                                   \
        for (int k = 0; k < 4; ++k) {                                                                                  \
            for (int half = 0; half < 2; ++half) {                                                                     \
                const unsigned b = half ? b1 : b0;                                                                     \
                const unsigned up = __shfl((int)a[half * 2], lane / 4 * 4 + k, 32);                                    \
                const unsigned low = __shfl((int)a[half * 2 + 1], lane / 4 * 4 + k, 32);                               \
                const unsigned left = __shfl((int)b, lane % 4 * 8 + k, 32);                                            \
                const unsigned right = __shfl((int)b, lane % 4 * 8 + 4 + k, 32);                                       \
                c0 += gemm_product<T>(up, left), c1 += gemm_product<T>(up, right);                                     \
                c2 += gemm_product<T>(low, left), c3 += gemm_product<T>(low, right);                                   \
            }                                                                                                          \
        }                                                                                                              \
    }
#endif
GEMM_PRODUCT(mma_half, "f16", __half)
GEMM_PRODUCT(mma_bfloat, "bf16", __hip_bfloat16)
"""

_MULTIPLY = """
#pragma unroll
for (int q = 0; q < 32; q += 16) {
    unsigned fa[WM][4], fb[WN / 2][4];
    #pragma unroll
    for (int i = 0; i < WM; ++i) four_blocks<@TURNED_A@>(fa[i], tile_a[part], @AT_A@, lane);
    #pragma unroll
    for (int j = 0; j < WN / 2; ++j) four_blocks<@TURNED_B@>(fb[j], tile_b[part], @AT_B@, lane);
    #pragma unroll
    for (int i = 0; i < WM; ++i) {
        #pragma unroll
        for (int j = 0; j < WN; ++j)
            @MMA@(acc[2 * i][2 * j], acc[2 * i][2 * j + 1], acc[2 * i + 1][2 * j], acc[2 * i + 1][2 * j + 1], fa[i],
                fb[j / 2][j % 2 * 2], fb[j / 2][j % 2 * 2 + 1], lane);
    }
}
"""


def condition(g: GemmScope) -> str:
    """Where tensor cores take over, as the preprocessor reads it: tiles as they are dealt out to 2 x 4 warps."""
    return f"GEMM_MMA && {g.bm} >= 64 && {g.bn} >= 64 && {g.bk} == 32" if g.spec.dtype in MMA else ""


def constants(k: CallKernel, g: GemmScope, *, staged: bool) -> None:
    """Tiles in LDS, 48 KiB of them at most; sums in registers."""
    m, n = g.bm, g.bn
    k.line(f"constexpr int WM = {m} / 32, WN = {n} / 32;  // 16 x 8 tiles of one of 2 x 4 warps")
    k.line(f"constexpr int TM = {m} / 16, TN = {n} / 16, GN = 4;")
    stages = f"{m} + {n} > 192 ? 3 : 4" if staged else "2"
    k.line(f"constexpr int STAGES = {stages};")
    k.line(f"__shared__ __attribute__((aligned(16))) T tile_a[STAGES][{m} * 32], tile_b[STAGES][{n} * 32];")
    k.line("float acc[TM][TN] = {};")
    k.line("const int wave = threadIdx.x / 32, lane = threadIdx.x % 32;")


def multiply(g: GemmScope, sides: list[ProductOperand]) -> None:
    """acc += A B of the tiles in LDS buffer `part`."""
    a, b = sides
    row, column = "(wave / 4 * WM + i) * 16", "wave % 4 * (WN * 8) + j * 16"
    high, middle = "lane / 16 * 8", "lane / 8 % 2 * 8"
    at_a = (
        a.lies(f"{row} + lane % 16", f"q + {high}")
        if a.in_rows
        else a.lies(f"{row} + {middle}", f"q + {high} + lane % 8")
    )
    at_b = (
        b.lies(f"{column} + {high} + lane % 8", f"q + {middle}")
        if b.in_rows
        else b.lies(f"{column} + {high}", f"q + {middle} + lane % 8")
    )
    turned = [str(not s.in_rows).lower() for s in sides]
    g.fill(_MULTIPLY, TURNED_A=turned[0], TURNED_B=turned[1], AT_A=at_a, AT_B=at_b, MMA=MMA[g.spec.dtype])


def staged(k: CallKernel, g: GemmScope, sides: list[ProductOperand]) -> None:
    """The loop over k: tiles are asked for STAGES - 1 steps ahead."""
    k.open("const auto ask = [&](const int number, const int into)")
    k.line(f"const {k.kind} k0 = ({'first + ' if g.parts else ''}number) * {g.bk};")
    for side in sides:
        _ask(k, g, side)
    k.close()
    k.line(";")
    k.line("#pragma unroll 1")
    k.open("for (int ahead = 0; ahead < STAGES - 1; ++ahead)")
    k.line("if (ahead < steps) ask(ahead, ahead);")
    k.line("ask_done();")
    k.close()
    k.line("int part = 0, into = STAGES - 1;")
    k.line("#pragma unroll 1")
    k.open(f"for ({k.kind} step = 0; step < steps; ++step)")
    k.line("ask_wait<STAGES - 2>();")
    k.line("__syncthreads();  // this step's tiles are there, and the last step's are read")
    k.line("if (step + (STAGES - 1) < steps) ask(step + (STAGES - 1), into);")
    k.line("ask_done();")
    multiply(g, sides)
    k.line("part = part + 1 == STAGES ? 0 : part + 1;")
    k.line("into = into + 1 == STAGES ? 0 : into + 1;")
    k.close()


def _ask(k: CallKernel, g: GemmScope, side: ProductOperand) -> None:
    """One operand's tile of step `number` into buffer `into`; zero outside."""
    side.slot(k, g)

    def whole(index: list[str], axis: str) -> None:
        found = k.plain(side.operand, index, g.spec.dtype) if side.fast else None
        if found is not None:
            k.line(f"ask_pack(to, {found[0]} + ({to_c(found[1])}));")
            return
        k.define("keep_pack", KEEP)
        k.line(f"T pack[{side.pack}];")
        k.vector(side.operand, index, axis, side.pack, "pack", dtype=g.spec.dtype, aligned=True)
        k.line("keep_pack(to, pack);")

    k.line(f"T* const to = tile_{side.name}[into] + {side.lies('r', 'kk')};")
    side.bring(k, g, "to", whole)
    k.close()
