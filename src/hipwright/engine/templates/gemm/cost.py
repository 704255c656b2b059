"""Estimated times of a product by each template and by the library, from which the default is chosen.

Round figures of one H200 (bytes/s, operations/s, s): measured copy 4.2e12, cuBLAS float32 51e12. More in tiling.py.
"""

from __future__ import annotations

from math import ceil, prod

from hipwright.engine.ir.expr import HALVES, walk
from hipwright.engine.ir.index import Ind, Var
from hipwright.engine.lower.values import Tensor
from hipwright.engine.templates.gemm import direct, full_k, gemv_plan, split_precision
from hipwright.engine.templates.gemm.contraction import MatrixProduct
from hipwright.engine.templates.gemm.tiling import CACHE_RATE, COMPUTE_UNITS, LAUNCH, ProductShape, choose, seconds
from hipwright.engine.templates.offers import KernelCall, probe

ITEM_BYTES = {"float64": 8, "int64": 8, "float32": 4, "int32": 4, "float16": 2, "bfloat16": 2, "int16": 2}
READ_RATE, LIBRARY_READ_RATE, LIBRARY_GEMV_READ_RATE = 3.8e12, 3.3e12, 3.0e12
SKINNY_READ_RATE = 3.4e12
"""Bytes a second of half types on matrix units of few vectors: 4864 x 896 of 8 took an H200 3.4 us with the launch. No
AMD GPU has measured it.
"""
GEMV_RATE = 30e12
HALF_GEMV_RATE, HALF_VECTORS = 9e12, 4
"""Operations a second of half types, converted for each of more vectors than so many: 4864 x 896 of 8 took an H200 7.8
us.
"""
SHUFFLES, SHUFFLE_RATE = 5, 2e11
"""Shuffles by which 32 lanes add up one output of a gemv, and those of a wavefront that a device does in a second: 132
multiprocessors, one each cycle at 1.7 GHz (data sheet of the H100). They bound many outputs of a short k.
"""
PARTS_RATE = 200e12
"""Operations a second of TF32 products of float32 parts with few vectors; an assumption."""
LIBRARY_RATE = {"float32": 45e12, "float16": 500e12, "bfloat16": 500e12}
FLOAT8_RATE = 250e12
"""Operations a second of tiles of 8-bit floats by MFMA: a tenth of the MI300X's peak (2614.9e12); an assumption that
nothing has measured.
"""
LIBRARY_LATENCY, GEMV_LATENCY = 2e-6, 1.5e-6
SCATTERED_RATE = 1.3e10
"""Loads a second, of 32 lanes each, of neighbours along k that lie apart: 16 columns of a matrix of k x 16 halves took
an H200 6.6 us of 2048 x 128 (65536 such loads), where the library took 2.6.
"""
HALF_START, UNEVEN = 2.0e-6, 2.0
"""Seconds by which tiles of half types last longer than tiling.py estimates: 128 x 128 x 128 took an H200 3.4 us, the
library 2.3; and how often longer where rows of an operand are no multiple of 16 bytes: 255 x 255 x 255 took 11.1 and
4.6. In a chain of 128 x 256 x 256 with Mish each took 5.4, the library 2.7 and a kernel for the rest 1.3.
"""
SHORT_DEPTH, SLICED_SIDE, SLICE_DEPTH = 2048, 128, 256
"""The k below which the library's float32 products of fewer rows or columns than SLICED_SIDE are taken not to split it
if k is the contiguous dimension of both matrices (linear layers); and the least k of a slice of others, whose sums a
second kernel adds: 128 x 1024 x 1000 took an H200 10.1 and 3.7 us so, where tiles of 16 rows took 20.5, of k = 512 7.2
and 2.2, and 10.5; 48 x 1000 x 1020 of contiguous columns 7.8 and 1.8, and 12.7.
"""
MARGIN = 0.9
"""A template's time must be below this share of the library's."""


