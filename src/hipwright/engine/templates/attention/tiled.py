"""Attention with an online softmax: a block keeps a tile of queries and loops over the keys.

The algorithm is FlashAttention-2 (Dao 2023, arXiv:2307.08691): scores never reach memory, and a row's running maximum
and sum rescale its output as new keys come. Scores and products are float, from tiles in LDS.
"""

from __future__ import annotations

import math

from hipwright.engine.ir.index import Ix, product
from hipwright.engine.ir.index_text import to_python
from hipwright.engine.lower.values import Tensor
from hipwright.engine.templates.attention.causal import emit_early_exit, emit_skipped_values, masked_score
from hipwright.engine.templates.attention.problem import (
    AttentionProblem,
    attention_problem,
    emit_load,
    emit_score,
    emit_split_index,
    key_lead_names,
    vector_width,
)
from hipwright.engine.templates.base import EmittedKernel
from hipwright.engine.templates.call import CallBody
from hipwright.engine.templates.call_kernel import CallKernel
from hipwright.engine.templates.offers import KernelCall, Offer, Output

NAMES = (
    "D DV TY RM RN BM BN DW VW C DVW KV THREADS lds q_tile kv_tile p_tile tx ty tiles z m0 m n i j d r values "
    "v c i0 i1 i2 i3 i4 i5 shared_head out row_max row_sum sum s n0 n_end q4 k4 p4 v4 u old_max safe_max rescale "
    "column inverse value wide not_finite needs_rest"
)


def tiled_attention(call: KernelCall) -> Offer | None:
    """The offer "tiled": any number of queries."""
    f = attention_problem(call)
    mask = call.arg(3, "attn_mask")
    operands = [*call.args[:3], *([mask] if isinstance(mask, Tensor) else [])]
    output = Output([*f.lead, f.queries, call.args[2].shape[-1]])
    return Offer("tiled", write, operands, [output], default=f.small and not f.decoding, data=f)


def write(body: CallBody) -> list[EmittedKernel]:
    """The kernel: 16 lanes share ATTN_ROWS query rows and ATTN_KEYS of every 16 * ATTN_KEYS keys."""
    f: AttentionProblem = body.data
    q, k, v, mask = (*body.operands, None)[:4]
    assert q is not None
    assert k is not None
    assert v is not None
    kernel = body.kernel(names=NAMES)
    rows, keys = _default_tile(f)
    threads = body.knob("ATTN_BLOCK", 128, (64, 128, 256), "threads of an attention tile")
    row_knob = body.knob("ATTN_ROWS", rows, (1, 2, 4, 8), "query rows a thread of an attention tile handles")
    key_knob = body.knob("ATTN_KEYS", keys, (1, 2, 4), "keys of 16 that a thread of an attention tile handles")
    kernel.use("swizzled_index")
    _declare_tiles(kernel, f, threads, row_knob, key_knob)
    names = [f"i{n}" for n in range(len(f.lead))]
    emit_split_index(kernel, "z", f.lead, names)
    kernel.line(f"const {kernel.kind} shared_head = {names[-1]}{f' / {f.group}' if f.group > 1 else ''};")
    _load_tile(kernel, q, names, "q_tile", "m", ("BM", "DW", "D", "m0", kernel.size(f.queries)), f.scale)
    kernel.line("float out[RM][C * VW] = {}, row_max[RM], row_sum[RM] = {};")
    kernel.line("#pragma unroll")
    kernel.line("for (int r = 0; r < RM; ++r) row_max[r] = -INFINITY;")
    length = kernel.size(f.keys)
    masked = masked_score(f)
    skips_keys = f.causal or masked is not None
    kernel.line(f"const {kernel.kind} n_end = {f'm0 + BM < {length} ? m0 + BM : {length}' if skips_keys else length};")
    kernel.line(f"{kernel.kind} n0 = 0;")
    kernel.open(f"for (; n0 < {'n_end' if masked in (None, -math.inf) else length}; n0 += BN)")
    if masked is not None:
        emit_early_exit(kernel, f, masked)
    shared = key_lead_names(f, names)
    kernel.line("__syncthreads();  // the values of the last step are no longer read")
    _load_tile(kernel, k, shared, "kv_tile", "n", ("BN", "DW", "D", "n0", length))
    kernel.line("__syncthreads();")
    _emit_scores(kernel, f, mask, names)
    _emit_softmax(kernel, f)
    kernel.line("__syncthreads();  // the keys are no longer read, p_tile is complete")
    _load_tile(kernel, v, shared, "kv_tile", "n", ("BN", "DVW", "DV", "n0", length), swizzle=False)
    kernel.line("__syncthreads();")
    pack, parts = {4: ("float4", "v4.x, v4.y, v4.z, v4.w"), 2: ("float2", "v4.x, v4.y"), 1: ("float", "v4")}[
        _value_width(f)
    ]
    kernel.emit.passage(VALUES.replace("@PACK@", pack).replace("@PARTS@", parts))
    kernel.close()
    if masked is not None:
        emit_skipped_values(kernel, f, v, shared)
    _emit_stores(kernel, f, names)
    return [_finish(kernel, f, threads, row_knob, key_knob)]


