"""Attention of few queries over many keys (decoding): blocks divide the keys, a second kernel combines their results.

Each query reads all keys and values, so memory bounds the work: the keys of a head are divided into chunks of
DECODE_KEYS (Flash-Decoding: Dao, Haziza, Massa & Sizov 2023), each read once for all queries of a group of heads.
"""

from __future__ import annotations

from hipwright.engine.ir.expr import weight
from hipwright.engine.ir.index import Ix, ix, product
from hipwright.engine.ir.index_text import to_python
from hipwright.engine.lower.values import Tensor
from hipwright.engine.templates.attention.combine import combine_kernel
from hipwright.engine.templates.attention.hidden import HiddenKeys
from hipwright.engine.templates.attention.problem import (
    DECODING_MAX_ROWS,
    AttentionProblem,
    attention_problem,
    declare_row,
    emit_load,
    emit_score,
    emit_split_index,
    is_split_usual,
    key_lead_names,
    vector_width,
)
from hipwright.engine.templates.base import EmittedKernel
from hipwright.engine.templates.call import CallBody
from hipwright.engine.templates.call_kernel import CallKernel
from hipwright.engine.templates.offers import STORE_ABOVE, KernelCall, Offer, Output, probe

MOST_ROWS, SEVERAL_ROWS = 8, 4
"""Queries of a block, which share one read of its keys, and from which on blocks are small: 32 heads on 8 took an H200
86.0 us in 128 threads and 94.3 in 256; one query a key head 1.6 % longer in 128."""
STORE_ABOVE_READ_ONCE = 160
"""The weight (ir/expr.py) above which keys or values that one block reads are stored first. A round figure."""
NAMES = (
    "D DV R W WV VECTORS VECTORS_V KEY_LANES VALUE_LANES LANE_VECTORS LANE_VECTORS_V GROUPS GROUPS_V "
    "THREADS LANE_ROWS CHUNK STEPS AHEAD "
    "q_tile scores group_sums rows chunks chunk z first_key group lane lane_v group_v i0 i1 i2 i3 i4 i5 "
    "shared_head head m n d r row own key step loaded v p q out dot row_max safe_max row_sum value wide i "
    "first_row first_step seen at stats_index sum distance weight"
)


def split_keys_attention(call: KernelCall) -> Offer | None:
    """The offer "split": for few queries, any number of keys."""
    f = attention_problem(call, sinks=True)
    if f.hints["rows"] * f.group > 4 * DECODING_MAX_ROWS:
        return None
    above = STORE_ABOVE_READ_ONCE if _read_once(f) else STORE_ABOVE
    return _offer(call, f, "split", above, default=is_split_usual(call, f))


def stored_keys_attention(call: KernelCall) -> Offer | None:
    """The offer "split_stored": keys and values are stored first that "split" computes where it reads them."""
    f = attention_problem(call, sinks=True)
    weights = [weight([probe(call.c, t)]) for t in call.args[1:3]]
    if f.hints["rows"] * f.group > 4 * DECODING_MAX_ROWS or not _read_once(f):
        return None
    if not any(STORE_ABOVE < one <= STORE_ABOVE_READ_ONCE for one in weights):
        return None
    return _offer(call, f, "split_stored", STORE_ABOVE, default=False)


def _read_once(f: AttentionProblem) -> bool:
    """Whether each key is read by one block: all its queries share the read."""
    return f.hints["rows"] * f.group <= MOST_ROWS


def _offer(call: KernelCall, f: AttentionProblem, name: str, above: int, *, default: bool) -> Offer:
    more = [t for t in (call.arg(3, "attn_mask"), f.sinks) if isinstance(t, Tensor)]
    outputs = [Output([*f.lead, f.queries, call.args[2].shape[-1]])]
    limits = [STORE_ABOVE, above, above, *(STORE_ABOVE for _ in more)]
    return Offer(name, write, [*call.args[:3], *more], outputs, default=default, store_above=limits, data=f)


