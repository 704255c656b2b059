"""Products of two operands of 8-bit floats by matrix units: `_scaled_mm`, and 8-bit floats that a graph converts.

The tiles of tiled.py and sliced_k.py with codes in LDS, one byte each, so half of what conversion to a half type moves.
MFMA multiplies 32 of k by one instruction (`16x16x32_fp8_fp8` and its mixes with e5m2), in runs for gfx950 alone 128
(`16x16x128_f8f6f4` without scales). The instructions of gfx942 know FNUZ forms, those of gfx950 OCP's: what codes of
other forms become is in the header float8_product.h, so that one text is right on every GPU. Sums are float. Scales
that do not depend on k, of `_scaled_mm` or multiplied with an operand in the graph, are factors of the sum.

On NVIDIA from compute capability 8.9, tiles of 64 and 128 of two OCP operands with contiguous k use `mma.sync.m16n8k32`
(tensor_cores.py); its sums are added as floats every 64 of k, as tensor cores add 8-bit products roughly (DeepSeek-V3,
arXiv:2412.19437, section 3.3.2). Elsewhere the vector units multiply the values as floats.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from hipwright.engine.ir.expr import HALVES, ROUNDING, STORAGE, E
from hipwright.engine.ir.index import ONE, ZERO, ix
from hipwright.engine.knobs import CDNA4, FLOAT8_UNITS
from hipwright.engine.lower.context import LoweringContext
from hipwright.engine.lower.values import Index, Tensor
from hipwright.engine.templates.base import EmittedKernel
from hipwright.engine.templates.call import CallBody
from hipwright.engine.templates.call_kernel import CallKernel
from hipwright.engine.templates.gemm import tensor_cores
from hipwright.engine.templates.gemm.contraction import MatrixProduct, product_of
from hipwright.engine.templates.gemm.cost import MARGIN, ProductCost
from hipwright.engine.templates.gemm.gemv_plan import VECTOR_CHUNK
from hipwright.engine.templates.gemm.operand import ProductOperand
from hipwright.engine.templates.gemm.scope import GemmScope, GemmSpec, tile_knobs
from hipwright.engine.templates.gemm.sliced_k import LargeTileGemm, SlicedKGemm, chosen_tiling
from hipwright.engine.templates.gemm.tiling import LARGE, Tiling
from hipwright.engine.templates.offers import KernelCall, Offer, Output, regroup
from hipwright.float8 import FLOAT8
from hipwright.targets import OFFLINE

_FORMS = {ROUNDING[dtype]: dtype for dtype in FLOAT8}
"""The rounding functions of expressions, and the forms to which they round."""
_HALF_ROUNDING = tuple(ROUNDING[dtype] for dtype in HALVES)
_SCALE = "CODE_SCALE"
NAMES = f"TA TB FORM_A FORM_B {_SCALE}"
"""Identifiers that the emitted kernels declare besides those of other products."""


@dataclass(eq=False)
class Float8Spec(GemmSpec):
    """A product of codes: `dtype` is the form of A, `other` that of B."""

    other: str


@dataclass(eq=False)
class Codes:
    """An operand [batch, rows, k] of codes, times a factor for each row ([batch, rows, 1]; None for 1)."""

    codes: Tensor
    factor: Tensor | None


# ---------------------------------------------------------------- the offer


def float8_product(call: KernelCall) -> Offer | None:
    """The offer "float8": both operands are 8-bit floats, maybe times factors that do not depend on k."""
    p = product_of(call)
    if p is None or ZERO in p.space:
        return None
    a, b = codes_of(call.c, p.a), codes_of(call.c, p.b)
    if a is None or b is None:
        return None
    scaled = a.factor is not None or b.factor is not None
    data: Any = Float8Spec(p.space, p.k, a.codes.dtype, b.codes.dtype)
    return Offer(
        "float8",
        write,
        [a.codes, b.codes],
        [Output(p.space, dtype="float32", shape=list(p.shape)) if scaled else p.output],
        _is_default(call, p, (a.codes.dtype, b.codes.dtype)),
        _finish(call, p, a, b) if scaled else p.finish,
        store_above=-1,  # codes that are computed are stored: a tile holds them as memory does
        data=data,
    )


def codes_of(c: LoweringContext, t: Tensor) -> Codes | None:
    """The operand in this form; None where it has none."""
    rows = [ix(c.arena.var("p", size)) for size in t.shape[:2]]
    first, second = (list(_parts(t.at([*rows, ix(c.arena.var("k", t.shape[2]))]))) for _ in range(2))
    for number, ((code, factors), (_, others)) in enumerate(zip(first, second, strict=True)):
        if all(x is y for x, y in zip(factors, others, strict=True)):  # equal expressions are one object
            return _chosen(c, t, number, _form(code), bool(factors))
    return None


def _parts(e: E) -> Iterator[tuple[E, list[E]]]:
    """The ways in which an element is a code times factors: (the code, the factors). Rounding of a dequantised half is
    left out: the sum of exact products is nearer to what the reference computes.
    """
    if _form(e):
        yield e, []
    elif e.op == "fn" and e.attr in _HALF_ROUNDING:
        yield from _parts(e.args[0])
    elif e.op == "bin" and e.attr == "*" and e.ctype == "float":
        for one, other in (e.args, e.args[::-1]):
            for code, factors in _parts(one):
                yield code, [*factors, other]


def _form(e: E) -> str:
    """The form of a code: an 8-bit float in memory, or a value rounded to one; "" for anything else."""
    if e.op == "load":
        return e.attr[2] if e.attr[2] in FLOAT8 else ""
    return _FORMS.get(e.attr, "") if e.op == "fn" else ""


def _chosen(c: LoweringContext, t: Tensor, number: int, form: str, has_factors: bool) -> Codes:
    """The operand by its decomposition `number`."""

    def parts(index: Index) -> tuple[E, list[E]]:
        return list(_parts(t.at(index)))[number]

    def factor(index: Index) -> E:
        first, *rest = parts([*index[:2], ZERO])[1]
        for other in rest:
            first = c.arena.binary("*", first, other)
        return first

    codes = c.tensor(form, t.shape, lambda index: parts(index)[0])
    return Codes(codes, c.tensor("float32", [*t.shape[:2], ONE], factor) if has_factors else None)


def _finish(call: KernelCall, p: MatrixProduct, a: Codes, b: Codes) -> Callable[[Tensor], Tensor]:
    """Multiplies the stored sums with the operands' factors, before what the product itself does to them. Where a
    factor is not finite, the terms are added as the graph has them: 0 times infinity is no number.
    """
    c, meta = call.c, call.outs[0]
    dtype = p.stored or (meta.dtype if meta else p.dtype)

    def factor(index: Index) -> E:
        given = [(one.factor, index[row]) for one, row in ((a, 1), (b, 2)) if one.factor is not None]
        first, *rest = (factor.at([index[0], row, ZERO]) for factor, row in given)
        return c.arena.binary("*", first, rest[0]) if rest else first

    def terms(index: Index) -> E:
        k = c.arena.var("k", p.k)
        x, y = (t.at([index[0], index[row], ix(k)]) for t, row in ((p.a, 1), (p.b, 2)))
        return c.arena.loop("sum", [k], [(ZERO, p.k)], c.arena.binary("*", x, y))

    def finish(stored: Tensor) -> Tensor:
        factors, sums = (regroup(c, c.tensor("float32", p.space, of), stored.shape) for of in (factor, terms))

        def at(index: Index) -> E:
            x = c.arena.cast(factors.at(index), "float")
            zero = c.arena.const(0.0, "float")
            is_finite = c.arena.binary("==", c.arena.binary("*", x, zero), zero, "bool")
            return c.arena.guard(is_finite, c.arena.binary("*", stored.at(index), x), sums.at(index))

        out = c.tensor(dtype, stored.shape, at)
        return p.finish(out) if p.finish else out

    return finish


def _is_default(call: KernelCall, p: MatrixProduct, forms: tuple[str, str]) -> bool:
    """In runs whose GPUs all have such an instruction, where the library has no such kernel and is estimated slower."""
    units = [name for name in str(call.choices.get(FLOAT8_UNITS, "")).split(",") if name]
    costs = ProductCost(call, p)
    if not units or min(costs.m, costs.n) <= VECTOR_CHUNK:
        return False
    if p.offered_alone:  # the library's operator: it has a kernel where the forms are the architecture's own
        return not all(set(forms) <= set(OFFLINE[name].matrix_float8) for name in units)
    return costs.float8() < min(costs.gemm(), MARGIN * (costs.library() + costs.conversions()))


# ---------------------------------------------------------------- the kernels


def write(body: CallBody) -> list[EmittedKernel]:
    """One kernel, or two with split-k."""
    tiling, split = chosen_tiling(body)
    return (SlicedFloat8 if tiling.small else LargeFloat8)(body, tiling, split).kernels()


class Float8Operand(ProductOperand):
    """An operand whose codes are made those of the matrix unit on the way to LDS."""

    def store_to_lds(self, k: CallKernel, g: GemmScope) -> None:
        """Under MFMA the codes of the registers change first (float8_product.h)."""
        k.emit.directive("#if GEMM_MFMA")
        k.line("#pragma unroll")
        other = f"FORM_{'B' if self.name == 'a' else 'A'}"
        k.line(f"for (int l = 0; l < {self.per_thread}; ++l) to_matrix_codes<{other}, MFMA_K>({self.registers}[l]);")
        k.emit.directive("#endif")
        super().store_to_lds(k, g)

    def swizzled_index(self, r: str, kk: str) -> str:
        """Of the first of 16 codes: two lie where tensor_cores.py has one of a half type."""
        return f"2 * k_contiguous_index({r}, ({kk}) / 2)"


class _Float8Tiles(LargeTileGemm):
    """What both kinds of tiles have in common."""

    spec: Float8Spec

    def __init__(self, body: CallBody, tiling: Tiling, split: int) -> None:
        self.body = body
        super().__init__(body, tiling, split)
        self.types = ("T", "T") if self.dtypes[0] == self.dtypes[1] else ("TA", "TB")
        if body.call.choices.get(CDNA4):
            self.mfma_k = body.knob("GEMM_MFMA_K", 128, (32, 128), "k of a matrix instruction of AMD's")

    @property
    def dtypes(self) -> tuple[str, str]:
        """The forms of both operands."""
        return self.spec.dtype, self.spec.other

    def tile_operands(self) -> list[ProductOperand]:
        """A and B, each in its form."""
        (a, b), (of_a, of_b) = self.tensors, self.dtypes
        return [
            Float8Operand("a", a, "row", self.m, self.bm, dtype=of_a),
            Float8Operand("b", b, "col", self.n, self.bn, dtype=of_b),
        ]

    def declare_types(self) -> None:
        """Declares T, or TA and TB, of one byte, and the forms of the codes."""
        k = self.k
        k.use("float8_product.h")
        k.line(f"using T = {self.storage};")
        if self.types[0] != "T":
            k.line("using TA = T;")
            k.line(f"using TB = {STORAGE[self.dtypes[1]]};")
        a, b = (f"FLOAT8_{form.removeprefix('float8_').upper()}" for form in self.dtypes)
        k.line(f"constexpr int FORM_A = {a}, FORM_B = {b}, MFMA_K = {self.instruction_depth()};")
        k.line(f"constexpr float {_SCALE} = float8_scale<FORM_A, FORM_B, MFMA_K>();")

    def instruction_depth(self) -> str:
        """The k of an instruction, as C text."""
        return f"{self.mfma_k} == 128 && {self.deepest} % 128 == 0 ? 128 : 32" if self.mfma_k else "32"

    def declare_mfma_depth(self) -> None:
        """Done by `declare_types`."""

    def matrix_instruction(self) -> tuple[str, str, str]:
        """A lane's codes, and the product of two such."""
        product = "float8_product<FORM_A, FORM_B>(frag_a[i], frag_b[j], acc[i][j])"
        return "Float8Fragment<MFMA_K>", product, "MFMA_K"

    def store_element(self, value: str, col: str) -> None:
        """The sum as the values of the codes have it."""
        super().store_element(f"({value} * {_SCALE})", col)

    def store_vector(self, value: str, width: str) -> None:
        """The same for neighbouring columns."""
        super().store_vector(f"({value} * {_SCALE})", width)


class LargeFloat8(_Float8Tiles):
    """A tile with a side of 128, or one that a knob may make so large."""

    names = f"{LargeTileGemm.names} {NAMES} part"
    two_blocks = False  # 150 registers; 128 are too few for 16 codes at a time

    def tensor_core_condition(self) -> str:
        """Two OCP forms with contiguous k."""
        return tensor_cores.float8_condition(self, [t for t in self.body.operands if t is not None])

    def knobs(self, body: CallBody) -> tuple[str, str, str]:
        """As of half types; tiles that are deep enough for instructions of 128 have fewer columns, to fit LDS."""
        if not body.call.choices.get(CDNA4):
            return super().knobs(body)
        t = self.tiling
        start = (t.rows, min(t.columns, LARGE[1]), 2 * t.depth)
        return tile_knobs(body, start, (LARGE, LARGE[:2], (t.depth, 2 * t.depth)))


class SlicedFloat8(_Float8Tiles, SlicedKGemm):
    """A small tile, whose k the threads share."""

    names = f"{SlicedKGemm.names} {NAMES}"
    step = "4"  # 16 codes a side are more floats than registers

    def knobs(self, body: CallBody) -> tuple[str, str, str]:
        """As of half types."""
        return SlicedKGemm.knobs(self, body)
