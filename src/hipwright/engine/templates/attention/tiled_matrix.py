"""Attention with an online softmax by tensor cores: float32 in three bfloat16 parts (split_attention.h), half types.

The algorithm is FlashAttention-2 (Dao 2023), a wavefront on 16 queries; the products are those of Ootomo & Yokota
(IJHPCA 2022) with three parts instead of two, which have the range of floats. Parts of numbers that are not finite give
NaN: a row whose result is not finite is computed again by floats.
"""

from __future__ import annotations

import math

from hipwright.engine.ir.expr import HALVES, STORAGE
from hipwright.engine.ir.index import product
from hipwright.engine.ir.index_text import to_python
from hipwright.engine.knobs import SPLIT
from hipwright.engine.lower.values import NotLowered, Tensor
from hipwright.engine.templates.attention.causal import masked_score
from hipwright.engine.templates.attention.copied_tiles import CopiedTiles, is_stored
from hipwright.engine.templates.attention.problem import (
    AttentionProblem,
    attention_problem,
    emit_load,
    emit_score,
    emit_split_index,
    is_short_default,
    is_split,
    is_split_default,
    key_lead_names,
    vector_width,
)
from hipwright.engine.templates.attention.tiled_rows import RowsByFloats
from hipwright.engine.templates.base import EmittedKernel
from hipwright.engine.templates.call import CallBody
from hipwright.engine.templates.call_kernel import CallKernel
from hipwright.engine.templates.offers import KernelCall, Offer, Output

MOST_WAVES, PAD = 4, 8
"""Wavefronts of 16 queries in a block; elements between rows in LDS, so that ldmatrix finds them on other banks."""
NAMES = (
    "D DV ROWS KEYS KSTRIDE VSTRIDE KPLANE VPLANE k_tile v_tile lane wave tiles z m0 m n i j r t d values v c i0 i1 i2 "
    "i3 PARTS Part i4 i5 shared_head queries out row_max row_sum sum score rest weights rescale old_max safe_max n0 "
    "n_end value a b inverse ahead stage inside first_tile column first words row key top total p q finite bad key_end "
    "endless"
)


def split_attention(call: KernelCall) -> Offer | None:
    """The offer "matrix_tiled": many queries, of float32 or of scores that the library has no kernel for."""
    if not call.choices.get(SPLIT):
        return None
    f = attention_problem(call)
    q, k, v = call.args[:3]
    mask = call.arg(3, "attn_mask")
    if not is_split(f.dtype, f.size, f.size_v):
        raise NotLowered("tensor cores read head sizes that are multiples of 16, up to 128")
    operands = [q, k, v, *([mask] if isinstance(mask, Tensor) else [])]
    sizes = (f.hints["rows"], f.hints["keys"], f.hints["heads"] * f.group, f.size, f.size_v)
    own = f.dtype == "float32" or f.scores is not None  # else the library has a kernel
    default = (is_split_default(f.dtype, *sizes) and own) or is_short_default(f.dtype, *sizes)
    output = Output([*f.lead, f.queries, v.shape[-1]])
    return Offer("matrix_tiled", write, operands, [output], default=default, data=f)


def write(body: CallBody) -> list[EmittedKernel]:
    """The kernel."""
    return [_SplitAttention(body).written()]


