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
    emit_split_index,
    is_short_default,
    is_split,
    is_split_default,
    key_lead_names,
    vector_width,
)
from hipwright.engine.templates.attention.tile_scores import PRODUCTS, SOFTMAX, VALUES, TileScores
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
    "endless GROUPS g pair"
)
GROUPED_SIZE, GROUPED_ROWS = 64, 128
"""Head sizes up to which, and queries from which, a wavefront of half types has two groups of 16 queries: each tile is
read from LDS half as often. More sums do not fit the registers.
"""


def split_attention(call: KernelCall) -> Offer | None:
    """The offer "matrix_tiled": many queries, of float32 or of scores that the library has no kernel for."""
    if not call.choices.get(SPLIT):
        return None
    f = attention_problem(call, weights=True)
    q, k, v = call.args[:3]
    mask = call.arg(3, "attn_mask")
    if not is_split(f.dtype, f.size, f.size_v):
        raise NotLowered("tensor cores read head sizes that are multiples of 16, up to 128")
    operands = [q, k, v, *([mask] if isinstance(mask, Tensor) else [])]
    sizes = (f.hints["rows"], f.hints["keys"], f.hints["heads"] * f.group, f.size, f.size_v)
    own = f.dtype == "float32" or f.scores is not None  # else the library has a kernel
    default = (is_split_default(f.dtype, *sizes) and own) or is_short_default(f.dtype, *sizes) or not f.softmax
    output = Output([*f.lead, f.queries, v.shape[-1]])
    return Offer("matrix_tiled", write, operands, [output], default=default, data=f)


def write(body: CallBody) -> list[EmittedKernel]:
    """The kernel."""
    return [_SplitAttention(body).written()]


