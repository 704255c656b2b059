"""Products of tiny matrices, a whole k for a thread: out[b, m, n] = sum_k A[b, m, k] B[b, n, k] of a short k.

What such a product takes is its waits: tiles would wait for memory, for LDS, and for one another. Here a thread makes
WIDE neighbours of a row and asks at once for all they need, which threads beside it ask for too: the nearest cache
answers. No LDS, no barrier.
"""

from __future__ import annotations

from hipwright.engine.ir.index_text import to_python
from hipwright.engine.lower.core import Tensor
from hipwright.engine.templates.base import EmittedKernel
from hipwright.engine.templates.call import CallBody
from hipwright.engine.templates.call_kernel import CallKernel, factor

NAMES = "WIDE t packs row col b acc fast p q x y at j v e"
WIDE = 4
"""Outputs of a thread, and steps along k at once."""
MOST_DEPTH, MOST_WORK = 64, 1 << 24
"""k, and multiply-adds in all, up to which this is offered."""
LATENCY, RATE = 0.8e-6, 4e12
"""Seconds of waiting, and operations a second: a rule to choose by, beside those in tiling.py, no prediction."""


def write(body: CallBody) -> list[EmittedKernel]:
    """One kernel."""
    return [_Tiny(body).kernel()]


class _Tiny:
    """body.data is gemm.py's Spec."""

    def __init__(self, body: CallBody) -> None:
        self.spec = body.data
        self.block = body.knob("TINY_BLOCK", 64, (64, 128, 256), "threads of a block of a tiny product")
        self.k: CallKernel = body.kernel("", NAMES)
        self.batch, self.m, self.n = (self.k.size(s) for s in self.spec.space)
        self.depth = self.k.size(self.spec.k)
        self.a, self.b = (t for t in body.operands if t is not None)
        self.along_k = body.made[-1].contiguous(self.b, 2)

    def kernel(self) -> EmittedKernel:
        """The text."""
        k = self.k
        self._place()
        k.line("float acc[WIDE] = {};")
        conditions = [f"{self.depth} % WIDE == 0", f"col + WIDE <= {self.n}"]
        conditions += k.wide(self.a, ["b", "row", "p"], "p", str(WIDE))
        axis, place = ("p", ["b", "at", "p"]) if self.along_k else ("col", ["b", "col", "at"])
        conditions += k.wide(self.b, place, axis, str(WIDE))
        k.open(f"if ({' && '.join(dict.fromkeys(conditions))})")
        self._steps()
        k.close()
        k.open("else")
        self._elements()
        k.close()
        self._store()
        batch, m, n = self.spec.space
        grid = f"cdiv({factor(batch)} * {factor(m)} * cdiv({to_python(n)}, {WIDE}), {self.block})"
        return k.finish(grid, self.block, f"{self.block}, 1", "a thread has some neighbours of a row")

    def _place(self) -> None:
        """This thread's matrix, row and columns."""
        k = self.k
        k.line(f"constexpr int WIDE = {WIDE};")
        k.line(f"unsigned t = blockIdx.x * {self.block} + threadIdx.x;")
        k.line(f"const unsigned packs = ({self.n} + WIDE - 1) / WIDE;")
        k.line(f"if (t >= {self.batch} * {self.m} * packs) return;")
        k.line(f"const {k.kind} col = t % packs * WIDE;")
        k.line("t /= packs;")
        k.line(f"const {k.kind} row = t % {self.m}, b = t / {self.m};")

    def _steps(self) -> None:
        """WIDE steps along k at a time, read in packs."""
        k = self.k
        k.line("#pragma unroll 4")
        k.open(f"for ({k.kind} p = 0; p < {self.depth}; p += WIDE)")
        k.line("float x[WIDE];")
        k.vector(self.a, ["b", "row", "p"], "p", str(WIDE), "x", aligned=True)
        k.line("#pragma unroll")
        k.open("for (int q = 0; q < WIDE; ++q)")
        k.line("float y[WIDE];")
        if self.along_k:
            k.line(f"const {k.kind} at = col + q;")
            k.vector(self.b, ["b", "at", "p"], "p", str(WIDE), "y", aligned=True)
            self._all("v", "acc[q] += x[v] * y[v];")
        else:
            k.line(f"const {k.kind} at = p + q;")
            k.vector(self.b, ["b", "col", "at"], "col", str(WIDE), "y", aligned=True)
            self._all("v", "acc[v] += x[q] * y[v];")
        k.close()
        k.close()

    def _elements(self) -> None:
        """One by one: any size, any place in memory."""
        k = self.k
        k.open(f"for ({k.kind} p = 0; p < {self.depth}; ++p)")
        k.line(f"const float x = {self._load(self.a, 'row')};")
        k.line("#pragma unroll")
        k.open("for (int j = 0; j < WIDE; ++j)")
        k.line(f"const {k.kind} at = col + j < {self.n} ? col + j : {self.n} - 1;")
        k.line(f"acc[j] += x * {self._factor(self._load(self.b, 'at'))};")
        k.close()
        k.close()

    def _load(self, operand: Tensor, row: str) -> str:
        return self.k.load(operand, ["b", row, "p"])

    @staticmethod
    def _factor(text: str) -> str:
        return f"({text})" if " " in text else text

    def _all(self, name: str, text: str) -> None:
        self.k.line("#pragma unroll")
        self.k.line(f"for (int {name} = 0; {name} < WIDE; ++{name}) {text}")

    def _store(self) -> None:
        k = self.k
        k.open(f"if (col + WIDE <= {self.n})")
        k.epilogue_vector("acc[v]", ["b", "row", "col"], "col", str(WIDE))
        k.close()
        k.open("else")
        k.line("#pragma unroll")
        k.open("for (int e = 0; e < WIDE; ++e)")
        k.line(f"const {k.kind} at = col + e;")
        k.line(f"if (at >= {self.n}) continue;")
        k.epilogue("acc[e]", ["b", "row", "at"])
        k.close()
        k.close()