def write(body: CallBody) -> list[EmittedKernel]:
    """One kernel for the chunks, one to combine them."""
    f: AttentionProblem = body.data
    operands = list(body.operands)
    sinks = operands.pop() if f.sinks is not None else None
    q, k, v, mask = (*operands, None)[:4]
    assert q is not None and k is not None and v is not None
    rows = min(MOST_ROWS, 1 << (f.hints["rows"] * f.group - 1).bit_length())
    block = body.knob("DECODE_BLOCK", 128 if rows >= SEVERAL_ROWS else 256, (128, 256), "threads for a chunk of keys")
    row_knob = body.knob("DECODE_ROWS", rows, (1, 2, 4, 8), "queries that share one read of the keys")
    chunk = body.knob("DECODE_KEYS", default_chunk(f), (64, 128, 256, 512, 1024), "keys of a chunk")
    space = [*f.kv_lead, f.queries * f.group]
    chunks = chunk_bound(f)
    partials = body.temporary("partials", [*space, chunks, ix(f.size_v)], "float32")
    stats = body.temporary("stats", [*space, chunks, ix(2)], "float32")
    first = _chunk_kernel(body, f, (q, k, v, mask), (partials, stats), (block, row_knob, chunk))
    return [first, combine_kernel(body, f, (partials, stats), chunk, sinks)]


def chunk_bound(f: AttentionProblem) -> Ix:
    """An upper bound of the number of chunks: DECODE_KEYS is at least 64."""
    return (f.keys + 63) // 64