class ProductCost:
    """Estimated seconds of one product by each template and by the library, at the captured sizes."""

    def __init__(self, call: KernelCall, p: MatrixProduct) -> None:
        self.c, self.p = call.c, p
        self.batch, self.m, self.n = call.hints(p.space)
        self.k = call.c.hint(p.k)
        self.shape = ProductShape(self.batch, self.m, self.n, self.k, p.dtype)
        self.read_by_pointwise = call.read_by_pointwise
        item = ITEM_BYTES[p.dtype]
        self.output_bytes = self.batch * self.m * self.n * item
        self.bytes = self.output_bytes + sum(map(self._operand_bytes, (p.a, p.b)))
        self.materialised_bytes = sum(2 * self.c.numel_hint(t.shape) * item for t in (p.a, p.b) if self._is_computed(t))
        self.in_chain = call.reads_activation and p.dtype in HALVES
        self.flops = 2.0 * self.batch * self.m * self.n * self.k

    def _operand_bytes(self, t: Tensor) -> int:
        """Bytes that reading the operand in place moves. Places at which it is read may be one for each of its rows."""
        most, element = self.c.numel_hint(t.shape), probe(self.c, t)
        loads = [e for e in walk([element]) if e.op == "load"]
        places = {place.id for e in loads for place in walk(e.args)}
        moved: dict[str, int] = {}
        for e in loads:
            sizes = [self.c.hint(a.size) for a in e.attr[1].atoms() if isinstance(a, Var) and a.size]
            count = min(prod(sizes), most) if e.id in places else most
            moved[e.attr[0]] = max(moved.get(e.attr[0], 0), count * ITEM_BYTES.get(e.attr[2], 1))
        return sum(moved.values())

    def _is_computed(self, t: Tensor) -> bool:
        """Whether the library needs the operand computed, or gathered, by a kernel before."""
        element = probe(self.c, t)
        return element.op != "load" or any(isinstance(a, Ind) for a in element.attr[1].atoms())

    def library(self, *, before: bool = True) -> float:
        """The library's product, a kernel for a computed operand, and one for the pointwise operators that follow.

        before: with the kernel of the operand; without it where that kernel follows a product that is charged for it.
        """
        is_gemv = min(self.m, self.n) <= gemv_plan.VECTOR_CHUNK
        rate = LIBRARY_RATE[self.p.dtype] * self._share()
        if self.p.dtype == "float32":
            if self.batch > 1 and (max(self.m, self.n) <= 64 or max(min(self.m, self.n), self.k) <= 64):
                rate /= 2  # partly empty tiles, or a k shorter than the pipeline
            if self.batch > 1 and (self.n % 4 or self.k % 4):
                rate /= 2  # no vectorised loads
            if 64 < (side := min(self.m, self.n)) < 128:
                rate *= side / 128  # of two tiles of 64: 409600 x 80 x 256 took an H200 587 us
        elif self.batch > 1 and max(self.m, self.n) <= 64:
            rate /= 2
        read = LIBRARY_GEMV_READ_RATE if is_gemv else LIBRARY_READ_RATE
        seconds = LAUNCH + max(LIBRARY_LATENCY, self.flops / rate, self.bytes / read)
        if (slices := self._library_slices()) > 1:
            seconds += LAUNCH + 8.0 * slices * self.m * self.n / CACHE_RATE
        if self.materialised_bytes and before:
            seconds += LAUNCH + self.materialised_bytes / READ_RATE
        return seconds + (LAUNCH + 2 * self.output_bytes / READ_RATE if self.read_by_pointwise else 0.0)

    def gemv(self, spec: gemv_plan.GemvSpec) -> float:
        """Bound by memory, from two rows on also by the vector units. The matrix is read once for VECTOR_CHUNK vectors;
        split-k adds a kernel, and its partials are written and read.
        """
        rows, vectors = self.c.hint(spec.rows), self.c.hint(spec.vector_count)
        split = gemv_plan.default_split(self.batch, rows, vectors, self.k, spec)
        second = LAUNCH + 8.0 * split * self.batch * self.m * self.n / CACHE_RATE if split > 1 else 0.0
        passes = ceil(vectors / gemv_plan.VECTOR_CHUNK)
        sums = SHUFFLES * self.batch * rows * vectors / SHUFFLE_RATE if spec.k_contiguous else 0.0
        latency = max(GEMV_LATENCY, self._scattered(spec, rows, vectors))
        rate = HALF_GEMV_RATE if self.p.dtype in HALVES and vectors > HALF_VECTORS else GEMV_RATE
        return LAUNCH + max(latency, passes * self.bytes / READ_RATE, self.flops / rate, sums) + second

    def skinny(self) -> float:
        """On matrix units, of few vectors: the bytes of the matrix, of float32 also three products of its parts."""
        parts = 3 * self.flops / PARTS_RATE if self.p.dtype == "float32" else 0.0
        return LAUNCH + max(GEMV_LATENCY, self.bytes / SKINNY_READ_RATE, parts)

    def _scattered(self, spec: gemv_plan.GemvSpec, rows: int, vectors: int) -> float:
        """What lanes wait for vectors apart along k, of more than VECTOR_CHUNK; of fewer nothing is measured."""
        if not spec.k_contiguous or vectors <= gemv_plan.VECTOR_CHUNK or gemv_plan.width_along(self.c, spec.vectors, 2):
            return 0.0
        group_rows, _ = gemv_plan.lane_groups(self.batch * rows, self.k, gemv_plan.VECTOR_CHUNK, spec.width)
        steps = ceil(self.k / (32 * spec.width))
        return self.batch * ceil(rows / group_rows) * steps * spec.width * vectors / SCATTERED_RATE

    def direct(self) -> float:
        """A latency that is waited for once, or the operations, or the bytes."""
        return LAUNCH + max(direct.LATENCY, self.flops / direct.ASSUMED_RATE, self.bytes / LIBRARY_READ_RATE)

    def full_k(self) -> float:
        """All of k in LDS at once."""
        return full_k.seconds(self.shape)

    def gemm(self) -> float:
        """Tiles on the vector units. Only CDNA uses matrix units for float32; they are left out."""
        tiles = seconds(self.shape, choose(self.shape))
        if self.p.dtype != "float32":
            tiles = LAUNCH + HALF_START + (tiles - LAUNCH) * (UNEVEN if self._is_uneven() else 1.0)
        return max(tiles, LAUNCH + self.bytes / LIBRARY_READ_RATE)

    def _is_uneven(self) -> bool:
        """Whether rows of an operand as it lies are no multiple of 16 bytes."""
        sides = [
            self.k if gemv_plan.width_along(self.c, t, 2) else self.c.hint(t.shape[1]) for t in (self.p.a, self.p.b)
        ]
        return any(side * ITEM_BYTES[self.p.dtype] % 16 for side in sides)

    def float8(self) -> float:
        """Codes on AMD's matrix units: the operations at the assumed rate, or the bytes."""
        rate = FLOAT8_RATE * self._share()
        return LAUNCH + max(LIBRARY_LATENCY, self.flops / rate, self.bytes / LIBRARY_READ_RATE)

    def conversions(self) -> float:
        """What the library needs before its product of operands that lie in memory as 8-bit floats: a wider copy."""
        return LAUNCH + sum(3 * self.c.numel_hint(t.shape) for t in (self.p.a, self.p.b)) / READ_RATE

    def _share(self) -> float:
        """The share of the compute units that have work, where k may be split, too.

        The library's float32 tiles are of 64 x 64, and it does not split a short k: 64 x 1280 x 1280 took an H200 14 us
        longer by it than by tiles of 16 rows, for which `gemm` gives 17.6 us.
        """
        side, depth = (64, SHORT_DEPTH) if self._is_short() else (32, 512)
        blocks = self.batch * ceil(self.m / side) * ceil(self.n / side) * ceil(self.k / depth)
        return min(1.0, blocks * self._library_slices() / COMPUTE_UNITS)

    def _is_short(self) -> bool:
        return self.p.dtype == "float32" and self.k < SHORT_DEPTH

    def _library_slices(self) -> int:
        """The slices into which the library divides a short k of few large tiles."""
        if not self._is_short() or self.batch > 1:
            return 1
        if min(self.m, self.n) < SLICED_SIDE and all(gemv_plan.width_along(self.c, t, 2) for t in (self.p.a, self.p.b)):
            return 1
        tiles = ceil(self.m / 64) * ceil(self.n / 64)
        return max(min(self.k // SLICE_DEPTH, COMPUTE_UNITS // tiles), 1)

    def split(self) -> float:
        """Half parts on matrix units."""
        packed = (self._is_parameter(self.p.a), self._is_parameter(self.p.b))
        return split_precision.seconds(self.shape, packed)

    def _is_parameter(self, t: Tensor) -> bool:
        """Whether `prepare` packs the operand."""
        e = probe(self.c, t)
        return e.op == "load" and e.attr[0] in self.c.parameters
