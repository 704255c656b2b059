"""Kernels of products with few rows or columns, as gemv_plan.py plans them."""

from __future__ import annotations

from hipwright.engine.ir.index_text import to_python
from hipwright.engine.lower.values import Tensor
from hipwright.engine.templates.base import EmittedKernel
from hipwright.engine.templates.call import CallBody
from hipwright.engine.templates.call_kernel import factor
from hipwright.engine.templates.gemm.gemv_plan import (
    MANY_ROWS,
    VECTOR_CHUNK,
    GemvSpec,
    default_split,
    lane_groups,
    threads_across,
)
from hipwright.engine.templates.gemm.split_k import SPLITS, SplitKPartials, locate_block


def write(body: CallBody) -> list[EmittedKernel]:
    """One kernel, or two when blocks share a row."""
    spec: GemvSpec = body.data
    matrix, vectors = (t for t in body.operands if t is not None)
    spec.matrix, spec.vectors = matrix, vectors
    return (_KContiguous if spec.k_contiguous else _RowContiguous)(body, spec).kernels()


class _Gemv:
    """State shared by both layouts: the grid, the share of k, and the stores."""

    names = (
        "VECTORS WIDTH ROWS K_THREADS K_SUMS K_GRANULE block_index tiles tile split k_part lane group k_begin k_end "
        "tail_begin sums acc r c p v w x vector k_chunk first_row row row0 total out_vector first_vector b i aligned "
        "sum q p_pack K_LANES"
    )
    title = ""
    k_granule = "1"

    def __init__(self, body: CallBody, spec: GemvSpec) -> None:
        self.body, self.spec = body, spec
        self.vectors_per_block = min(VECTOR_CHUNK, body.hint(spec.vector_count))
        self.has_partial_chunk = (
            spec.vector_count.value is None or spec.vector_count.value % self.vectors_per_block != 0
        )
        self.block = body.knob("GEMV_BLOCK", 256, (256, 512), "threads of a block of a skinny product")
        self.choose_knobs()
        batch, rows, vector_count, depth = (body.hint(s) for s in (spec.space[0], spec.rows, spec.vector_count, spec.k))
        self.split = int(body.choose("split", SPLITS, default_split(batch, rows, vector_count, depth, spec)))
        self.partials = (
            SplitKPartials(body, self.split, [spec.space[0], spec.vector_count, spec.rows]) if self.split > 1 else None
        )
        self.k = body.kernel("partials" if self.partials else "", self.names)
        self.rows, self.vector_count, self.depth = (self.k.size(s) for s in (spec.rows, spec.vector_count, spec.k))

    def choose_knobs(self) -> None:
        """Declares the knobs."""
        raise NotImplementedError

    def tile(self) -> tuple[str, str]:
        """Rows of a block: as C text, and as plan text."""
        raise NotImplementedError

    def emit_body(self) -> None:
        """Emits the loops over k and the stores."""
        raise NotImplementedError

    def kernels(self) -> list[EmittedKernel]:
        """The kernel of the sums, and with split-k the kernel that adds the blocks' partials."""
        spec = self.spec
        tile_c, tile_plan = self.tile()
        self._locate_block(tile_c)
        self.emit_body()
        vector_count = (
            "1"
            if spec.vector_count.value == self.vectors_per_block
            else f"cdiv({to_python(spec.vector_count)}, {self.vectors_per_block})"
        )
        factors = [f"cdiv({to_python(spec.rows)}, {tile_plan})", vector_count, factor(spec.space[0]), str(self.split)]
        grid = " * ".join(f for f in factors if f != "1")
        out = [self.k.finish(grid, self.block, self.block, self.title)]
        return [*out, self.partials.sum_kernel(spec.place("y", "x"))] if self.partials else out

    def _locate_block(self, tile: str) -> None:
        """Decodes blockIdx.x = (batch, vectors, rows, split), the last fastest. The block sums k from k_begin to
        k_end.
        """
        k = self.k
        k.line(f"constexpr int VECTORS = {self.vectors_per_block}, WIDTH = {self.spec.width};")
        locate_block(k, self.split, self.rows, tile, self.vector_count)
        if self.split == 1:
            k.line(f"const {k.kind} k_begin = 0, k_end = {self.depth};")
            return
        k.line(f"constexpr int K_GRANULE = {self.split} * {self.k_granule};")
        k.line(f"const {k.kind} k_chunk = ({self.depth} + K_GRANULE - 1) / K_GRANULE * {self.k_granule};")
        end = f"k_begin + k_chunk < {self.depth} ? k_begin + k_chunk : {self.depth}"
        k.line(f"const {k.kind} k_begin = split * k_chunk, k_end = {end};")

    def declare_aligned(self, *conditions: list[str]) -> str:
        """Declares whether vectorised loads are legal; returns its name, or "" where they always are."""
        texts = list(dict.fromkeys(text for group in conditions for text in group))
        if texts:
            self.k.line(f"const bool aligned = {' && '.join(texts)};")
        return "aligned" if texts else ""

    def open_vector_loop(self) -> None:
        """Opens the loop over the vectors; `vector` is a vector's number, in range."""
        k = self.k
        k.line("#pragma unroll")
        k.open("for (int c = 0; c < VECTORS; ++c)")
        spare = f" < {self.vector_count} ? first_vector + c : {self.vector_count} - 1" if self.has_partial_chunk else ""
        k.line(f"const {k.kind} vector = first_vector + c{spare};")

    def store_sum(self, value: str) -> None:
        """Passes the sum of `row` and vector `out_vector` to the epilogue, or stores it as a partial."""
        k, spec = self.k, self.spec
        if self.partials:
            k.line(f"*({self.partials.address(k, 'out_vector', 'row')}) = {value};")
        else:
            k.epilogue(value, spec.place("row", "out_vector"))