def _default_tile(f: AttentionProblem) -> tuple[int, int]:
    """(rows, keys) of a thread: as many as LDS and the number of blocks allow."""
    size = max(f.size, f.size_v)
    rows, keys = (8, 4) if size <= 64 else (8, 2) if size <= 128 else (4, 1)
    heads = f.hints["heads"] * f.group
    while rows > 1 and (heads * -(-f.hints["rows"] // (8 * rows)) < 132 or f.hints["rows"] <= 4 * rows):
        rows //= 2
    return rows, keys


def _tile_widths(f: AttentionProblem) -> tuple[int, int]:
    """(columns of a query or key tile, of a value tile) in LDS, in floats."""
    step = 16 * _value_width(f)
    return -(-f.size // 32) * 32, -(-f.size_v // step) * step


def _value_width(f: AttentionProblem) -> int:
    """Neighbouring output columns of a lane."""
    return 4 if f.size_v > 32 else 2 if f.size_v > 16 else 1


def _declare_tiles(kernel: CallKernel, f: AttentionProblem, threads: str, rows: str, keys: str) -> None:
    query_columns, value_columns = _tile_widths(f)
    each = _value_width(f)
    lds = f"{kernel.name}_lds"
    for text in (
        f"constexpr int D = {f.size}, DV = {f.size_v}, THREADS = {threads}, TY = THREADS / 16;",
        f"constexpr int RM = {rows}, RN = {keys};  // query rows of a thread; its keys of every 16",
        f"constexpr int BM = TY * RM, BN = 16 * RN, DW = {query_columns}, VW = {each}, DVW = {value_columns}, "
        "C = DVW / (16 * VW);",
        "constexpr int KV = DW > DVW ? DW : DVW;",
        f"extern __shared__ __attribute__((aligned(16))) float {lds}[];",
        f"float* q_tile = {lds};            // [BM][DW], scaled",
        "float* kv_tile = q_tile + BM * DW;  // [BN][DW], then [BN][DVW]",
        "float* p_tile = kv_tile + BN * KV;  // [BM][BN + 4]",
        "const int tx = threadIdx.x % 16, ty = threadIdx.x / 16;",
        f"const {kernel.kind} tiles = ({kernel.size(f.queries)} + BM - 1) / BM, z = blockIdx.x / tiles;",
        f"const {kernel.kind} m0 = (tiles - 1 - blockIdx.x % tiles) * BM;  // the longest rows of a causal mask first",
    ):
        kernel.line(text)


def _load_tile(
    kernel: CallKernel,
    operand: Tensor,
    names: list[str],
    tile: str,
    row: str,
    limits: tuple[str, str, str, str, str],
    scale: float = 1.0,
    *,
    swizzle: bool = True,
) -> None:
    """Loads a tile of rows into LDS as float; zero outside. limits: rows, columns, valid columns, first row, end, as C
    text.
    """
    rows, columns, real, first, end = limits
    count = vector_width(operand, operand.shape[-1].value or 1)
    kernel.open(f"for (int i = threadIdx.x; i < {rows} * ({columns} / {count}); i += THREADS)")
    kernel.line(f"const int r = i / ({columns} / {count}), d = i % ({columns} / {count}) * {count};")
    kernel.line(f"const {kernel.kind} {row} = {first} + r;")
    kernel.line(f"float values[{count}] = {{}};")
    kernel.open(f"if ({row} < {end} && d < {real})")
    emit_load(kernel, operand, [*names, row, "d"], count, "values")
    kernel.close()
    place = f"swizzled_index(r, d + v, {columns})" if swizzle else f"r * {columns} + d + v"
    times = f" * {scale!r}f" if scale != 1.0 else ""
    kernel.line("#pragma unroll")
    if count == 1:
        kernel.line(f"for (int v = 0; v < 1; ++v) {tile}[{place}] = values[v]{times};")
    else:
        values = ", ".join(f"values[v{f' + {k}' if k else ''}]{times}" for k in range(4))
        kernel.line(f"for (int v = 0; v < {count}; v += 4)")
        kernel.line(f"    *reinterpret_cast<float4*>(&{tile}[{place}]) = make_float4({values});")
    kernel.close()


def _emit_scores(kernel: CallKernel, f: AttentionProblem, mask: Tensor | None, names: list[str]) -> None:
    """Computes s[r][c]: query row m0 + ty + TY * r, key n0 + tx + 16 * c; -inf where the query does not attend."""
    kernel.emit.passage(SCORES)
    kernel.line("#pragma unroll")
    kernel.open("for (int r = 0; r < RM; ++r)")
    kernel.line(f"const {kernel.kind} m = m0 + ty + TY * r;")
    kernel.line("#pragma unroll")
    kernel.open("for (int c = 0; c < RN; ++c)")
    kernel.line(f"const {kernel.kind} n = n0 + tx + 16 * c;")
    kernel.line("float value = -INFINITY;")
    seen = f"m < {kernel.size(f.queries)} && n < {kernel.size(f.keys)}"
    kernel.open(f"if ({seen}{' && n <= m' if f.causal else ''})")
    kernel.line(f"value = {emit_score(kernel, f, mask, names, 's[r][c]')};")
    kernel.close()
    kernel.line("s[r][c] = value;")
    kernel.close()
    kernel.close()


def _emit_softmax(kernel: CallKernel, f: AttentionProblem) -> None:
    text = SOFTMAX.replace("@RESCALE@", f.power("old_max - safe_max")).replace("@P@", f.power("s[r][c] - safe_max"))
    kernel.emit.passage(text)


def _emit_stores(kernel: CallKernel, f: AttentionProblem, names: list[str]) -> None:
    """Divides the rows by their sums and stores them."""
    kernel.line("#pragma unroll")
    kernel.open("for (int r = 0; r < RM; ++r)")
    kernel.line(f"const {kernel.kind} m = m0 + ty + TY * r;")
    kernel.line("float sum = row_sum[r];")
    kernel.line("#pragma unroll")
    kernel.line("for (int distance = 8; distance > 0; distance >>= 1) sum += __shfl_xor(sum, distance);")
    kernel.line(f"if (m >= {kernel.size(f.queries)}) continue;")
    kernel.line(f"const float inverse = sum == 0.0f ? {f.empty(kernel)} : 1.0f / sum;")
    kernel.line("#pragma unroll")
    kernel.open("for (int c = 0; c < C; ++c)")
    each = _value_width(f)
    if each > 1 and f.size_v % each == 0:
        kernel.line(f"const {kernel.kind} column = c * (16 * VW) + tx * VW;")
        kernel.open("if (column < DV)")
        kernel.epilogue_vector("(out[r][c * VW + v] * inverse)", [*names, "m", "column"], "column", str(each))
    else:
        kernel.open("for (int j = 0; j < VW; ++j)")
        kernel.line(f"const {kernel.kind} column = c * (16 * VW) + tx * VW + j;")
        kernel.line("if (column >= DV) continue;")
        kernel.epilogue("(out[r][c * VW + j] * inverse)", [*names, "m", "column"])
    kernel.close()
    kernel.close()
    kernel.close()


def _finish(kernel: CallKernel, f: AttentionProblem, threads: str, rows: str, keys: str) -> EmittedKernel:
    query_columns, value_columns = _tile_widths(f)
    bm, bn = f"{threads} // 16 * {rows}", f"16 * {keys}"
    lds = f"4 * ({bm} * {query_columns} + {bn} * {max(query_columns, value_columns)} + {bm} * ({bn} + 4))"
    blocks = f"{_plan_factor(product(f.lead))} * cdiv({to_python(f.queries)}, {bm})"
    return kernel.finish(blocks, threads, threads, "online softmax (FlashAttention-2)", lds)


def _plan_factor(size: Ix) -> str:
    text = to_python(size)
    return text if text.isalnum() else f"({text})"


SCORES = """float s[RM][RN] = {};
#pragma unroll 2
for (int d = 0; d < (D + 3) / 4 * 4; d += 4) {
    float4 q4[RM], k4[RN];
#pragma unroll
    for (int r = 0; r < RM; ++r) q4[r] = *reinterpret_cast<float4*>(&q_tile[swizzled_index(ty + TY * r, d, DW)]);
#pragma unroll
    for (int c = 0; c < RN; ++c) k4[c] = *reinterpret_cast<float4*>(&kv_tile[swizzled_index(tx + 16 * c, d, DW)]);
#pragma unroll
    for (int r = 0; r < RM; ++r) {
#pragma unroll
        for (int c = 0; c < RN; ++c) {
            s[r][c] += q4[r].x * k4[c].x;
            s[r][c] += q4[r].y * k4[c].y;
            s[r][c] += q4[r].z * k4[c].z;
            s[r][c] += q4[r].w * k4[c].w;
        }
    }
}"""

SOFTMAX = """#pragma unroll
for (int r = 0; r < RM; ++r) {
    const float old_max = row_max[r];
#pragma unroll
    for (int c = 0; c < RN; ++c) row_max[r] = fmaxf(row_max[r], s[r][c]);
#pragma unroll
    for (int distance = 8; distance > 0; distance >>= 1)
        row_max[r] = fmaxf(row_max[r], __shfl_xor(row_max[r], distance));
    const float safe_max = row_max[r] == -INFINITY ? 0.0f : row_max[r], rescale = @RESCALE@;
    row_sum[r] *= rescale;
#pragma unroll
    for (int c = 0; c < RN; ++c) {
        const float p = @P@;
        row_sum[r] += p;
        p_tile[(ty + TY * r) * (BN + 4) + tx + 16 * c] = p;
    }
#pragma unroll
    for (int c = 0; c < C * VW; ++c) out[r][c] *= rescale;
}"""

VALUES = """#pragma unroll 2
for (int u = 0; u < BN; u += 4) {
    float4 p4[RM];
#pragma unroll
    for (int r = 0; r < RM; ++r) p4[r] = *reinterpret_cast<float4*>(&p_tile[(ty + TY * r) * (BN + 4) + u]);
#pragma unroll
    for (int k = 0; k < 4; ++k) {
#pragma unroll
        for (int c = 0; c < C; ++c) {
            const @PACK@ v4 = *reinterpret_cast<const @PACK@*>(&kv_tile[(u + k) * DVW + c * (16 * VW) + tx * VW]);
            const float value[VW] = {@PARTS@};
#pragma unroll
            for (int r = 0; r < RM; ++r) {
                const float p = k == 0 ? p4[r].x : k == 1 ? p4[r].y : k == 2 ? p4[r].z : p4[r].w;
#pragma unroll
                for (int j = 0; j < VW; ++j) out[r][c * VW + j] += p * value[j];
            }
        }
    }
}"""