class _SplitAttention:
    """Writes the kernel: 4 wavefronts of 16 or 32 queries, tiles of 64 or 32 keys."""

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
        nothing = -math.inf if f.softmax else 0.0
        self.skips = masked_score(f) == nothing  # keys beyond the diagonal add nothing but 0 times their values
        self.groups = self._groups(body)
        waves = min(MOST_WAVES, -(-f.hints["rows"] // 16))
        self.rows, self.threads = 16 * self.groups * waves, 32 * waves
        self.keys = min(64 if max(f.size, f.size_v) <= 64 else 32, -(-max(f.hints["keys"], 1) // 16) * 16)

    def _groups(self, body: CallBody) -> int:
        """Groups of 16 queries of a wavefront."""
        f = self.f
        if self.parts > 1 or max(f.size, f.size_v) > GROUPED_SIZE:
            return 1
        return int(body.choose("groups", (1, 2), 2 if f.hints["rows"] >= GROUPED_ROWS else 1))

    def written(self) -> EmittedKernel:
        """The kernel."""
        f, kernel = self.f, self.kernel
        kernel.use("split_multiply", "load_rows", "load_columns_pair", "store_parts", "split_pair", "fast_exp2")
        self._declare()
        length = kernel.size(f.keys)
        end = f"m0 + {self.rows} < {length} ? m0 + {self.rows} : {length}" if f.causal or self.skips else length
        kernel.line(f"const {kernel.kind} n_end = {end};")
        kernel.line("unsigned bad = ~0u;  // bits of the rows to compute by floats: all without tensor cores")
        kernel.use("GEMM_MMA")
        kernel.emit.directive("#if GEMM_MMA")
        self._load_queries()
        shared = key_lead_names(f, self.names)
        self._open_tiles(shared)
        kernel.emit.passage(PRODUCTS)
        TileScores(kernel, f, self.mask, self.names, scaled=self.parts > 1).emit()
        if f.softmax:
            text = SOFTMAX.replace("@RESCALE@", self._power("old_max - safe_max"))
            kernel.emit.passage(text.replace("@P@", self._power("score[g][t][i + c] - safe_max")))
        kernel.emit.passage(VALUES)
        if self.copies:
            kernel.line("__syncthreads();  // the tile is no longer read")
        kernel.close()
        self._store()
        kernel.emit.directive("#endif")
        self._read_skipped_values()
        RowsByFloats(kernel, f, (self.q, self.k, self.v, self.mask), self.names, shared, 16 * self.groups).emit()
        return self._finish()

    def _power(self, exponent: str) -> str:
        """The exponential of a difference of scores: half types need no results below 2^-126."""
        text = self.f.power(exponent)
        return text.replace("exp2f(", "fast_exp2(", 1) if self.parts == 1 else text

    def _declare(self) -> None:
        f, kernel = self.f, self.kernel
        for text in (
            f"constexpr int D = {f.size}, DV = {f.size_v}, PARTS = {self.parts};",
            f"using Part = {self.type};",
            "const int lane = threadIdx.x % 32, wave = threadIdx.x / 32;",
            f"constexpr int ROWS = {self.rows}, GROUPS = {self.groups};",
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
        kernel.line("unsigned queries[GROUPS][D / 16][PARTS][4];")
        kernel.line("#pragma unroll")
        kernel.line("for (int i = 0; i < GROUPS * (D / 16); ++i)")
        rows = "k_tile + (wave * GROUPS + i / (D / 16)) * 16 * KSTRIDE + i % (D / 16) * 16"
        kernel.line(f"    load_rows(queries[i / (D / 16)][i % (D / 16)], {rows}, {plane}, KSTRIDE, lane);")
        kernel.line("float out[GROUPS][DV / 8][4] = {};")
        if f.softmax:
            kernel.line("float row_max[2 * GROUPS], row_sum[2 * GROUPS] = {};")
            kernel.line("#pragma unroll")
            kernel.line("for (int r = 0; r < 2 * GROUPS; ++r) row_max[r] = -INFINITY;")

    def _store(self) -> None:
        """Divides the rows by their sums and stores them; rows that are not finite are computed again by floats."""
        f, kernel = self.f, self.kernel
        rows = kernel.size(f.queries)
        kernel.line("#pragma unroll")
        kernel.open("for (int r = 0; r < 2 * GROUPS; ++r)")
        kernel.line("const int g = r / 2, i = r % 2 * 2;")
        kernel.line(f"const {kernel.kind} m = m0 + (wave * GROUPS + g) * 16 + lane / 4 + r % 2 * 8;")
        kernel.line("float finite = 0.0f;")
        kernel.line("#pragma unroll")
        kernel.line("for (int t = 0; t < DV / 8; ++t)")
        kernel.line("    finite += out[g][t][i] - out[g][t][i], finite += out[g][t][i + 1] - out[g][t][i + 1];")
        value = "out[g][t][i + v]"
        if f.softmax:
            kernel.line("float sum = row_sum[r];")
            kernel.line("#pragma unroll")
            kernel.line("for (int c = 1; c < 4; c <<= 1) sum += __shfl_xor(sum, c);")
            kernel.line("finite += sum - sum;")
        kernel.line("#pragma unroll")
        kernel.line("for (int c = 1; c < 4; c <<= 1) finite += __shfl_xor(finite, c);")
        kernel.line(f"if (finite == 0.0f || m >= {rows}) bad &= ~(1u << r);")
        kernel.line(f"if (finite != 0.0f || m >= {rows}) continue;")
        if f.softmax:
            kernel.line(f"const float inverse = sum == 0.0f ? {f.empty(kernel)} : 1.0f / sum;")
            value = f"({value} * inverse)"
        kernel.line("#pragma unroll")
        kernel.open("for (int t = 0; t < DV / 8; ++t)")
        kernel.line(f"const {kernel.kind} column = t * 8 + lane % 4 * 2;")
        kernel.epilogue_vector(value, [*self.names, "m", "column"], "column", "2")
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
        kernel.line(f"if (__syncthreads_or(endless)) bad = ~0u, key_end = {length};")

    def _finish(self) -> EmittedKernel:
        f = self.f
        tiles = 2 * (2 if self.copies else self.parts) * self.keys * (f.size + f.size_v + 2 * PAD)
        lds = max(tiles, 2 * self.parts * self.rows * (f.size + PAD))
        lead = to_python(product(f.lead))
        lead = lead if lead.isalnum() else f"({lead})"
        grid = f"{lead} * cdiv({to_python(f.queries)}, {self.rows})"
        how = "online softmax" if f.softmax else "scores are weights"
        what = f"{how}, products in three parts" if self.parts > 1 else f"{how} by tensor cores"
        return self.kernel.finish(grid, str(self.threads), str(self.threads), what, str(lds))
