"""Attention of few queries over many keys by matrix units: as split.py, for numbers that memory holds as half types.

Up to 8 queries share a read of the keys, and by vector units each costs an instruction for every number read. A
wavefront multiplies 16 keys with all 8 rows at once, keys and values straight from memory (few_rows.h). A module that
widens them to float32 first computes with the same numbers; then weights are sums of three halves instead of two.
"""

from __future__ import annotations

from hipwright.engine.ir.expr import HALVES, STORAGE
from hipwright.engine.ir.index import Ix, Var, ix, product
from hipwright.engine.ir.index_text import to_python
from hipwright.engine.knobs import SPLIT
from hipwright.engine.lower.context import LoweringContext
from hipwright.engine.lower.values import NotLowered, Tensor
from hipwright.engine.templates.attention.combine import combine_kernel
from hipwright.engine.templates.attention.hidden import HiddenKeys
from hipwright.engine.templates.attention.problem import (
    DECODING_MAX_ROWS,
    AttentionProblem,
    attention_problem,
    declare_row,
    emit_split_index,
    key_lead_names,
    vector_width,
)
from hipwright.engine.templates.attention.split import chunk_bound, default_chunk, emit_weights
from hipwright.engine.templates.base import EmittedKernel
from hipwright.engine.templates.call import CallBody
from hipwright.engine.templates.call_kernel import CallKernel
from hipwright.engine.templates.offers import KernelCall, Offer, Output

ROWS, KEYS_OF_TILE = 8, 16
SIZE, SIZES_V = 32, (64, 128, 256)
"""What head sizes of queries and keys are multiples of, and head sizes of values."""
FEWEST_ROWS = 4
"""Queries of a key head from which this is the default: fewer are no work for the vector units either. Paged decoding
of 4 queries a head took an H200 81.5 us by matrix units, 93.9 by vector units; of 8 46.6 and 67.8.
"""
WEIGHT_PARTS, WIDENED_PARTS = 2, 3
"""Numbers of the half type of which a weight is the sum: 16 bits, or all 24 of a float."""
NAMES = (
    "D DV R THREADS CHUNK STRIDE WAVES FLOATS q_tile memory scores rows sums chunks chunk z first_key lane wave "
    "i0 i1 i2 i3 i4 i5 shared_head head m n d row key value q p row_max safe_max row_sum i first_row stats_index "
    "distance tile first score vector t number value_at at seen"
)


def matrix_keys_attention(call: KernelCall) -> Offer | None:
    """The offer "matrix": for few queries of half types, or of half types that are widened."""
    f = attention_problem(call, sinks=True)
    q, k, v = call.args[:3]
    mask = call.arg(3, "attn_mask")
    read = [_dtype_in_memory(call.c, t) for t in (k, v, *([q] if f.dtype not in HALVES else []))]
    if read[0] not in HALVES or len(set(read)) > 1 or f.size % SIZE or f.size_v not in SIZES_V:
        raise NotLowered("matrix units read half types, head sizes in whole vectors")
    if any(vector_width(t, s) != 8 for t, s in ((k, f.size), (v, f.size_v))):
        raise NotLowered("keys or values that are not read 16 bytes at a time")
    rows = f.hints["rows"] * f.group
    if rows > 4 * DECODING_MAX_ROWS:
        return None
    operands = [q, k, v, *(t for t in (mask, f.sinks) if isinstance(t, Tensor))]
    default = f.decoding and rows >= FEWEST_ROWS and bool(call.choices.get(SPLIT))
    output = Output([*f.lead, f.queries, v.shape[-1]])
    return Offer("matrix", write, operands, [output], default=default, data=f)


def _dtype_in_memory(c: LoweringContext, operand: Tensor) -> str:
    """The dtype of the elements in memory that the operand's are; "" where they are computed."""
    e = operand.at(c.probe(operand.shape))
    return str(e.attr[2]) if e.op == "load" else ""


def write(body: CallBody) -> list[EmittedKernel]:
    """One kernel for the chunks, one to combine them."""
    f: AttentionProblem = body.data
    block = body.knob("DECODE_BLOCK", 256, (128, 256), "threads that share a chunk of the keys")
    chunk = body.knob("DECODE_KEYS", default_chunk(f), (64, 128, 256, 512, 1024), "keys of a chunk")
    space, chunks = [*f.kv_lead, f.queries * f.group], chunk_bound(f)
    partials = body.temporary("partials", [*space, chunks, ix(f.size_v)], "float32")
    stats = body.temporary("stats", [*space, chunks, ix(2)], "float32")
    sinks = body.operands[-1] if f.sinks is not None else None
    first = _ChunkKernel(body, f, (partials, stats), (block, chunk)).written()
    return [first, combine_kernel(body, f, (partials, stats), chunk, sinks)]


