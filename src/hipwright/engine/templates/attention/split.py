"""Attention of few queries over many keys (decoding): blocks share out the keys, a second kernel combines.

Each query reads all keys and values, so memory bounds the work: the keys of one head are cut into pieces of DECODE_KEYS
(Flash-Decoding: Dao, Haziza, Massa & Sizov 2023), each read once for all queries of a group of heads.
"""

from __future__ import annotations

from hipwright.engine.ir.index import Ix, ix, product
from hipwright.engine.ir.index_text import to_python
from hipwright.engine.lower.core import Tensor
from hipwright.engine.templates.attention.form import (
    FEW,
    AttentionProblem,
    form,
    kv_names,
    read,
    score,
    split_index,
    vector,
)
from hipwright.engine.templates.base import EmittedKernel
from hipwright.engine.templates.call import CallBody
from hipwright.engine.templates.call_kernel import CallKernel
from hipwright.engine.templates.offers import KernelCall, Offer, Output

NAMES = (
    "D DV R W WV UNITS UNITS_V LANES LANES_V PIECES PIECES_V TEAMS TEAMS_V THREADS MINE CHUNK q_tile scores shared_sum "
    "rows chunks chunk z n0 team lane lane_v team_v i0 i1 i2 i3 i4 i5 shared_head head m n d r row mine kk turn part v "
    "p q out dot best base total value wide i first place sum distance weight top"
)


def split(call: KernelCall) -> Offer | None:
    """The offer "split": for few queries, any number of keys."""
    f = form(call)
    mask = call.arg(3, "attn_mask")
    operands = [*call.args[:3], *([mask] if isinstance(mask, Tensor) else [])]
    if f.hints["rows"] * f.group > 4 * FEW:
        return None
    return Offer(
        "split", write, operands, [Output([*f.lead, f.queries, call.args[2].shape[-1]])], default=f.decoding, data=f
    )


def write(body: CallBody) -> list[EmittedKernel]:
    """One kernel for the pieces, one to combine them."""
    f: AttentionProblem = body.data
    q, k, v, mask = (*body.operands, None)[:4]
    assert q is not None
    assert k is not None
    assert v is not None
    rows = min(8, 1 << (f.hints["rows"] * f.group - 1).bit_length())
    block = body.knob("DECODE_BLOCK", 256, (128, 256), "threads that share a piece of the keys")
    rows_ = body.knob("DECODE_ROWS", rows, (1, 2, 4, 8), "queries that share one read of the keys")
    chunk = body.knob("DECODE_KEYS", _piece(f), (64, 128, 256, 512, 1024), "keys of a piece")
    space = [*f.kv_lead, f.queries * f.group]
    pieces = _pieces(body, f)
    parts = body.temporary("parts", [*space, pieces, ix(f.size_v)], "float32")
    stats = body.temporary("stats", [*space, pieces, ix(2)], "float32")
    first = _first(body, f, (q, k, v, mask), (parts, stats), (block, rows_, chunk))
    return [first, _combine(body, f, (parts, stats), chunk)]


def _pieces(body: CallBody, f: AttentionProblem) -> Ix:
    """An upper bound of the number of pieces: DECODE_KEYS is at least 64."""
    return (f.keys + 63) // 64


