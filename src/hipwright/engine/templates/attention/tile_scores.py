"""A tile of attention by tensor cores: its products, what a module makes of them, and the sum of the values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hipwright.engine.ir.expr import walk
from hipwright.engine.ir.index import Var, ix
from hipwright.engine.lower.values import Tensor
from hipwright.engine.templates.attention.problem import LOG2E, AttentionProblem, emit_score
from hipwright.engine.templates.call_kernel import CallKernel

HERE = "score[g][t]"


@dataclass(frozen=True)
class TileScores:
    """Writes the scores of the tile in `score[g][t][i]`: of query lane / 4 + i / 2 * 8 of group g of a wavefront, and
    of key lane % 4 * 2 + i % 2 of the 8 keys t.

    scaled: whether the products are scaled already. names: of the indices of the leading dimensions of queries.
    """

    kernel: CallKernel
    f: AttentionProblem
    mask: Tensor | None
    names: Sequence[str]
    scaled: bool

    def emit(self) -> None:
        """Emits two paths: a tile inside the problem by pairs of keys without tests, others by elements."""
        kernel = self.kernel
        kernel.open(f"if ({' && '.join(self._whole())})")
        if self.mask is not None or self._value("i") != f"{HERE}[i]":
            self._pairs()
        kernel.close()
        kernel.open("else")
        self._elements()
        kernel.close()

    def _whole(self) -> list[str]:
        """The conditions of the path by pairs, which are the same for all threads."""
        kernel, f = self.kernel, self.f
        tests = [f"m0 + ROWS <= {kernel.size(f.queries)}", f"n0 + KEYS <= {kernel.size(f.keys)}"]
        tests += ["n0 + KEYS <= m0 + 1"] if f.causal else []
        return tests + (kernel.vector_conditions(self.mask, self._place(), "n", "2") if self.mask is not None else [])

    def _place(self) -> list[str]:
        assert self.mask is not None
        return [*self.names, "m", "n"][len(self.names) + 2 - self.mask.rank :]

    def _value(self, i: str) -> str:
        """The scaled product, as C text."""
        return f"{HERE}[{i}]" if self.scaled or self.f.scale == 1.0 else f"({HERE}[{i}] * {self.f.scale!r}f)"

    def _pairs(self) -> None:
        kernel, mask, f = self.kernel, self.mask, self.f
        self._open("for (int i = 0; i < 4; i += 2)", "")
        kernel.line("float pair[2];")
        if mask is None:
            text = f"pair[v] = {self._value('i + v')};"
        elif f.scores is not None:
            for e in walk([mask.at([ix(Var(f"p{k}", s)) for k, s in enumerate(mask.shape)])]):
                if e.op == "row":
                    kernel.rows[e.attr] = self._value("i + v")
            text = ""
        elif mask.dtype == "bool":
            text = f"pair[v] = pair[v] != 0.0f ? {self._value('i + v')} : -INFINITY;"
        else:
            text = f"pair[v] = {self._value('i + v')} + pair[v] * {LOG2E!r}f;"
        if mask is not None:
            kernel.vector(mask, self._place(), "n", "2", "pair", aligned=True)
        if text:
            kernel.line("#pragma unroll")
            kernel.line(f"for (int v = 0; v < 2; ++v) {text}")
        kernel.line(f"{HERE}[i] = pair[0], {HERE}[i + 1] = pair[1];")
        self._close()

    def _elements(self) -> None:
        kernel, f = self.kernel, self.f
        self._open("for (int i = 0; i < 4; ++i)", " + i % 2")
        kernel.line(f"float value = {f.unseen};")
        seen = f"m < {kernel.size(f.queries)} && n < {kernel.size(f.keys)}"
        kernel.open(f"if ({seen}{' && n <= m' if f.causal else ''})")
        kernel.line(f"value = {emit_score(kernel, f, self.mask, self.names, self._value('i'))};")
        kernel.close()
        kernel.line(f"{HERE}[i] = value;")
        self._close()

    def _open(self, each: str, more: str) -> None:
        """Opens the loops over groups, keys and elements, with the query and the key of each."""
        kernel = self.kernel
        for loop in ("for (int g = 0; g < GROUPS; ++g)", "for (int t = 0; t < KEYS / 8; ++t)", each):
            kernel.line("#pragma unroll")
            kernel.open(loop)
        kernel.line(f"const {kernel.kind} m = m0 + (wave * GROUPS + g) * 16 + lane / 4 + i / 2 * 8;")
        kernel.line(f"const {kernel.kind} n = n0 + t * 8 + lane % 4 * 2{more};")

    def _close(self) -> None:
        for _ in range(3):
            self.kernel.close()


PRODUCTS = """float score[GROUPS][KEYS / 8][4] = {};
#pragma unroll
for (int t = 0; t < KEYS / 8; t += 2) {
    float rest[GROUPS][2][4] = {};
#pragma unroll
    for (int j = 0; j < D / 16; ++j) {
        unsigned b[PARTS][4];
        load_columns_pair<false>(b, k_tile + t * 8 * KSTRIDE + j * 16, KPLANE, KSTRIDE, lane);
#pragma unroll
        for (int g = 0; g < GROUPS; ++g) {
            split_multiply<Part>(score[g][t], rest[g][0], queries[g][j], b, 0, lane);
            split_multiply<Part>(score[g][t + 1], rest[g][1], queries[g][j], b, 1, lane);
        }
    }
    if (PARTS > 1) {
#pragma unroll
        for (int i = 0; i < 4; ++i) score[0][t][i] += rest[0][0][i], score[0][t + 1][i] += rest[0][1][i];
    }
}"""

SOFTMAX = """#pragma unroll
for (int r = 0; r < 2 * GROUPS; ++r) {
    const int g = r / 2, i = r % 2 * 2;
    const float old_max = row_max[r];
#pragma unroll
    for (int t = 0; t < KEYS / 8; ++t) row_max[r] = fmaxf(row_max[r], fmaxf(score[g][t][i], score[g][t][i + 1]));
#pragma unroll
    for (int c = 1; c < 4; c <<= 1) row_max[r] = fmaxf(row_max[r], __shfl_xor(row_max[r], c));
    const float safe_max = row_max[r] == -INFINITY ? 0.0f : row_max[r];
    if (row_max[r] != old_max) {
        const float rescale = @RESCALE@;
        row_sum[r] *= rescale;
#pragma unroll
        for (int t = 0; t < DV / 8; ++t) out[g][t][i] *= rescale, out[g][t][i + 1] *= rescale;
    }
#pragma unroll
    for (int t = 0; t < KEYS / 8; ++t) {
#pragma unroll
        for (int c = 0; c < 2; ++c) {
            score[g][t][i + c] = @P@;
            row_sum[r] += score[g][t][i + c];
        }
    }
}"""

VALUES = """unsigned weights[GROUPS][KEYS / 16][PARTS][4];
#pragma unroll
for (int j = 0; j < GROUPS * (KEYS / 16); ++j) {
    const int g = j / (KEYS / 16), t = j % (KEYS / 16);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        unsigned words[PARTS];
        split_pair<Part>(words, score[g][2 * t + i / 2][i % 2 * 2], score[g][2 * t + i / 2][i % 2 * 2 + 1]);
#pragma unroll
        for (int p = 0; p < PARTS; ++p) weights[g][t][p][i] = words[p];
    }
}
#pragma unroll
for (int t = 0; t < DV / 8; t += 2) {
    float rest[GROUPS][2][4] = {};
#pragma unroll
    for (int j = 0; j < KEYS / 16; ++j) {
        unsigned b[PARTS][4];
        load_columns_pair<true>(b, v_tile + j * 16 * VSTRIDE + t * 8, VPLANE, VSTRIDE, lane);
#pragma unroll
        for (int g = 0; g < GROUPS; ++g) {
            split_multiply<Part>(out[g][t], rest[g][0], weights[g][j], b, 0, lane);
            split_multiply<Part>(out[g][t + 1], rest[g][1], weights[g][j], b, 1, lane);
        }
    }
    if (PARTS > 1) {
#pragma unroll
        for (int i = 0; i < 4; ++i) out[0][t][i] += rest[0][0][i], out[0][t + 1][i] += rest[0][1][i];
    }
}"""

__all__ = ["PRODUCTS", "SOFTMAX", "VALUES", "TileScores"]