class _ChunkKernel:
    """Writes the kernel of the chunks."""

    def __init__(self, body: CallBody, f: AttentionProblem, made: tuple[str, str], knobs: tuple[str, str]) -> None:
        self.f, self.knobs = f, knobs
        self.partials, self.stats = made
        operands = body.operands[: -1 if f.sinks is not None else None]
        q, k, v, self.mask = (*operands, None)[:4]
        assert q is not None
        assert k is not None
        assert v is not None
        self.q, self.keys, self.values = q, k, v
        self.kernel: CallKernel = body.kernel("chunks", NAMES)
        self.names = [f"i{n}" for n in range(len(f.lead))]
        self.type = STORAGE[_dtype_in_memory(body.c, k)]
        self.parts = WEIGHT_PARTS if f.dtype in HALVES else WIDENED_PARTS
        self.hidden = HiddenKeys(body, f, self.mask)

    def written(self) -> EmittedKernel:
        """The kernel."""
        f, kernel = self.f, self.kernel
        kernel.use("FewRows", "FewRowSums", "load_16_bytes")
        self._declare()
        self._load_queries()
        self._scores()
        emit_weights(kernel, f, self.mask, self.names, self.stats)
        self._sums()
        block, chunk = self.knobs
        heads = to_python(product(f.kv_lead))
        grid = f"({heads}) * cdiv({to_python(f.queries * f.group)}, {ROWS}) * cdiv({to_python(f.keys)}, {chunk})"
        return kernel.finish(grid, block, block, "the softmax of each chunk of the keys, by matrix units")

    def _declare(self) -> None:
        f, kernel = self.f, self.kernel
        block, chunk = self.knobs
        queries, keys = kernel.size(f.queries * f.group), kernel.size(f.keys)
        for text in (
            f"constexpr int D = {f.size}, DV = {f.size_v}, R = {ROWS}, THREADS = {block}, CHUNK = {chunk};",
            "constexpr int STRIDE = CHUNK + 16, WAVES = THREADS / FEW_ROWS_LANES;  // rows of scores on other banks",
            "constexpr int FLOATS = R * STRIDE > THREADS * DV / 8 ? R * STRIDE : THREADS * DV / 8;",
            f"__shared__ __attribute__((aligned(16))) {self.type} q_tile[R][D];",
            "__shared__ __attribute__((aligned(16))) float memory[FLOATS];  // scores, then sums of wavefronts",
            "float (*scores)[STRIDE] = reinterpret_cast<float (*)[STRIDE]>(memory);",
            "const int lane = threadIdx.x % FEW_ROWS_LANES, wave = threadIdx.x / FEW_ROWS_LANES;",
            f"const {kernel.kind} chunks = ({keys} + CHUNK - 1) / CHUNK, rows = ({queries} + R - 1) / R;",
            f"const {kernel.kind} chunk = blockIdx.x % chunks, z = blockIdx.x / chunks, first_key = chunk * CHUNK;",
            f"const {kernel.kind} first_row = z % rows * R;",
            f"const {kernel.kind} head = z / rows;",
        ):
            kernel.line(text)
        emit_split_index(kernel, "head", f.kv_lead, [*self.names[:-1], "shared_head"])

    def _load_queries(self) -> None:
        """Loads the queries into LDS, as they are in memory."""
        f, kernel = self.f, self.kernel
        kernel.open("for (int i = threadIdx.x; i < R * D; i += THREADS)")
        kernel.line("const int row = i / D, d = i % D;")
        kernel.line("float value = 0.0f;")
        kernel.open(f"if (first_row + row < {kernel.size(f.queries * f.group)})")
        declare_row(kernel, f, self.names)
        kernel.line(f"value = {kernel.load(self.q, [*self.names, 'm', 'd'])};")
        kernel.close()
        kernel.line(f"q_tile[row][d] = {self.type}(value);")
        kernel.close()
        kernel.line("__syncthreads();")

    def _tiles(self) -> None:
        """Opens the loop over a wavefront's tiles of keys."""
        self.kernel.open(f"for (int tile = wave; tile < CHUNK / {KEYS_OF_TILE}; tile += WAVES)")
        self.kernel.line(f"const int first = tile * {KEYS_OF_TILE};")
        self.kernel.line(f"if (first_key + first >= {self.kernel.size(self.f.keys)}) break;")

    def _vector(self, operand: Tensor) -> str:
        """Eight elements of a row `n` from `d` on, as C text."""
        kernel = self.kernel
        place: list[Ix | str | int] = [*key_lead_names(self.f, self.names), "n", "d"]
        index = [ix(Var(i, s)) if isinstance(i, str) else ix(i) for i, s in zip(place, operand.shape, strict=True)]
        buffer, position, _ = operand.at(index).attr
        kernel.aligned[buffer] = 8
        return f"load_16_bytes({kernel.pointer(buffer)} + {kernel.emit.position(position)})"

    def _scores(self) -> None:
        """Computes scores[row][key] = q . k."""
        f, kernel = self.f, self.kernel
        length = kernel.size(f.keys)
        kernel.line(f"FewRows<{self.type}, D> queries;")
        kernel.line("queries.load(&q_tile[0][0], lane);")
        self._tiles()
        if self.hidden.skipped:
            self._leave_hidden()
        kernel.line("float score[4];")
        kernel.open("queries.scores(score, [&](int number, int d)")
        kernel.line(f"const {kernel.kind} at = first_key + first + number;")
        kernel.line(f"const {kernel.kind} n = at < {length} ? at : {length} - 1;")
        kernel.line(f"return {self._vector(self.keys)};")
        kernel.close(", lane);")
        kernel.line("#pragma unroll")
        kernel.open("for (int i = 0; i < 4; ++i)")
        kernel.line("const int row = queries.row_of(lane, i), key = first + queries.key_of(lane, i);")
        scaled = f" * {f.scale!r}f" if f.scale != 1.0 else ""
        kernel.line(f"if (row < R) scores[row][key] = score[i]{scaled};")
        kernel.close()
        kernel.close()
        kernel.line("__syncthreads();")

    def _leave_hidden(self) -> None:
        """Leaves a tile of which no row sees a key."""
        kernel = self.kernel
        kernel.line("bool seen = false;")
        kernel.line(f"const int key = first + lane % {KEYS_OF_TILE};")
        self.hidden.emit_seen(kernel, self.names)
        kernel.open("if (!__any(seen))")
        kernel.line(f"for (int i = lane; i < R * {KEYS_OF_TILE}; i += FEW_ROWS_LANES)")
        kernel.line(f"    scores[i / {KEYS_OF_TILE}][first + i % {KEYS_OF_TILE}] = 0.0f;")
        kernel.line("continue;")
        kernel.close()

    def _sums(self) -> None:
        """Computes the weighted sums of the chunk's values, and adds those of the wavefronts."""
        f, kernel = self.f, self.kernel
        kernel.open("const auto value_at = [&](int key, int d)")
        kernel.line(f"const {kernel.kind} n = first_key + key;")
        kernel.line(f"Vector16B<{self.type}> vector = {{}};")
        kernel.open(f"if (n < {kernel.size(f.keys)})")
        kernel.line(f"vector = {self._vector(self.values)};")
        kernel.close()
        kernel.line("return vector;")
        kernel.close(";")
        kernel.line(f"FewRowSums<{self.type}, DV, {self.parts}> sums;")
        kernel.line("sums.clear();")
        self._tiles()
        kernel.line("sums.add(value_at, first, memory, STRIDE, lane);")
        kernel.close()
        kernel.open("if (!sums.is_finite())")
        kernel.line("sums.clear();")
        self._tiles()
        kernel.line("sums.add_by_floats(value_at, first, memory, STRIDE, lane);")
        kernel.close()
        kernel.close()
        kernel.line("sums.template combine<WAVES>(memory, wave, lane);")
        kernel.line("if (wave > 0) return;")
        total = kernel.size(f.queries * f.group)
        kernel.written.add(self.partials)
        kernel.line("#pragma unroll")
        kernel.open("for (int t = 0; t < DV / 16; ++t)")
        kernel.line("#pragma unroll")
        kernel.open("for (int i = 0; i < 4; ++i)")
        kernel.line("const int row = sums.row_of(lane, i), d = sums.d_of(lane, t, i);")
        kernel.line(f"if (row >= R || first_row + row >= {total}) continue;")
        pointer = kernel.pointer(self.partials)
        kernel.line(f"{pointer}[((head * {total} + first_row + row) * chunks + chunk) * DV + d] = sums.sum[t][i];")
        kernel.close()
        kernel.close()
