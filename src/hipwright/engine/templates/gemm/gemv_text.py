"""The kernels of a product with few rows or columns (gemv.py says which, and how they are cut), as text."""

from __future__ import annotations

from hipwright.engine.ir.index_text import to_python
from hipwright.engine.lower.core import Tensor
from hipwright.engine.templates.base import EmittedKernel
from hipwright.engine.templates.call import CallBody
from hipwright.engine.templates.call_kernel import factor
from hipwright.engine.templates.gemm.gemv import FEW, MANY_ROWS, GemvSpec, default_split, groups, side_by_side
from hipwright.engine.templates.gemm.splits import SPLITS, SplitKPartials


def write(body: CallBody) -> list[EmittedKernel]:
    """One kernel, or two when blocks share a row."""
    spec: GemvSpec = body.data
    matrix, vectors = (t for t in body.operands if t is not None)
    spec.matrix, spec.vectors = matrix, vectors
    return (_Along if spec.along_k else _Across)(body, spec).kernels()


class _Gemv:
    """What both ways share: the grid, the share of k, and what becomes of the sums."""

    names = (
        "FEW WIDTH COUNT PARTS SHARE t tiles tile split part lane group low high tail sums acc r c p v w x at chunk "
    )
    names += "first n row total few few0 b i fast sum q p_pack"
    title = ""
    share = "1"

    def __init__(self, body: CallBody, spec: GemvSpec) -> None:
        self.body, self.spec = body, spec
        self.chunk = min(FEW, body.hint(spec.few))  # vectors of one block
        self.loose = spec.few.value is None or spec.few.value % self.chunk != 0
        self.block = body.knob("GEMV_BLOCK", 256, (256, 512), "threads of a block of a skinny product")
        self.tune()
        batch, rows, few, depth = (body.hint(s) for s in (spec.space[0], spec.rows, spec.few, spec.k))
        self.split = int(body.choose("split", SPLITS, default_split(batch, rows, few, depth, spec)))
        self.parts = SplitKPartials(body, self.split, [spec.space[0], spec.few, spec.rows]) if self.split > 1 else None
        self.k = body.kernel("parts" if self.parts else "", self.names)
        self.rows, self.few, self.depth = (self.k.size(s) for s in (spec.rows, spec.few, spec.k))

    def tune(self) -> None:
        """Ask for the knobs."""
        raise NotImplementedError

    def tile(self) -> tuple[str, str]:
        """Rows of a block: as C, and as the plan writes it."""
        raise NotImplementedError

    def sums(self) -> None:
        """The body."""
        raise NotImplementedError

    def kernels(self) -> list[EmittedKernel]:
        """Sums, and what adds the blocks' parts."""
        spec = self.spec
        tile_c, tile_plan = self.tile()
        self._decode(tile_c)
        self.sums()
        few = "1" if spec.few.value == self.chunk else f"cdiv({to_python(spec.few)}, {self.chunk})"
        factors = [f"cdiv({to_python(spec.rows)}, {tile_plan})", few, factor(spec.space[0]), str(self.split)]
        grid = " * ".join(f for f in factors if f != "1")
        out = [self.k.finish(grid, self.block, self.block, self.title)]
        return [*out, self.parts.added(spec.place("y", "x"))] if self.parts else out

    def _decode(self, tile: str) -> None:
        """blockIdx.x counts (batch, vectors, rows, split), the last fastest; [low, high) is this block's part of k."""
        k = self.k
        k.line(f"constexpr int FEW = {self.chunk}, WIDTH = {self.spec.width};")
        k.line("unsigned t = blockIdx.x;")
        if self.split > 1:
            k.line(f"const {k.kind} split = t % {self.split};")
            k.line(f"t /= {self.split};")
        k.line(f"const unsigned tiles = ({self.rows} + {tile} - 1) / {tile};")
        k.line(f"const {k.kind} tile = t % tiles;")
        k.line("t /= tiles;")
        chunks = f"(({self.few} + FEW - 1) / FEW)"
        k.line(f"const {k.kind} few0 = t % {chunks} * FEW, b = t / {chunks};")
        if self.split == 1:
            k.line(f"const {k.kind} low = 0, high = {self.depth};")
            return
        k.line(f"constexpr int SHARE = {self.split} * {self.share};")
        k.line(f"const {k.kind} chunk = ({self.depth} + SHARE - 1) / SHARE * {self.share};")
        k.line(f"const {k.kind} low = split * chunk, high = low + chunk < {self.depth} ? low + chunk : {self.depth};")

    def fast(self, *conditions: list[str]) -> str:
        """Where wide reads are legal: a name, or "" where they always are."""
        texts = list(dict.fromkeys(text for group in conditions for text in group))
        if texts:
            self.k.line(f"const bool fast = {' && '.join(texts)};")
        return "fast" if texts else ""

    def each_vector(self) -> None:
        """Open the loop over the vectors; `at` is the vector's number, in range."""
        k = self.k
        k.line("#pragma unroll")
        k.open("for (int c = 0; c < FEW; ++c)")
        spare = f" < {self.few} ? few0 + c : {self.few} - 1" if self.loose else ""
        k.line(f"const {k.kind} at = few0 + c{spare};")

    def keep(self, value: str) -> None:
        """The sum of `row` and vector `few`: to the epilogue, or to the parts."""
        k, spec = self.k, self.spec
        if self.parts:
            k.line(f"*({self.parts.at(k, 'few', 'row')}) = {value};")
        else:
            k.epilogue(value, spec.place("row", "few"))


