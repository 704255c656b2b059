"""Rows of an attention by products of floats: what a kernel by parts computes again where a result is not finite."""

from __future__ import annotations

from hipwright.engine.lower.values import Tensor
from hipwright.engine.templates.attention.problem import AttentionProblem, emit_score
from hipwright.engine.templates.call_kernel import CallKernel


def emit_rows_by_floats(
    kernel: CallKernel,
    f: AttentionProblem,
    operands: tuple[Tensor, Tensor, Tensor, Tensor | None],
    names: list[str],
    shared: list[str],
) -> None:
    """Emits the rows of a wavefront for which a lane's `bad[r]` holds, one after the other: 32 lanes share a row.

    Row r of a lane is `m0 + wave * 16 + lane / 4 + r * 8`; keys end at `key_end`.
    """
    kernel.line("#pragma unroll 1")
    kernel.open("for (int row = 0; row < 16; ++row)")
    kernel.line("const int own = __shfl((int)bad[row / 8], row % 8 * 4, 32);")
    kernel.line(f"const {kernel.kind} m = m0 + wave * 16 + row;")
    kernel.line(f"if (own == 0 || m >= {kernel.size(f.queries)}) continue;")
    _emit_statistics(kernel, f, operands, names, shared)
    kernel.open("for (int column = lane; column < DV + (32 - DV % 32) % 32; column += 32)")
    kernel.line("float value = 0.0f;")
    kernel.line("#pragma unroll 1")
    kernel.open(f"for ({kernel.kind} n0 = 0; n0 < key_end; n0 += 32)")
    _emit_dot(kernel, f, operands, names, shared)
    kernel.line(f"const float weight = {f.power('score - safe_max')};")
    kernel.line("#pragma unroll 1")
    kernel.open("for (int key = 0; key < 32; ++key)")
    kernel.line("const float p = __shfl(weight, key, 32);")
    kernel.line(f"const {kernel.kind} n = n0 + key, d = column;")
    kernel.line(f"if (n < key_end && column < DV) value += p * {kernel.load(operands[2], [*shared, 'n', 'd'])};")
    kernel.close()
    kernel.close()
    kernel.line("if (column >= DV) continue;")
    kernel.line(f"const float inverse = total == 0.0f ? {f.empty(kernel)} : 1.0f / total;")
    kernel.epilogue("(value * inverse)", [*names, "m", "column"])
    kernel.close()
    kernel.close()


def _emit_statistics(
    kernel: CallKernel,
    f: AttentionProblem,
    operands: tuple[Tensor, Tensor, Tensor, Tensor | None],
    names: list[str],
    shared: list[str],
) -> None:
    """Declares the row's maximum, made safe, and the sum of its exponentials."""
    kernel.line("float top = -INFINITY, total = 0.0f;")
    for second in (False, True):
        if second:
            kernel.line("#pragma unroll")
            kernel.line("for (int c = 16; c > 0; c >>= 1) top = fmaxf(top, __shfl_xor(top, c));")
            kernel.line("const float safe_max = top == -INFINITY ? 0.0f : top;")
        kernel.line("#pragma unroll 1")
        kernel.open(f"for ({kernel.kind} n0 = 0; n0 < key_end; n0 += 32)")
        _emit_dot(kernel, f, operands, names, shared)
        kernel.line(f"total += {f.power('score - safe_max')};" if second else "top = fmaxf(top, score);")
        kernel.close()
    kernel.line("#pragma unroll")
    kernel.line("for (int c = 16; c > 0; c >>= 1) total += __shfl_xor(total, c);")


def _emit_dot(
    kernel: CallKernel,
    f: AttentionProblem,
    operands: tuple[Tensor, Tensor, Tensor, Tensor | None],
    names: list[str],
    shared: list[str],
) -> None:
    """Declares a lane's score: that of key n0 + lane, -inf where the query does not attend."""
    q, k, _, mask = operands
    kernel.line(f"const {kernel.kind} n = n0 + lane;")
    kernel.line("float score = -INFINITY;")
    kernel.open(f"if (n < key_end{' && n <= m' if f.causal else ''})")
    kernel.line("float sum = 0.0f;")
    kernel.line("#pragma unroll 1")
    kernel.open("for (int d = 0; d < D; ++d)")
    kernel.line(f"sum += {kernel.load(q, [*names, 'm', 'd'])} * {kernel.load(k, [*shared, 'n', 'd'])};")
    kernel.close()
    if f.scale != 1.0:
        kernel.line(f"sum *= {f.scale!r}f;")
    kernel.line(f"score = {emit_score(kernel, f, mask, names, 'sum')};")
    kernel.close()