class _SplitAttention:
    """Writes the kernel: 4 wavefronts of 16 queries, tiles of 64 or 32 keys."""

    def __init__(self, body: CallBody) -> None:
        self.f: AttentionProblem = body.data
        f = self.f
        q, k, v, self.mask = (*body.operands, None)[:4]
        assert q is not None
        assert k is not None
        assert v is not None
        self.q, self.k, self.v = q, k, v
        self.kernel: CallKernel = body.kernel(names=NAMES)
        self.names = [f"i{n}" for n in range(len(self.f.lead))]
        halves = f.dtype in HALVES
        self.type, self.parts = STORAGE[f.dtype if halves else "bfloat16"], 1 if halves else 3
        self.copies = self.parts == 1 and all(map(is_stored, (q, k, v)))  # tiles are copied as they are
        self.skips = masked_score(self.f) == -math.inf  # keys beyond the diagonal add nothing but 0 times their values
        waves = min(MOST_WAVES, -(-f.hints["rows"] // 16))
        self.rows, self.threads = 16 * waves, 32 * waves
        self.keys = min(64 if max(f.size, f.size_v) <= 64 else 32, -(-max(f.hints["keys"], 1) // 16) * 16)

    def written(self) -> EmittedKernel:
        """The kernel."""
        f, kernel = self.f, self.kernel
        kernel.use("split_multiply", "load_rows", "load_columns_pair", "store_parts", "split_pair")
        self._declare()
        length = kernel.size(f.keys)
        end = f"m0 + {self.rows} < {length} ? m0 + {self.rows} : {length}" if f.causal or self.skips else length
        kernel.line(f"const {kernel.kind} n_end = {end};")
        kernel.line("bool bad[2] = {true, true};  // rows to compute by floats: all without tensor cores")
        kernel.use("GEMM_MMA")
        kernel.emit.directive("#if GEMM_MMA")
        self._load_queries()
        shared = key_lead_names(f, self.names)
        self._open_tiles(shared)
        kernel.emit.passage(SCORES)
        self._mask_scores()
        text = SOFTMAX.replace("@RESCALE@", f.power("old_max - safe_max"))
        kernel.emit.passage(text.replace("@P@", f.power("score[t][i + c] - safe_max")))
        kernel.emit.passage(VALUES)
        if self.copies:
            kernel.line("__syncthreads();  // the tile is no longer read")
        kernel.close()
        self._store()
        kernel.emit.directive("#endif")
        self._read_skipped_values()
        RowsByFloats(kernel, f, (self.q, self.k, self.v, self.mask), self.names, shared).emit()
        return self._finish()

    def _declare(self) -> None:
        f, kernel = self.f, self.kernel
        for text in (
            f"constexpr int D = {f.size}, DV = {f.size_v}, PARTS = {self.parts};",
            f"using Part = {self.type};",
            "const int lane = threadIdx.x % 32, wave = threadIdx.x / 32;",
            f"constexpr int ROWS = {self.rows};",
            f"const {kernel.kind} tiles = ({kernel.size(f.queries)} + ROWS - 1) / ROWS, z = blockIdx.x / tiles;",
            f"const {kernel.kind} m0 = (tiles - 1 - blockIdx.x % tiles) * ROWS;  // causal: the longest rows first",
        ):
            kernel.line(text)
        emit_split_index(kernel, "z", f.lead, self.names)
        kernel.line(f"const {kernel.kind} shared_head = {self.names[-1]}{f' / {f.group}' if f.group > 1 else ''};")

    def _open_tiles(self, shared: list[str]) -> None:
        """Opens the loop over tiles of keys, one in LDS. Tiles that are copied as they are come one ahead."""
        kernel, length = self.kernel, self.kernel.size(self.f.keys)
        tiles = [
            (self.k, "k_tile", ("KEYS", "D", "KSTRIDE", "KPLANE", "n0", length)),
            (self.v, "v_tile", ("KEYS", "DV", "VSTRIDE", "VPLANE", "n0", length)),
        ]
        loop = f"for ({kernel.kind} n0 = 0; n0 < n_end; n0 += KEYS)"
        if not self.copies:
            kernel.open(loop)
            kernel.line("__syncthreads();  // the last tile is no longer read")
            for operand, tile, limits in tiles:
                self._load_tile(operand, shared, "n", tile, limits)
            kernel.line("__syncthreads();")
            return
        CopiedTiles(kernel, self.threads, length).open(self.k, self.v, shared)

    def _load_tile(
        self, operand: Tensor, lead: list[str], row: str, tile: str, limits: tuple[str, str, str, str, str, str]
    ) -> None:
        """Loads a tile of rows into LDS in parts; zero beyond the last."""
        kernel = self.kernel
        rows, columns, stride, plane, first, end = limits
        count = 4 if vector_width(operand, operand.shape[-1].value or 1) == 4 else 1
        kernel.line("#pragma unroll 4")
        kernel.open(f"for (int i = threadIdx.x; i < {rows} * ({columns} / 4); i += {self.threads})")
        kernel.line(f"const int r = i / ({columns} / 4), first = i % ({columns} / 4) * 4;")
        kernel.line(f"const {kernel.kind} {row} = {first} + r;")
        kernel.line("float values[4] = {};")
        kernel.open(f"if ({row} < {end})")
        if count == 4:
            kernel.line("const int d = first;")
            emit_load(kernel, operand, [*lead, row, "d"], 4, "values")
        else:
            kernel.open("for (int v = 0; v < 4; ++v)")
            kernel.line("const int d = first + v;")
            kernel.line(f"values[v] = {kernel.load(operand, [*lead, row, 'd'])};")
            kernel.close()
        kernel.close()
        if tile == "k_tile" and row == "m" and self.f.scale != 1.0 and self.parts > 1:
            kernel.line("#pragma unroll")
            kernel.line(f"for (int v = 0; v < 4; ++v) values[v] *= {self.f.scale!r}f;")
        kernel.line(f"store_parts<PARTS>({tile} + r * {stride} + first, {plane}, values);")
        kernel.close()

    def _load_queries(self) -> None:
        """Loads the block's queries, scaled, into LDS, and a wavefront's 16 into registers."""
        f, kernel = self.f, self.kernel
        lds = f"{kernel.name}_lds"
        for text in (
            f"constexpr int KEYS = {self.keys}, KSTRIDE = D + {PAD}, VSTRIDE = DV + {PAD};",
            "constexpr int KPLANE = KEYS * KSTRIDE, VPLANE = KEYS * VSTRIDE;  // elements of one part of a tile",
            f"extern __shared__ __attribute__((aligned(16))) unsigned char {lds}[];",
            f"Part* k_tile = reinterpret_cast<Part*>({lds});  // [part][key][d]",
            "Part* v_tile = k_tile + PARTS * KPLANE;",
        ):
            kernel.line(text)
        plane, end = f"{self.rows} * KSTRIDE", kernel.size(f.queries)
        if self.copies:
            CopiedTiles(kernel, self.threads, "").queries(self.q, self.names, self.rows, end)
        else:
            self._load_tile(self.q, self.names, "m", "k_tile", (str(self.rows), "D", "KSTRIDE", plane, "m0", end))
        kernel.line("__syncthreads();")
        kernel.line("unsigned queries[D / 16][PARTS][4];")
        kernel.line("#pragma unroll")
        kernel.line("for (int j = 0; j < D / 16; ++j)")
        kernel.line(f"    load_rows(queries[j], k_tile + wave * 16 * KSTRIDE + j * 16, {plane}, KSTRIDE, lane);")
        for text in ("float out[DV / 8][4] = {}, row_max[2] = {-INFINITY, -INFINITY}, row_sum[2] = {0.0f, 0.0f};",):
            kernel.line(text)

    def _mask_scores(self) -> None:
        """Makes scores what the module makes of them; -inf where a query does not attend."""
        f, kernel = self.f, self.kernel
        kernel.line("#pragma unroll")
        kernel.open("for (int t = 0; t < KEYS / 8; ++t)")
        kernel.line("#pragma unroll")
        kernel.open("for (int i = 0; i < 4; ++i)")
        kernel.line(f"const {kernel.kind} m = m0 + wave * 16 + lane / 4 + i / 2 * 8;")
        kernel.line(f"const {kernel.kind} n = n0 + t * 8 + lane % 4 * 2 + i % 2;")
        kernel.line("float value = -INFINITY;")
        seen = f"m < {kernel.size(f.queries)} && n < {kernel.size(f.keys)}"
        kernel.open(f"if ({seen}{' && n <= m' if f.causal else ''})")
        scaled = f"(score[t][i] * {f.scale!r}f)" if self.parts == 1 and f.scale != 1.0 else "score[t][i]"
        kernel.line(f"value = {emit_score(kernel, f, self.mask, self.names, scaled)};")
        kernel.close()
        kernel.line("score[t][i] = value;")
        kernel.close()
        kernel.close()

    def _store(self) -> None:
        """Divides the rows by their sums and stores them; rows that are not finite are computed again by floats."""
        f, kernel = self.f, self.kernel
        kernel.line("#pragma unroll")
        kernel.open("for (int r = 0; r < 2; ++r)")
        kernel.line(f"const {kernel.kind} m = m0 + wave * 16 + lane / 4 + r * 8;")
        kernel.line("float sum = row_sum[r], finite = 0.0f;")
        kernel.line("#pragma unroll")
        kernel.line("for (int c = 1; c < 4; c <<= 1) sum += __shfl_xor(sum, c);")
        kernel.line("#pragma unroll")
        kernel.open("for (int t = 0; t < DV / 8; ++t)")
        kernel.line("finite += out[t][2 * r] - out[t][2 * r], finite += out[t][2 * r + 1] - out[t][2 * r + 1];")
        kernel.close()
        kernel.line("finite += sum - sum;")
        kernel.line("#pragma unroll")
        kernel.line("for (int c = 1; c < 4; c <<= 1) finite += __shfl_xor(finite, c);")
        kernel.line(f"bad[r] = finite != 0.0f && m < {kernel.size(f.queries)};")
        kernel.line(f"if (bad[r] || m >= {kernel.size(f.queries)}) continue;")
        kernel.line(f"const float inverse = sum == 0.0f ? {f.empty(kernel)} : 1.0f / sum;")
        kernel.line("#pragma unroll")
        kernel.open("for (int t = 0; t < DV / 8; ++t)")
        kernel.line(f"const {kernel.kind} column = t * 8 + lane % 4 * 2;")
        kernel.epilogue_vector("(out[t][2 * r + v] * inverse)", [*self.names, "m", "column"], "column", "2")
        kernel.close()
        kernel.close()

    def _read_skipped_values(self) -> None:
        """Declares the end of the keys of rows by floats, which are all of a block where a skipped value is not finite:
        0 times such a value is NaN in the module.
        """
        kernel, length = self.kernel, self.kernel.size(self.f.keys)
        kernel.line(f"{kernel.kind} key_end = n_end;")
        if not self.skips:
            return
        kernel.line("bool endless = false;")
        kernel.open(f"for ({kernel.kind} i = threadIdx.x; i < ({length} - n_end) * DV; i += {self.threads})")
        kernel.line(f"const {kernel.kind} n = n_end + i / DV, d = i % DV;")
        place = [*key_lead_names(self.f, self.names), "n", "d"]
        kernel.line(f"endless |= !(fabsf({kernel.load(self.v, place)}) < INFINITY);")
        kernel.close()
        kernel.line(f"if (__syncthreads_or(endless)) bad[0] = bad[1] = true, key_end = {length};")

    def _finish(self) -> EmittedKernel:
        f = self.f
        tiles = 2 * (2 if self.copies else self.parts) * self.keys * (f.size + f.size_v + 2 * PAD)
        lds = max(tiles, 2 * self.parts * self.rows * (f.size + PAD))
        lead = to_python(product(f.lead))
        lead = lead if lead.isalnum() else f"({lead})"
        grid = f"{lead} * cdiv({to_python(f.queries)}, {self.rows})"
        what = "online softmax, products in three parts" if self.parts > 1 else "online softmax by tensor cores"
        return self.kernel.finish(grid, str(self.threads), str(self.threads), what, str(lds))


SCORES = """float score[KEYS / 8][4] = {};
#pragma unroll
for (int t = 0; t < KEYS / 8; t += 2) {
    float rest[2][4] = {};
#pragma unroll
    for (int j = 0; j < D / 16; ++j) {
        unsigned b[PARTS][4];
        load_columns_pair<false>(b, k_tile + t * 8 * KSTRIDE + j * 16, KPLANE, KSTRIDE, lane);
        split_multiply<Part>(score[t], rest[0], queries[j], b, 0, lane);
        split_multiply<Part>(score[t + 1], rest[1], queries[j], b, 1, lane);
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) score[t][i] += rest[0][i], score[t + 1][i] += rest[1][i];
}"""

SOFTMAX = """#pragma unroll
for (int r = 0; r < 2; ++r) {
    const int i = 2 * r;
    const float old_max = row_max[r];
#pragma unroll
    for (int t = 0; t < KEYS / 8; ++t) row_max[r] = fmaxf(row_max[r], fmaxf(score[t][i], score[t][i + 1]));
#pragma unroll
    for (int c = 1; c < 4; c <<= 1) row_max[r] = fmaxf(row_max[r], __shfl_xor(row_max[r], c));
    const float safe_max = row_max[r] == -INFINITY ? 0.0f : row_max[r], rescale = @RESCALE@;
    row_sum[r] *= rescale;
#pragma unroll
    for (int t = 0; t < KEYS / 8; ++t) {
#pragma unroll
        for (int c = 0; c < 2; ++c) {
            score[t][i + c] = @P@;
            row_sum[r] += score[t][i + c];
        }
    }
#pragma unroll
    for (int t = 0; t < DV / 8; ++t) out[t][i] *= rescale, out[t][i + 1] *= rescale;
}"""

VALUES = """unsigned weights[KEYS / 16][PARTS][4];
#pragma unroll
for (int j = 0; j < KEYS / 16; ++j) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        unsigned words[PARTS];
        split_pair<Part>(words, score[2 * j + i / 2][i % 2 * 2], score[2 * j + i / 2][i % 2 * 2 + 1]);
#pragma unroll
        for (int p = 0; p < PARTS; ++p) weights[j][p][i] = words[p];
    }
}
#pragma unroll
for (int t = 0; t < DV / 8; t += 2) {
    float rest[2][4] = {};
#pragma unroll
    for (int j = 0; j < KEYS / 16; ++j) {
        unsigned b[PARTS][4];
        load_columns_pair<true>(b, v_tile + j * 16 * VSTRIDE + t * 8, VPLANE, VSTRIDE, lane);
        split_multiply<Part>(out[t], rest[0], weights[j], b, 0, lane);
        split_multiply<Part>(out[t + 1], rest[1], weights[j], b, 1, lane);
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) out[t][i] += rest[0][i], out[t + 1][i] += rest[1][i];
}"""