def default_chunk(f: AttentionProblem) -> int:
    """Keys of a chunk: enough chunks for every compute unit twice, but not more than needed."""
    piece = 64
    while piece < 512 and f.hints["heads"] * -(-f.hints["keys"] // (2 * piece)) >= 264:
        piece *= 2
    return piece


def _chunk_kernel(
    body: CallBody,
    f: AttentionProblem,
    operands: tuple[Tensor, Tensor, Tensor, Tensor | None],
    out: tuple[str, str],
    knobs: tuple[str, str, str],
) -> EmittedKernel:
    q, k, v, mask = operands
    kernel = body.kernel("chunks", NAMES)
    kernel.use("lane_reduce_scatter")
    block, rows, chunk = knobs
    names = [f"i{n}" for n in range(len(f.lead))]
    _declare_sizes(kernel, f, (vector_width(k, f.size), vector_width(v, f.size_v)), knobs)
    kernel.line(f"const {kernel.kind} first_row = z % rows * R;")
    kernel.line(f"const {kernel.kind} head = z / rows;")
    emit_split_index(kernel, "head", f.kv_lead, [*names[:-1], "shared_head"])
    _load_queries(kernel, f, q, names)
    _emit_dots(kernel, f, k, names, HiddenKeys(body, f, mask))
    emit_weights(kernel, f, mask, names, out[1])
    _emit_values(kernel, f, v, names, out[0])
    heads = to_python(product(f.kv_lead))
    grid = f"({heads}) * cdiv({to_python(f.queries * f.group)}, {rows}) * cdiv({to_python(f.keys)}, {chunk})"
    return kernel.finish(grid, block, block, "the softmax of each chunk of the keys")


def _declare_sizes(
    kernel: CallKernel, f: AttentionProblem, widths: tuple[int, int], knobs: tuple[str, str, str]
) -> None:
    block, rows, chunk = knobs
    queries, keys = kernel.size(f.queries * f.group), kernel.size(f.keys)
    lanes = [
        min(32, 1 << (max(1, size // w) - 1).bit_length()) for size, w in zip((f.size, f.size_v), widths, strict=True)
    ]
    for text in (
        f"constexpr int D = {f.size}, DV = {f.size_v}, THREADS = {block}, R = {rows}, CHUNK = {chunk};",
        f"constexpr int W = {widths[0]}, WV = {widths[1]}, VECTORS = D / W, VECTORS_V = DV / WV;  // W: vector width",
        f"constexpr int KEY_LANES = {lanes[0]}, VALUE_LANES = {lanes[1]};  // lanes that share a row",
        "constexpr int LANE_VECTORS = (VECTORS + KEY_LANES - 1) / KEY_LANES, "
        "LANE_VECTORS_V = (VECTORS_V + VALUE_LANES - 1) / VALUE_LANES;",
        "constexpr int GROUPS = THREADS / KEY_LANES, GROUPS_V = THREADS / VALUE_LANES;",
        "constexpr int LANE_ROWS = R > KEY_LANES ? R / KEY_LANES : 1;",
        "__shared__ float q_tile[R][LANE_VECTORS * KEY_LANES * W], scores[R][CHUNK];",
        "__shared__ float group_sums[GROUPS_V][LANE_VECTORS_V * VALUE_LANES * WV];",
        "const int lane = threadIdx.x % KEY_LANES, group = threadIdx.x / KEY_LANES;",
        "const int lane_v = threadIdx.x % VALUE_LANES, group_v = threadIdx.x / VALUE_LANES;",
        f"const {kernel.kind} chunks = ({keys} + CHUNK - 1) / CHUNK, rows = ({queries} + R - 1) / R;",
        f"const {kernel.kind} chunk = blockIdx.x % chunks, z = blockIdx.x / chunks, first_key = chunk * CHUNK;",
    ):
        kernel.line(text)


def _load_queries(kernel: CallKernel, f: AttentionProblem, q: Tensor, names: list[str]) -> None:
    """Loads the queries into LDS, scaled, then what a lane needs into registers."""
    kernel.open("for (int i = threadIdx.x; i < R * LANE_VECTORS * KEY_LANES * W; i += THREADS)")
    kernel.line("const int row = i / (LANE_VECTORS * KEY_LANES * W), d = i % (LANE_VECTORS * KEY_LANES * W);")
    kernel.line("float value = 0.0f;")
    kernel.open(f"if (first_row + row < {kernel.size(f.queries * f.group)} && d < D)")
    declare_row(kernel, f, names)
    kernel.line(f"value = {kernel.load(q, [*names, 'm', 'd'])};")
    kernel.close()
    kernel.line(f"q_tile[row][d] = value{f' * {f.scale!r}f' if f.scale != 1.0 else ''};")
    kernel.close()
    kernel.line("__syncthreads();")
    for text in (
        "float q[R][LANE_VECTORS * W];",
        "#pragma unroll",
        "for (int r = 0; r < R; ++r) {",
        "#pragma unroll",
        "    for (int p = 0; p < LANE_VECTORS; ++p) {",
        "#pragma unroll",
        "        for (int v = 0; v < W; ++v) q[r][p * W + v] = q_tile[r][(p * KEY_LANES + lane) * W + v];",
        "    }",
        "}",
    ):
        kernel.line(text)


def _emit_dots(kernel: CallKernel, f: AttentionProblem, k: Tensor, names: list[str], hidden: HiddenKeys) -> None:
    """Computes scores[r][key] = q . k; KEY_LANES lanes share a key."""
    length = kernel.size(f.keys)
    if hidden.skipped:
        _leave_hidden(kernel, hidden, names)
        kernel.line("#pragma unroll")
        kernel.open("for (int step = first_step; step < first_step + AHEAD; ++step)")
    else:
        kernel.line("#pragma unroll 4")
        kernel.open("for (int step = 0; step < (CHUNK + GROUPS - 1) / GROUPS; ++step)")
    kernel.line("const int key = group + step * GROUPS;")
    kernel.line(f"const {kernel.kind} n = first_key + key < {length} ? first_key + key : {length} - 1;")
    kernel.line("float dot[R] = {};")
    kernel.line("#pragma unroll")
    kernel.open("for (int p = 0; p < LANE_VECTORS; ++p)")
    kernel.line("const int d = (p * KEY_LANES + lane) * W;")
    kernel.line("float loaded[W] = {};")
    kernel.open("if (VECTORS % KEY_LANES == 0 || d < D)")
    emit_load(kernel, k, [*key_lead_names(f, names), "n", "d"], vector_width(k, f.size), "loaded")
    kernel.close()
    kernel.line("#pragma unroll")
    kernel.open("for (int r = 0; r < R; ++r)")
    kernel.line("#pragma unroll")
    kernel.line("for (int v = 0; v < W; ++v) dot[r] += q[r][p * W + v] * loaded[v];")
    kernel.close()
    kernel.close()
    kernel.line("lane_reduce_scatter<R, KEY_LANES>(dot, lane);")
    kernel.open("if (key < CHUNK && lane % (R >= KEY_LANES ? 1 : KEY_LANES / R) == 0)")
    kernel.line("#pragma unroll")
    row = "lane_reduce_scatter_row<R, KEY_LANES>(lane) + own"
    kernel.line(f"for (int own = 0; own < LANE_ROWS; ++own) scores[{row}][key] = dot[own];")
    kernel.close()
    kernel.close()
    if hidden.skipped:
        kernel.close()
    kernel.line("__syncthreads();")


def _leave_hidden(kernel: CallKernel, hidden: HiddenKeys, names: list[str]) -> None:
    """Opens the loop over steps that are loaded together; leaves those of which no row sees a key."""
    kernel.line("constexpr int STEPS = (CHUNK + GROUPS - 1) / GROUPS, AHEAD = STEPS < 4 ? STEPS : 4;")
    kernel.open("for (int first_step = 0; first_step < STEPS; first_step += AHEAD)")
    kernel.line("bool seen = false;")
    kernel.line("#pragma unroll")
    kernel.open("for (int step = first_step; step < first_step + AHEAD; ++step)")
    kernel.line("const int key = group + step * GROUPS;")
    hidden.emit_seen(kernel, names)
    kernel.close()
    kernel.open("if (!__any(seen))")
    kernel.open("for (int step = first_step; step < first_step + AHEAD; ++step)")
    kernel.line("const int key = group + step * GROUPS;")
    kernel.line("for (int r = lane; key < CHUNK && r < R; r += KEY_LANES) scores[r][key] = 0.0f;")
    kernel.close()
    kernel.line("continue;")
    kernel.close()


def emit_weights(kernel: CallKernel, f: AttentionProblem, mask: Tensor | None, names: list[str], stats: str) -> None:
    """Replaces the scores by exp2(score - maximum); 32 lanes a row. Maximum and sum of the chunk are stored."""
    kernel.open("for (int row = threadIdx.x / 32; row < R; row += THREADS / 32)")
    kernel.line("float row_max = -INFINITY, row_sum = 0.0f;")
    kernel.open("for (int key = threadIdx.x % 32; key < CHUNK; key += 32)")
    kernel.line(f"const {kernel.kind} n = first_key + key;")
    kernel.line("float value = -INFINITY;")
    kernel.open(f"if (n < {kernel.size(f.keys)} && first_row + row < {kernel.size(f.queries * f.group)})")
    declare_row(kernel, f, names)
    seen = "n <= m ? " if f.causal else ""
    text = emit_score(kernel, f, mask, names, "scores[row][key]")
    kernel.line(f"value = {f'{seen}({text}) : -INFINITY' if seen else text};")
    kernel.close()
    kernel.line("scores[row][key] = value;")
    kernel.line("row_max = fmaxf(row_max, value);")
    kernel.close()
    butterfly = "for (int distance = 16; distance > 0; distance >>= 1)"
    kernel.line(f"{butterfly} row_max = fmaxf(row_max, __shfl_xor(row_max, distance));")
    kernel.line("const float safe_max = row_max == -INFINITY ? 0.0f : row_max;")
    kernel.open("for (int key = threadIdx.x % 32; key < CHUNK; key += 32)")
    kernel.line(f"const float p = {f.power('scores[row][key] - safe_max')};")
    kernel.line("scores[row][key] = p;")
    kernel.line("row_sum += p;")
    kernel.close()
    kernel.line(f"{butterfly} row_sum += __shfl_xor(row_sum, distance);")
    kernel.open(f"if (threadIdx.x % 32 == 0 && first_row + row < {kernel.size(f.queries * f.group)})")
    index = f"(head * {kernel.size(f.queries * f.group)} + first_row + row) * chunks + chunk"
    kernel.line(f"const {kernel.kind} stats_index = {index};")
    kernel.written.add(stats)
    kernel.line(f"{kernel.pointer(stats)}[2 * stats_index] = row_max;")
    kernel.line(f"{kernel.pointer(stats)}[2 * stats_index + 1] = row_sum;")
    kernel.close()
    kernel.close()
    kernel.line("__syncthreads();")


def _emit_values(kernel: CallKernel, f: AttentionProblem, v: Tensor, names: list[str], partials: str) -> None:
    """Computes the weighted sum of the chunk's values: VALUE_LANES lanes share a key, then the sums of the groups are
    added in LDS.
    """
    kernel.line("float out[R][LANE_VECTORS_V * WV] = {};")
    kernel.line("#pragma unroll 4")
    kernel.open("for (int key = group_v; key < CHUNK; key += GROUPS_V)")
    kernel.line(f"const {kernel.kind} n = first_key + key;")
    kernel.line(f"if (n >= {kernel.size(f.keys)}) break;")
    kernel.line("#pragma unroll")
    kernel.open("for (int p = 0; p < LANE_VECTORS_V; ++p)")
    kernel.line("const int d = (p * VALUE_LANES + lane_v) * WV;")
    kernel.line("float loaded[WV] = {};")
    kernel.open("if (VECTORS_V % VALUE_LANES == 0 || d < DV)")
    emit_load(kernel, v, [*key_lead_names(f, names), "n", "d"], vector_width(v, f.size_v), "loaded")
    kernel.close()
    kernel.line("#pragma unroll")
    kernel.open("for (int r = 0; r < R; ++r)")
    kernel.line("const float weight = scores[r][key];")
    kernel.line("#pragma unroll")
    kernel.line("for (int v = 0; v < WV; ++v) out[r][p * WV + v] += weight * loaded[v];")
    kernel.close()
    kernel.close()
    kernel.close()
    _add_groups(kernel, f, partials)


def _add_groups(kernel: CallKernel, f: AttentionProblem, partials: str) -> None:
    kernel.line("#pragma unroll")
    kernel.open("for (int r = 0; r < R; ++r)")
    kernel.line("#pragma unroll")
    kernel.open("for (int p = 0; p < LANE_VECTORS_V; ++p)")
    kernel.line("#pragma unroll")
    kernel.line(
        "for (int v = 0; v < WV; ++v) group_sums[group_v][(p * VALUE_LANES + lane_v) * WV + v] = out[r][p * WV + v];"
    )
    kernel.close()
    kernel.line("__syncthreads();")
    kernel.open("for (int d = threadIdx.x; d < DV; d += THREADS)")
    kernel.line("float sum = 0.0f;")
    kernel.line("for (int i = 0; i < GROUPS_V; ++i) sum += group_sums[i][d];")
    total = kernel.size(f.queries * f.group)
    kernel.written.add(partials)
    kernel.line(f"if (first_row + r < {total})")
    kernel.line(f"    {kernel.pointer(partials)}[((head * {total} + first_row + r) * chunks + chunk) * DV + d] = sum;")
    kernel.close()
    kernel.line("__syncthreads();")
    kernel.close()
