"""Rows of an attention by products of floats: what a kernel by parts computes again where a result is not finite."""

from __future__ import annotations

from dataclasses import dataclass

from hipwright.engine.lower.values import Tensor
from hipwright.engine.templates.attention.problem import AttentionProblem, emit_score
from hipwright.engine.templates.call_kernel import CallKernel


@dataclass(frozen=True)
class RowsByFloats:
    """Writes the rows of a wavefront for which bit r of a lane's `bad` is set, one after the other: 32 lanes share one.

    Row r of a lane is `m0 + wave * count + lane / 4 + r * 8`; keys end at `key_end`. operands: q, k, v and the mask.
    names, shared: of the indices of the leading dimensions of queries, and of keys and values.
    """

    kernel: CallKernel
    f: AttentionProblem
    operands: tuple[Tensor, Tensor, Tensor, Tensor | None]
    names: list[str]
    shared: list[str]
    count: int

    def emit(self) -> None:
        """Emits the loop over the rows."""
        kernel, f = self.kernel, self.f
        kernel.line("#pragma unroll 1")
        kernel.open(f"for (int row = 0; row < {self.count}; ++row)")
        kernel.line("const int own = __shfl((int)(bad >> (row / 8) & 1u), row % 8 * 4, 32);")
        kernel.line(f"const {kernel.kind} m = m0 + wave * {self.count} + row;")
        kernel.line(f"if (own == 0 || m >= {kernel.size(f.queries)}) continue;")
        if f.softmax:
            self._statistics()
        kernel.open("for (int column = lane; column < DV + (32 - DV % 32) % 32; column += 32)")
        kernel.line("float value = 0.0f;")
        self._open_keys()
        kernel.line(f"const float weight = {f.power('score - safe_max') if f.softmax else 'score'};")
        kernel.line("#pragma unroll 1")
        kernel.open("for (int key = 0; key < 32; ++key)")
        kernel.line("const float p = __shfl(weight, key, 32);")
        kernel.line(f"const {kernel.kind} n = n0 + key, d = column;")
        value = kernel.load(self.operands[2], [*self.shared, "n", "d"])
        kernel.line(f"if (n < key_end && column < DV) value += p * {value};")
        kernel.close()
        kernel.close()
        kernel.line("if (column >= DV) continue;")
        if f.softmax:
            kernel.line(f"const float inverse = total == 0.0f ? {f.empty(kernel)} : 1.0f / total;")
        kernel.epilogue("(value * inverse)" if f.softmax else "value", [*self.names, "m", "column"])
        kernel.close()
        kernel.close()

    def _statistics(self) -> None:
        """Declares the row's maximum, made safe, and the sum of its exponentials."""
        kernel = self.kernel
        kernel.line("float top = -INFINITY, total = 0.0f;")
        self._open_keys()
        kernel.line("top = fmaxf(top, score);")
        kernel.close()
        kernel.line("#pragma unroll")
        kernel.line("for (int c = 16; c > 0; c >>= 1) top = fmaxf(top, __shfl_xor(top, c));")
        kernel.line("const float safe_max = top == -INFINITY ? 0.0f : top;")
        self._open_keys()
        kernel.line(f"total += {self.f.power('score - safe_max')};")
        kernel.close()
        kernel.line("#pragma unroll")
        kernel.line("for (int c = 16; c > 0; c >>= 1) total += __shfl_xor(total, c);")

    def _open_keys(self) -> None:
        """Opens the loop over the keys, 32 at a time, with a lane's score: no weight where no query attends."""
        kernel, f = self.kernel, self.f
        q, k, _, mask = self.operands
        kernel.line("#pragma unroll 1")
        kernel.open(f"for ({kernel.kind} n0 = 0; n0 < key_end; n0 += 32)")
        kernel.line(f"const {kernel.kind} n = n0 + lane;")
        kernel.line(f"float score = {f.unseen};")
        kernel.open(f"if (n < key_end{' && n <= m' if f.causal else ''})")
        kernel.line("float sum = 0.0f;")
        kernel.line("#pragma unroll 1")
        kernel.open("for (int d = 0; d < D; ++d)")
        product = f"{kernel.load(q, [*self.names, 'm', 'd'])} * {kernel.load(k, [*self.shared, 'n', 'd'])}"
        kernel.line(f"sum += {product};")
        kernel.close()
        if f.scale != 1.0:
            kernel.line(f"sum *= {f.scale!r}f;")
        kernel.line(f"score = {emit_score(kernel, f, mask, self.names, 'sum')};")
        kernel.close()