class _Along(_Gemv):
    """The matrix runs along k: 32 lanes a row, GEMV_ROWS rows at once, GEMV_WAVES groups of lanes along k."""

    title = "32 lanes share a row and read 16 bytes each at a time"
    share = "(32 * WIDTH)"

    def tune(self) -> None:
        """Several rows a group where there are many: they share the vectors. Where they are few, groups share a row."""
        body, spec = self.body, self.spec
        rows = body.hint(spec.rows) * body.hint(spec.space[0])
        each, waves = groups(rows, body.hint(spec.k), self.chunk, spec.width)
        self.each = body.knob("GEMV_ROWS", each, (1, 2, 4), "rows of the matrix that 32 lanes sum at once")
        self.waves = body.knob("GEMV_WAVES", waves, (1, 2, 4, 8), "groups of 32 lanes that share a row")
        self.short = body.hint(spec.k) <= 4 * 32 * spec.width * waves  # what is asked for ahead holds registers
        packed = spec.width > 8  # 16 bytes become so many floats: 64 us with one step of int8, 67 with two
        steps = 2 if rows >= MANY_ROWS or packed else 4  # many blocks hide each other's waits
        unroll = max(1, steps // each // max(1, self.chunk // 2))
        self.unroll = body.knob("GEMV_UNROLL", unroll, (1, 2, 4), "steps along k under way at once")

    def tile(self) -> tuple[str, str]:
        """GEMV_ROWS for each group that has rows of its own."""
        groups = f"{self.each} * ({self.block} {{}} 32 {{}} {self.waves})"
        return f"({groups.format('/', '/')})", groups.format("//", "//")

    def sums(self) -> None:
        """Wide steps where memory allows it, then what is left one by one; the lanes' and groups' sums last."""
        k, spec, kind = self.k, self.spec, self.k.kind
        k.helper("lane_reduce", "Sum")
        k.line(f"const int lane = threadIdx.x % 32, group = threadIdx.x / 32, part = group % {self.waves};")
        k.line(
            f"const {kind} first = (tile * ({self.block} / 32 / {self.waves}) + group / {self.waves}) * {self.each};"
        )
        k.line(f"constexpr int COUNT = {self.block} / 32 / {self.waves} * {self.each};")
        if self.short and not self.parts:
            self._ask_ahead()
        k.line(f"float acc[{self.each}][FEW] = {{}};")
        width = str(spec.width)
        place = ["b", "row", "p"]
        mine = (
            k.packed_wide(spec.matrix, place, "p", spec.width)
            if spec.packed
            else k.wide(spec.matrix, place, "p", width)
        )
        fast = self.fast(mine, k.wide(spec.vectors, ["b", "at", "p"], "p", width))
        whole = "low + (high - low) / WIDTH * WIDTH"
        k.line(f"const {kind} tail = {f'fast ? {whole} : low' if fast else whole};")
        if fast:
            k.open("if (fast)")
        k.line(f"#pragma unroll {self.unroll}")
        k.open(f"for ({kind} p = low + (part * 32 + lane) * WIDTH; p + WIDTH <= high; p += {self.waves} * 32 * WIDTH)")
        self._step("WIDTH")
        k.close()
        if fast:
            k.close()
        k.open(f"for ({kind} p = tail + part * 32 + lane; p < high; p += {self.waves} * 32)")
        self._step("")
        k.close()
        self._combine()

    def _step(self, width: str) -> None:
        """WIDTH neighbours of every row times those of every vector, or one of each."""
        k, spec = self.k, self.spec
        many = f"[{width}]" if width else ""
        k.line(f"float x[FEW]{many};")
        self.each_vector()
        self._read(spec.vectors, "at", "x[c]", width)
        k.close()
        k.line("#pragma unroll")
        k.open(f"for (int r = 0; r < {self.each}; ++r)")
        k.line(f"const {k.kind} row = first + r < {self.rows} ? first + r : {self.rows} - 1;")
        k.line(f"float w{many};")
        self._read(spec.matrix, "row", "w", width)
        k.line("#pragma unroll")
        k.open("for (int c = 0; c < FEW; ++c)")
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
            k.packed(operand, ["b", row, "p"], "p", self.spec.width, into)
        elif width:
            k.vector(operand, ["b", row, "p"], "p", str(self.spec.width), into, aligned=True)
        else:
            k.line(f"{into} = {k.load(operand, ['b', row, 'p'])};")

    def _ask_ahead(self) -> None:
        """What the epilogue reads is asked for before the sums: one wait less."""
        k = self.k
        names = k.ahead(self.spec.place("row", "few"))
        if names:
            self._open_own(loop=False)
            k.fill_ahead(names)
            self._close_own()

    def _open_own(self, *, loop: bool) -> None:
        """The block's first threads have a sum each, `row` and `few`: never more than the block has threads.

        loop: as a loop of one turn, for which ptxas takes fewer registers where the steps along k are many.
        """
        k = self.k
        if loop:
            k.open(f"for (int i = threadIdx.x; i < COUNT * FEW; i += {self.block})")
        else:
            k.open("if (threadIdx.x < COUNT * FEW)")
            k.line("const int i = threadIdx.x;")
        k.line(f"const {k.kind} row = tile * COUNT + i % COUNT, few = few0 + i / COUNT;")
        k.open(f"if (row < {self.rows} && few < {self.few})")

    def _close_own(self) -> None:
        self.k.close()
        self.k.close()

    def _combine(self) -> None:
        k, each, waves = self.k, self.each, self.waves
        k.line(f"__shared__ float sums[{self.block} / 32][{each}][FEW];")
        k.line("#pragma unroll")
        k.open(f"for (int r = 0; r < {each}; ++r)")
        k.line("#pragma unroll")
        k.open("for (int c = 0; c < FEW; ++c)")
        k.line("const float sum = lane_reduce<32>(acc[r][c], Sum());")
        k.line("if (lane == 0) sums[group][r][c] = sum;")
        k.close()
        k.close()
        k.line("__syncthreads();")
        self._open_own(loop=not self.short)
        k.line("float total = 0.0f;")
        k.line(
            f"for (int q = 0; q < {waves}; ++q) total += sums[i % COUNT / {each} * {waves} + q][i % {each}][i / COUNT];"
        )
        self.keep("total")
        self._close_own()


class _Across(_Gemv):
    """The matrix runs along its rows' number: a thread sums WIDTH neighbours, GEMV_COLUMNS threads side by side."""

    title = "a thread sums neighbouring columns, the block's threads share k"

    def tune(self) -> None:
        """Narrow blocks where there is little to stand side by side: still whole 128-byte lines."""
        body, spec = self.body, self.spec
        rows = body.hint(spec.rows) * body.hint(spec.space[0])
        self.columns = body.knob(
            "GEMV_COLUMNS", side_by_side(rows, spec.width), (8, 16, 32), "threads side by side, 16 bytes each"
        )
        unroll = 4 if self.chunk <= 2 else 2
        self.unroll = body.knob("GEMV_UNROLL", unroll, (1, 2, 4), "steps along k under way at once")

    def tile(self) -> tuple[str, str]:
        """Neighbours of all threads that stand side by side."""
        return f"({self.columns} * WIDTH)", f"({self.columns} * {self.spec.width})"

    def sums(self) -> None:
        """Each thread's own k, then the sum over the threads above each other."""
        k, spec, kind = self.k, self.spec, self.k.kind
        k.line(f"constexpr int PARTS = {self.block} / {self.columns}, COUNT = {self.columns} * WIDTH;")
        k.line(f"const int lane = threadIdx.x % {self.columns}, part = threadIdx.x / {self.columns};")
        k.line(f"const {kind} n = tile * COUNT + lane * WIDTH;")
        k.line("float acc[FEW][WIDTH] = {};")
        fast = self.fast(k.wide(spec.matrix, ["b", "n", "p"], "n", str(spec.width)))
        k.open(f"if ({f'{fast} && ' if fast else ''}n + WIDTH <= {self.rows})")
        k.line(f"#pragma unroll {self.unroll}")
        self._steps(wide=True)
        k.close()
        k.open(f"else if (n < {self.rows})")
        self._steps(wide=False)
        k.close()
        self._combine()

    def _steps(self, *, wide: bool) -> None:
        k, spec, kind = self.k, self.spec, self.k.kind
        k.open(f"for ({kind} p = low + part; p < high; p += PARTS)")
        k.line("float w[WIDTH];")
        if wide:
            k.vector(spec.matrix, ["b", "n", "p"], "n", str(spec.width), "w", aligned=True)
        else:
            k.line("#pragma unroll")
            k.open("for (int v = 0; v < WIDTH; ++v)")
            k.line(f"const {kind} row = n + v < {self.rows} ? n + v : {self.rows} - 1;")
            k.line(f"w[v] = {k.load(spec.matrix, ['b', 'row', 'p'])};")
            k.close()
        self.each_vector()
        k.line(f"const float x = {k.load(spec.vectors, ['b', 'at', 'p'])};")
        k.line("#pragma unroll")
        k.line("for (int v = 0; v < WIDTH; ++v) acc[c][v] += w[v] * x;")
        k.close()
        k.close()

    def _combine(self) -> None:
        k = self.k
        k.line(f"__shared__ float sums[{self.block} * WIDTH];")
        k.line("#pragma unroll")
        k.open("for (int c = 0; c < FEW; ++c)")
        k.line("__syncthreads();  // the last vector's sums have been read")
        k.line("#pragma unroll")
        k.line("for (int v = 0; v < WIDTH; ++v) sums[threadIdx.x * WIDTH + v] = acc[c][v];")
        k.line("__syncthreads();")
        k.open(f"for (int i = threadIdx.x; i < COUNT; i += {self.block})")
        k.line(f"const {k.kind} row = tile * COUNT + i, few = few0 + c;")
        k.line(f"if (row >= {self.rows} || few >= {self.few}) continue;")
        k.line("float total = 0.0f;")
        k.line("for (int q = 0; q < PARTS; ++q) total += sums[q * COUNT + i];")
        self.keep("total")
        k.close()
        k.close()
