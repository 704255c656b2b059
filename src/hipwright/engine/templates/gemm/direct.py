"""Products of tiny matrices with a full k per thread: out[b, m, n] = sum_k A[b, m, k] B[b, n, k] of a short k.

Latency dominates such a product: tiles would wait for memory, for LDS, and for each other. Here a thread computes WIDTH
neighbours of a row and loads all they need at once; its neighbours load much of the same, which the nearest cache
supplies. No LDS, no barrier.
"""

from __future__ import annotations

from hipwright.engine.ir.index_text import to_python
from hipwright.engine.lower.values import Tensor
from hipwright.engine.templates.base import EmittedKernel
from hipwright.engine.templates.call import CallBody
from hipwright.engine.templates.call_kernel import CallKernel, factor

NAMES = "WIDTH thread vectors row col b acc aligned p q x y index j v e"
WIDTH = 4
"""Outputs of a thread, and steps along k at once."""
MAX_DEPTH, MAX_OPERATIONS = 64, 1 << 24
"""The largest k, and half of the most multiply-adds, for which this template is offered."""
SMALL_SIDE = 16
"""The largest k, and smaller side of the product, for which it is offered whatever the other side: points and a matrix
of 3 x 3, elements and their stiffness. The outputs of a row read it from the nearest cache.
"""
LATENCY, ASSUMED_RATE = 0.8e-6, 4e12
"""Seconds of latency and operations a second, for the static rule beside those in tiling.py."""


def write(body: CallBody) -> list[EmittedKernel]:
    """One kernel."""
    return [_DirectProduct(body).kernel()]


class _DirectProduct:
    """Writes the kernel; body.data is a GemmSpec."""

    def __init__(self, body: CallBody) -> None:
        self.spec = body.data
        self.block = body.knob("TINY_BLOCK", 64, (64, 128, 256), "threads of a block of a tiny product")
        self.k: CallKernel = body.kernel("", NAMES)
        self.batch, self.m, self.n = (self.k.size(s) for s in self.spec.space)
        self.depth = self.k.size(self.spec.k)
        self.a, self.b = (t for t in body.operands if t is not None)
        self.k_contiguous = body.kernels[-1].runs_along(self.b, 2)

    def kernel(self) -> EmittedKernel:
        """The kernel."""
        k = self.k
        self._locate_thread()
        k.line("float acc[WIDTH] = {};")
        conditions = [f"{self.depth} % WIDTH == 0", f"col + WIDTH <= {self.n}"]
        conditions += k.vector_conditions(self.a, ["b", "row", "p"], "p", str(WIDTH))
        axis, place = ("p", ["b", "index", "p"]) if self.k_contiguous else ("col", ["b", "col", "index"])
        conditions += k.vector_conditions(self.b, place, axis, str(WIDTH))
        k.open(f"if ({' && '.join(dict.fromkeys(conditions))})")
        self._emit_vectorised()
        k.close()
        k.open("else")
        self._emit_elements()
        k.close()
        self._store()
        batch, m, n = self.spec.space
        grid = f"cdiv({factor(batch)} * {factor(m)} * cdiv({to_python(n)}, {WIDTH}), {self.block})"
        return k.finish(grid, self.block, f"{self.block}, 1", "a thread computes some neighbours of a row")

    def _locate_thread(self) -> None:
        """Declares the matrix, row and columns of this thread."""
        k = self.k
        k.line(f"constexpr int WIDTH = {WIDTH};")
        k.line(f"unsigned thread = blockIdx.x * {self.block} + threadIdx.x;")
        k.line(f"const unsigned vectors = ({self.n} + WIDTH - 1) / WIDTH;")
        k.line(f"if (thread >= {self.batch} * {self.m} * vectors) return;")
        k.line(f"const {k.kind} col = thread % vectors * WIDTH;")
        k.line("thread /= vectors;")
        k.line(f"const {k.kind} row = thread % {self.m}, b = thread / {self.m};")

    def _emit_vectorised(self) -> None:
        """WIDTH steps along k at a time, with vectorised loads."""
        k = self.k
        k.line("#pragma unroll 4")
        k.open(f"for ({k.kind} p = 0; p < {self.depth}; p += WIDTH)")
        k.line("float x[WIDTH];")
        k.vector(self.a, ["b", "row", "p"], "p", str(WIDTH), "x", aligned=True)
        k.line("#pragma unroll")
        k.open("for (int q = 0; q < WIDTH; ++q)")
        k.line("float y[WIDTH];")
        if self.k_contiguous:
            k.line(f"const {k.kind} index = col + q;")
            k.vector(self.b, ["b", "index", "p"], "p", str(WIDTH), "y", aligned=True)
            self._unrolled("v", "acc[q] += x[v] * y[v];")
        else:
            k.line(f"const {k.kind} index = p + q;")
            k.vector(self.b, ["b", "col", "index"], "col", str(WIDTH), "y", aligned=True)
            self._unrolled("v", "acc[v] += x[q] * y[v];")
        k.close()
        k.close()

    def _emit_elements(self) -> None:
        """Element by element: any size and alignment."""
        k = self.k
        k.open(f"for ({k.kind} p = 0; p < {self.depth}; ++p)")
        k.line(f"const float x = {self._load(self.a, 'row')};")
        k.line("#pragma unroll")
        k.open("for (int j = 0; j < WIDTH; ++j)")
        k.line(f"const {k.kind} index = col + j < {self.n} ? col + j : {self.n} - 1;")
        k.line(f"acc[j] += x * {self._parenthesised(self._load(self.b, 'index'))};")
        k.close()
        k.close()

    def _load(self, operand: Tensor, row: str) -> str:
        return self.k.load(operand, ["b", row, "p"])

    @staticmethod
    def _parenthesised(text: str) -> str:
        return f"({text})" if " " in text else text

    def _unrolled(self, name: str, text: str) -> None:
        self.k.line("#pragma unroll")
        self.k.line(f"for (int {name} = 0; {name} < WIDTH; ++{name}) {text}")

    def _store(self) -> None:
        k = self.k
        k.open(f"if (col + WIDTH <= {self.n})")
        k.epilogue_vector("acc[v]", ["b", "row", "col"], "col", str(WIDTH))
        k.close()
        k.open("else")
        k.line("#pragma unroll")
        k.open("for (int e = 0; e < WIDTH; ++e)")
        k.line(f"const {k.kind} index = col + e;")
        k.line(f"if (index >= {self.n}) continue;")
        k.epilogue("acc[e]", ["b", "row", "index"])
        k.close()
        k.close()