def _piece(f: AttentionProblem) -> int:
    """Keys of a piece: enough pieces for every compute unit twice, but not more than needed."""
    piece = 64
    while piece < 512 and f.hints["heads"] * -(-f.hints["keys"] // (2 * piece)) >= 264:
        piece *= 2
    return piece


def _first(
    body: CallBody,
    f: AttentionProblem,
    operands: tuple[Tensor, Tensor, Tensor, Tensor | None],
    out: tuple[str, str],
    knobs: tuple[str, str, str],
) -> EmittedKernel:
    q, k, v, mask = operands
    kernel = body.kernel("pieces", NAMES)
    kernel.include("lane_reduce_scatter")
    block, rows, chunk = knobs
    names = [f"i{n}" for n in range(len(f.lead))]
    _head(kernel, f, (vector(k, f.size), vector(v, f.size_v)), knobs)
    kernel.line(f"const {kernel.kind} first = z % rows * R;")
    kernel.line(f"const {kernel.kind} head = z / rows;")
    split_index(kernel, "head", f.kv_lead, [*names[:-1], "shared_head"])
    _queries(kernel, f, q, names)
    _dots(kernel, f, k, names)
    _weights(kernel, f, mask, names, out[1])
    _values(kernel, f, v, names, out[0])
    heads = to_python(product(f.kv_lead))
    grid = f"({heads}) * cdiv({to_python(f.queries * f.group)}, {rows}) * cdiv({to_python(f.keys)}, {chunk})"
    return kernel.finish(grid, block, block, "the softmax of each piece of the keys")


def _head(kernel: CallKernel, f: AttentionProblem, widths: tuple[int, int], knobs: tuple[str, str, str]) -> None:
    block, rows, chunk = knobs
    queries, keys = kernel.size(f.queries * f.group), kernel.size(f.keys)
    lanes = [
        min(32, 1 << (max(1, size // w) - 1).bit_length()) for size, w in zip((f.size, f.size_v), widths, strict=True)
    ]
    for text in (
        f"constexpr int D = {f.size}, DV = {f.size_v}, THREADS = {block}, R = {rows}, CHUNK = {chunk};",
        f"constexpr int W = {widths[0]}, WV = {widths[1]}, UNITS = D / W, UNITS_V = DV / WV;  // elements read at once",
        f"constexpr int LANES = {lanes[0]}, LANES_V = {lanes[1]};                            // lanes that share a row",
        "constexpr int PIECES = (UNITS + LANES - 1) / LANES, PIECES_V = (UNITS_V + LANES_V - 1) / LANES_V;",
        "constexpr int TEAMS = THREADS / LANES, TEAMS_V = THREADS / LANES_V, MINE = R > LANES ? R / LANES : 1;",
        "__shared__ float q_tile[R][PIECES * LANES * W], scores[R][CHUNK];",
        "__shared__ float shared_sum[TEAMS_V][PIECES_V * LANES_V * WV];",
        "const int lane = threadIdx.x % LANES, team = threadIdx.x / LANES;",
        "const int lane_v = threadIdx.x % LANES_V, team_v = threadIdx.x / LANES_V;",
        f"const {kernel.kind} chunks = ({keys} + CHUNK - 1) / CHUNK, rows = ({queries} + R - 1) / R;",
        f"const {kernel.kind} chunk = blockIdx.x % chunks, z = blockIdx.x / chunks, n0 = chunk * CHUNK;",
    ):
        kernel.line(text)


def _row(kernel: CallKernel, f: AttentionProblem, names: list[str]) -> None:
    """Statements that give row `row`'s head and query position."""
    length = kernel.size(f.queries)
    group = f"shared_head * {f.group} + " if f.group > 1 else "shared_head"
    which = f"(first + row) / {length}" if f.group > 1 else ""
    kernel.line(f"const {kernel.kind} {names[-1]} = {group}{which}, m = (first + row) % {length};")


def _queries(kernel: CallKernel, f: AttentionProblem, q: Tensor, names: list[str]) -> None:
    """The queries into LDS, scaled, then what a lane needs into registers."""
    kernel.open("for (int i = threadIdx.x; i < R * PIECES * LANES * W; i += THREADS)")
    kernel.line("const int row = i / (PIECES * LANES * W), d = i % (PIECES * LANES * W);")
    kernel.line("float value = 0.0f;")
    kernel.open(f"if (first + row < {kernel.size(f.queries * f.group)} && d < D)")
    _row(kernel, f, names)
    kernel.line(f"value = {kernel.load(q, [*names, 'm', 'd'])};")
    kernel.close()
    kernel.line(f"q_tile[row][d] = value{f' * {f.scale!r}f' if f.scale != 1.0 else ''};")
    kernel.close()
    kernel.line("__syncthreads();")
    for text in (
        "float q[R][PIECES * W];",
        "#pragma unroll",
        "for (int r = 0; r < R; ++r) {",
        "#pragma unroll",
        "    for (int p = 0; p < PIECES; ++p) {",
        "#pragma unroll",
        "        for (int v = 0; v < W; ++v) q[r][p * W + v] = q_tile[r][(p * LANES + lane) * W + v];",
        "    }",
        "}",
    ):
        kernel.line(text)


def _dots(kernel: CallKernel, f: AttentionProblem, k: Tensor, names: list[str]) -> None:
    """scores[r][kk] = q . k; LANES lanes share a key."""
    kernel.line("#pragma unroll 4")
    kernel.open("for (int turn = 0; turn < (CHUNK + TEAMS - 1) / TEAMS; ++turn)")
    length = kernel.size(f.keys)
    kernel.line("const int kk = team + turn * TEAMS;")
    kernel.line(f"const {kernel.kind} n = n0 + kk < {length} ? n0 + kk : {length} - 1;")
    kernel.line("float dot[R] = {};")
    kernel.line("#pragma unroll")
    kernel.open("for (int p = 0; p < PIECES; ++p)")
    kernel.line("const int d = (p * LANES + lane) * W;")
    kernel.line("float part[W] = {};")
    kernel.open("if (UNITS % LANES == 0 || d < D)")
    read(kernel, k, [*kv_names(f, names), "n", "d"], vector(k, f.size), "part")
    kernel.close()
    kernel.line("#pragma unroll")
    kernel.open("for (int r = 0; r < R; ++r)")
    kernel.line("#pragma unroll")
    kernel.line("for (int v = 0; v < W; ++v) dot[r] += q[r][p * W + v] * part[v];")
    kernel.close()
    kernel.close()
    kernel.line("lane_reduce_scatter<R, LANES>(dot, lane);")
    kernel.open("if (kk < CHUNK && lane % (R >= LANES ? 1 : LANES / R) == 0)")
    kernel.line("#pragma unroll")
    kernel.line(
        "for (int mine = 0; mine < MINE; ++mine) "
        "scores[lane_reduce_scatter_row<R, LANES>(lane) + mine][kk] = dot[mine];"
    )
    kernel.close()
    kernel.close()
    kernel.line("__syncthreads();")


def _weights(kernel: CallKernel, f: AttentionProblem, mask: Tensor | None, names: list[str], stats: str) -> None:
    """scores become exp2(score - maximum); 32 lanes a row. Maximum and sum of the piece are kept."""
    kernel.open("for (int row = threadIdx.x / 32; row < R; row += THREADS / 32)")
    kernel.line("float best = -INFINITY, total = 0.0f;")
    kernel.open("for (int kk = threadIdx.x % 32; kk < CHUNK; kk += 32)")
    kernel.line(f"const {kernel.kind} n = n0 + kk;")
    kernel.line("float value = -INFINITY;")
    kernel.open(f"if (n < {kernel.size(f.keys)} && first + row < {kernel.size(f.queries * f.group)})")
    _row(kernel, f, names)
    seen = "n <= m ? " if f.causal else ""
    text = score(kernel, f, mask, names, "scores[row][kk]")
    kernel.line(f"value = {f'{seen}({text}) : -INFINITY' if seen else text};")
    kernel.close()
    kernel.line("scores[row][kk] = value;")
    kernel.line("best = fmaxf(best, value);")
    kernel.close()
    kernel.line("for (int distance = 16; distance > 0; distance >>= 1) best = fmaxf(best, __shfl_xor(best, distance));")
    kernel.line("const float base = best == -INFINITY ? 0.0f : best;")
    kernel.open("for (int kk = threadIdx.x % 32; kk < CHUNK; kk += 32)")
    kernel.line(f"const float p = {f.power('scores[row][kk] - base')};")
    kernel.line("scores[row][kk] = p;")
    kernel.line("total += p;")
    kernel.close()
    kernel.line("for (int distance = 16; distance > 0; distance >>= 1) total += __shfl_xor(total, distance);")
    kernel.open(f"if (threadIdx.x % 32 == 0 && first + row < {kernel.size(f.queries * f.group)})")
    kernel.line(
        f"const {kernel.kind} place = (head * {kernel.size(f.queries * f.group)} + first + row) * chunks + chunk;"
    )
    kernel.written.add(stats)
    kernel.line(f"{kernel.pointer(stats)}[2 * place] = best;")
    kernel.line(f"{kernel.pointer(stats)}[2 * place + 1] = total;")
    kernel.close()
    kernel.close()
    kernel.line("__syncthreads();")


def _values(kernel: CallKernel, f: AttentionProblem, v: Tensor, names: list[str], parts: str) -> None:
    """The weighted sum of the piece's values: LANES_V lanes share a key, then the teams' sums are added in LDS."""
    kernel.line("float out[R][PIECES_V * WV] = {};")
    kernel.line("#pragma unroll 4")
    kernel.open("for (int kk = team_v; kk < CHUNK; kk += TEAMS_V)")
    kernel.line(f"const {kernel.kind} n = n0 + kk;")
    kernel.line(f"if (n >= {kernel.size(f.keys)}) break;")
    kernel.line("#pragma unroll")
    kernel.open("for (int p = 0; p < PIECES_V; ++p)")
    kernel.line("const int d = (p * LANES_V + lane_v) * WV;")
    kernel.line("float part[WV] = {};")
    kernel.open("if (UNITS_V % LANES_V == 0 || d < DV)")
    read(kernel, v, [*kv_names(f, names), "n", "d"], vector(v, f.size_v), "part")
    kernel.close()
    kernel.line("#pragma unroll")
    kernel.open("for (int r = 0; r < R; ++r)")
    kernel.line("const float weight = scores[r][kk];")
    kernel.line("#pragma unroll")
    kernel.line("for (int v = 0; v < WV; ++v) out[r][p * WV + v] += weight * part[v];")
    kernel.close()
    kernel.close()
    kernel.close()
    _add_teams(kernel, f, parts)


def _add_teams(kernel: CallKernel, f: AttentionProblem, parts: str) -> None:
    kernel.line("#pragma unroll")
    kernel.open("for (int r = 0; r < R; ++r)")
    kernel.line("#pragma unroll")
    kernel.open("for (int p = 0; p < PIECES_V; ++p)")
    kernel.line("#pragma unroll")
    kernel.line(
        "for (int v = 0; v < WV; ++v) shared_sum[team_v][(p * LANES_V + lane_v) * WV + v] = out[r][p * WV + v];"
    )
    kernel.close()
    kernel.line("__syncthreads();")
    kernel.open("for (int d = threadIdx.x; d < DV; d += THREADS)")
    kernel.line("float sum = 0.0f;")
    kernel.line("for (int i = 0; i < TEAMS_V; ++i) sum += shared_sum[i][d];")
    total = kernel.size(f.queries * f.group)
    kernel.written.add(parts)
    kernel.line(f"if (first + r < {total})")
    kernel.line(f"    {kernel.pointer(parts)}[((head * {total} + first + r) * chunks + chunk) * DV + d] = sum;")
    kernel.close()
    kernel.line("__syncthreads();")
    kernel.close()


def _combine(body: CallBody, f: AttentionProblem, made: tuple[str, str], chunk: str) -> EmittedKernel:
    """One thread an output element: the pieces weighted by their sums."""
    parts, stats = made
    kernel = body.kernel("combine", "i chunks z best total sum c weight top row d i0 i1 i2 i3 i4 i5 head m r")
    names = [f"i{n}" for n in range(len(f.lead))]
    rows = f.queries * f.group
    kernel.line(f"const {kernel.kind} i = blockIdx.x * ({kernel.kind})256 + threadIdx.x;")
    kernel.line(f"if (i >= {kernel.size(product([*f.kv_lead, rows]))} * {f.size_v}) return;")
    kernel.line(f"const {kernel.kind} d = i % {f.size_v}, row = i / {f.size_v}, head = row / {kernel.size(rows)};")
    kernel.line(f"const {kernel.kind} chunks = ({kernel.size(f.keys)} + {chunk} - 1) / {chunk};")
    p, s = kernel.pointer(parts), kernel.pointer(stats)
    for text in (
        "float best = -INFINITY, total = 0.0f, sum = 0.0f;",
        f"for (int c = 0; c < chunks; ++c) best = fmaxf(best, {s}[2 * (row * chunks + c)]);",
        "const float top = best == -INFINITY ? 0.0f : best;",
        "for (int c = 0; c < chunks; ++c) {",
        f"    const float weight = {f.power(f'{s}[2 * (row * chunks + c)] - top')};",
        f"    total += weight * {s}[2 * (row * chunks + c) + 1];",
        f"    sum += weight * {p}[(row * chunks + c) * {f.size_v} + d];",
        "}",
    ):
        kernel.line(text)
    kernel.line(f"const {kernel.kind} r = row % {kernel.size(rows)}, m = r % {kernel.size(f.queries)};")
    split_index(kernel, "head", f.kv_lead, [*names[:-1], "z"])
    query_head = f"z * {f.group} + r / {kernel.size(f.queries)}" if f.group > 1 else "z"
    kernel.line(f"const {kernel.kind} {names[-1]} = {query_head};")
    kernel.epilogue(f"(total == 0.0f ? {f.empty(kernel)} : sum / total)", [*names, "m", "d"])
    grid = f"cdiv({to_python(product([*f.kv_lead, rows]) * f.size_v)}, 256)"
    return kernel.finish(grid, "256", "256", "the pieces weighted by their sums")