class _KContiguous(_Gemv):
    """k is contiguous in the matrix: 32 lanes a row, GEMV_ROWS rows at once, GEMV_WAVES lane groups along k."""

    title = "32 lanes share a row and read 16 bytes each at a time"
    k_granule = "(32 * WIDTH)"

    def choose_knobs(self) -> None:
        """Many rows: several a lane group, which share the vectors. Few rows: several lane groups share a row."""
        body, spec = self.body, self.spec
        rows = body.hint(spec.rows) * body.hint(spec.space[0])
        group_rows, row_groups = lane_groups(rows, body.hint(spec.k), self.vectors_per_block, spec.width)
        self.group_rows = body.knob("GEMV_ROWS", group_rows, (1, 2, 4), "rows of the matrix that 32 lanes sum at once")
        self.row_groups = body.knob("GEMV_WAVES", row_groups, (1, 2, 4, 8), "groups of 32 lanes that share a row")
        # prefetched values of the epilogue hold registers over all steps
        self.few_steps = body.hint(spec.k) <= 4 * 32 * spec.width * row_groups
        packed = spec.width > 8  # 16 bytes become that many floats: int8 took 64 us with one step, 67 us with two
        steps = 2 if rows >= MANY_ROWS or packed else 4  # with many blocks, others run while one waits
        unroll = max(1, steps // group_rows // max(1, self.vectors_per_block // 2))
        self.unroll = body.knob("GEMV_UNROLL", unroll, (1, 2, 4), "steps along k under way at once")

    def tile(self) -> tuple[str, str]:
        """GEMV_ROWS for each lane group that has rows of its own."""
        lane_groups = f"{self.group_rows} * ({self.block} {{}} 32 {{}} {self.row_groups})"
        return f"({lane_groups.format('/', '/')})", lane_groups.format("//", "//")

    def emit_body(self) -> None:
        """Vectorised steps where memory allows, single elements for the rest, then the sums of lanes and lane
        groups.
        """
        k, spec, kind = self.k, self.spec, self.k.kind
        k.use("lane_reduce", "Sum")
        k.line(f"const int lane = threadIdx.x % 32, group = threadIdx.x / 32, k_part = group % {self.row_groups};")
        first = f"(tile * ({self.block} / 32 / {self.row_groups}) + group / {self.row_groups}) * {self.group_rows}"
        k.line(f"const {kind} first_row = {first};")
        k.line(f"constexpr int ROWS = {self.block} / 32 / {self.row_groups} * {self.group_rows};")
        if self.few_steps and not self.partials:
            self._prefetch_epilogue()
        k.line(f"float acc[{self.group_rows}][VECTORS] = {{}};")
        width = str(spec.width)
        place = ["b", "row", "p"]
        conditions = (
            k.unpacked_conditions(spec.matrix, place, "p", spec.width)
            if spec.packed
            else k.vector_conditions(spec.matrix, place, "p", width)
        )
        aligned = self.declare_aligned(conditions, k.vector_conditions(spec.vectors, ["b", "vector", "p"], "p", width))
        vectorised_end = "k_begin + (k_end - k_begin) / WIDTH * WIDTH"
        k.line(f"const {kind} tail_begin = {f'aligned ? {vectorised_end} : k_begin' if aligned else vectorised_end};")
        if aligned:
            k.open("if (aligned)")
        k.line(f"#pragma unroll {self.unroll}")
        start, step = "k_begin + (k_part * 32 + lane) * WIDTH", f"{self.row_groups} * 32 * WIDTH"
        k.open(f"for ({kind} p = {start}; p + WIDTH <= k_end; p += {step})")
        self._step("WIDTH")
        k.close()
        if aligned:
            k.close()
        k.open(f"for ({kind} p = tail_begin + k_part * 32 + lane; p < k_end; p += {self.row_groups} * 32)")
        self._step("")
        k.close()
        self._combine()

    def _step(self, width: str) -> None:
        """Multiplies WIDTH neighbours of every row by those of every vector; one of each if width is ""."""
        k, spec = self.k, self.spec
        dimension = f"[{width}]" if width else ""
        k.line(f"float x[VECTORS]{dimension};")
        self.open_vector_loop()
        self._read(spec.vectors, "vector", "x[c]", width)
        k.close()
        k.line("#pragma unroll")
        k.open(f"for (int r = 0; r < {self.group_rows}; ++r)")
        k.line(f"const {k.kind} row = first_row + r < {self.rows} ? first_row + r : {self.rows} - 1;")
        k.line(f"float w{dimension};")
        self._read(spec.matrix, "row", "w", width)
        k.line("#pragma unroll")
        k.open("for (int c = 0; c < VECTORS; ++c)")
        if width:
            k.line("#pragma unroll")
            k.line("for (int v = 0; v < WIDTH; ++v) acc[r][c] += w[v] * x[c][v];")
        else:
            k.line("acc[r][c] += w * x[c];")
        k.close()
        k.close()

    def _read(self, operand: Tensor, row: str, into: str, width: str) -> None:
        k = self.k
        if width and operand is self.spec.matrix and self.spec.packed:
            k.unpacked_vector(operand, ["b", row, "p"], "p", self.spec.width, into)
        elif width:
            k.vector(operand, ["b", row, "p"], "p", str(self.spec.width), into, aligned=True)
        else:
            k.line(f"{into} = {k.load(operand, ['b', row, 'p'])};")

    def _prefetch_epilogue(self) -> None:
        """Loads what the epilogue reads before the sums, which hide the latency."""
        k = self.k
        names = k.declare_prefetch(self.spec.place("row", "out_vector"))
        if names:
            self._open_owned_sums(loop=False)
            k.prefetch(names)
            self._close_owned_sums()

    def _open_owned_sums(self, *, loop: bool) -> None:
        """Opens the code of the threads that own a sum, `row` and `out_vector`: one each, never more than the block
        has.

        loop: as a loop of one iteration, for which ptxas takes fewer registers where the steps along k are many.
        """
        k = self.k
        if loop:
            k.open(f"for (int i = threadIdx.x; i < ROWS * VECTORS; i += {self.block})")
        else:
            k.open("if (threadIdx.x < ROWS * VECTORS)")
            k.line("const int i = threadIdx.x;")
        k.line(f"const {k.kind} row = tile * ROWS + i % ROWS, out_vector = first_vector + i / ROWS;")
        k.open(f"if (row < {self.rows} && out_vector < {self.vector_count})")

    def _close_owned_sums(self) -> None:
        self.k.close()
        self.k.close()

    def _combine(self) -> None:
        k, group_rows, row_groups = self.k, self.group_rows, self.row_groups
        k.line(f"__shared__ float sums[{self.block} / 32][{group_rows}][VECTORS];")
        k.line("#pragma unroll")
        k.open(f"for (int r = 0; r < {group_rows}; ++r)")
        k.line("#pragma unroll")
        k.open("for (int c = 0; c < VECTORS; ++c)")
        k.line("const float sum = lane_reduce<32>(acc[r][c], Sum());")
        k.line("if (lane == 0) sums[group][r][c] = sum;")
        k.close()
        k.close()
        k.line("__syncthreads();")
        self._open_owned_sums(loop=not self.few_steps)
        k.line("float total = 0.0f;")
        partial = f"sums[i % ROWS / {group_rows} * {row_groups} + q][i % {group_rows}][i / ROWS]"
        k.line(f"for (int q = 0; q < {row_groups}; ++q) total += {partial};")
        self.store_sum("total")
        self._close_owned_sums()


class _RowContiguous(_Gemv):
    """The row number is contiguous in the matrix: a thread sums WIDTH rows, GEMV_COLUMNS threads cover neighbouring
    rows.
    """

    title = "a thread sums neighbouring columns, threads of a block share k"

    def choose_knobs(self) -> None:
        """Few threads across where there are few rows: full 128-byte lines, or all of a shorter row."""
        body, spec = self.body, self.spec
        across = threads_across(body.hint(spec.space[0]), body.hint(spec.rows), spec.width)
        options = (8, 16, 32) if across >= 8 else (2, 4, 8)
        self.columns = body.knob("GEMV_COLUMNS", across, options, "threads side by side, 16 bytes each")
        unroll = 4 if self.vectors_per_block <= 2 else 2
        self.unroll = body.knob("GEMV_UNROLL", unroll, (1, 2, 4), "steps along k under way at once")

    def tile(self) -> tuple[str, str]:
        """Rows of all threads across."""
        return f"({self.columns} * WIDTH)", f"({self.columns} * {self.spec.width})"

    def emit_body(self) -> None:
        """Sums of each thread over its own k, then over the threads of the same rows."""
        k, spec, kind = self.k, self.spec, self.k.kind
        k.line(f"constexpr int K_THREADS = {self.block} / {self.columns}, ROWS = {self.columns} * WIDTH;")
        k.line(f"const int lane = threadIdx.x % {self.columns}, k_part = threadIdx.x / {self.columns};")
        k.line(f"const {kind} row0 = tile * ROWS + lane * WIDTH;")
        k.line("float acc[VECTORS][WIDTH] = {};")
        aligned = self.declare_aligned(k.vector_conditions(spec.matrix, ["b", "row0", "p"], "row0", str(spec.width)))
        k.open(f"if ({f'{aligned} && ' if aligned else ''}row0 + WIDTH <= {self.rows})")
        k.line(f"#pragma unroll {self.unroll}")
        self._steps(wide=True)
        k.close()
        k.open(f"else if (row0 < {self.rows})")
        self._steps(wide=False)
        k.close()
        self._combine()

    def _steps(self, *, wide: bool) -> None:
        k, spec, kind = self.k, self.spec, self.k.kind
        k.open(f"for ({kind} p = k_begin + k_part; p < k_end; p += K_THREADS)")
        k.line("float w[WIDTH];")
        if wide:
            k.vector(spec.matrix, ["b", "row0", "p"], "row0", str(spec.width), "w", aligned=True)
        else:
            k.line("#pragma unroll")
            k.open("for (int v = 0; v < WIDTH; ++v)")
            k.line(f"const {kind} row = row0 + v < {self.rows} ? row0 + v : {self.rows} - 1;")
            k.line(f"w[v] = {k.load(spec.matrix, ['b', 'row', 'p'])};")
            k.close()
        self.open_vector_loop()
        k.line(f"const float x = {k.load(spec.vectors, ['b', 'vector', 'p'])};")
        k.line("#pragma unroll")
        k.line("for (int v = 0; v < WIDTH; ++v) acc[c][v] += w[v] * x;")
        k.close()
        k.close()

    def _combine(self) -> None:
        k = self.k
        k.use("add_lanes")
        k.line("constexpr int K_SUMS = K_THREADS < 32 ? K_THREADS : 32, K_LANES = K_THREADS / K_SUMS;")
        k.line("__shared__ float sums[K_SUMS * ROWS];")
        k.line("#pragma unroll")
        k.open("for (int c = 0; c < VECTORS; ++c)")
        k.line(f"add_lanes<{self.columns}, K_LANES>(acc[c]);")
        k.line("__syncthreads();  // the sums of the last vector have been read")
        k.line("#pragma unroll")
        k.open("for (int v = 0; v < WIDTH; ++v)")
        k.line("if (k_part % K_LANES == 0) sums[k_part / K_LANES * ROWS + lane * WIDTH + v] = acc[c][v];")
        k.close()
        k.line("__syncthreads();")
        k.open(f"for (int i = threadIdx.x; i < ROWS; i += {self.block})")
        k.line(f"const {k.kind} row = tile * ROWS + i, out_vector = first_vector + c;")
        k.line(f"if (row >= {self.rows} || out_vector >= {self.vector_count}) continue;")
        k.line("float total = 0.0f;")
        k.line("for (int q = 0; q < K_SUMS; ++q) total += sums[q * ROWS + i];")
        self.store_sum("total")
        k.close()
        k.close()
