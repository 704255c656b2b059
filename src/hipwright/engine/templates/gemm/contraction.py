"""Operators that contract two tensors, as out[b, m, n] = sum_k A[b, m, k] B[b, n, k]."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hipwright.engine.ir.einsum import letters_of
from hipwright.engine.ir.expr import ROUNDING, E
from hipwright.engine.ir.index import ONE, Ix, product
from hipwright.engine.lower.context import LoweringContext
from hipwright.engine.lower.values import Index, NotLowered, Tensor
from hipwright.engine.templates.offers import KernelCall, Output, permuted, regroup
from hipwright.float8 import FLOAT8

PRODUCT_DTYPES = ("float32", "float16", "bfloat16")
SCALED = "_scaled_mm"
KINDS = ("mm", "bmm", "matmul", "linear", "addmm", "baddbmm", "mv", "dot", "einsum")


@dataclass(eq=False)
class MatrixProduct:
    """out[b, m, n] = sum over k of a[b, m, k] * b[b, n, k]. `finish` maps the stored product to the node's value.

    stored: the product's dtype before `finish`, where it is not the node's. offered_alone: the operator is the
    library's own kernel, so that a template is a choice and no default.
    """

    a: Tensor
    b: Tensor
    space: list[Ix]
    k: Ix
    finish: Callable[[Tensor], Tensor] | None = None
    shape: Sequence[Ix] = ()  # in memory, where it is not the node's
    stored: str = ""
    offered_alone: bool = False

    @property
    def output(self) -> Output:
        """The output of the templates."""
        return Output(self.space, dtype=self.stored, shape=list(self.shape))

    @property
    def dtype(self) -> str:
        """The operands' dtype; sums are float."""
        return self.a.dtype


# ---------------------------------------------------------------- operators as contractions


def product_of(call: KernelCall) -> MatrixProduct | None:
    """The call as a product; None where it is none, or of another dtype than PRODUCT_DTYPES."""
    made = _FORMS[call.kind](call)
    if made is None or made.dtype not in PRODUCT_DTYPES or made.b.dtype != made.dtype:
        return None
    return made


def contraction(c: LoweringContext, a: Tensor, la: str, b: Tensor, lb: str, out: str) -> MatrixProduct:
    """The product einsum("la,lb->out"), in which no term has a letter twice."""
    sizes = dict(zip(lb, b.shape, strict=True)) | dict(zip(la, a.shape, strict=True))
    batch = [x for x in out if x in la and x in lb]
    m = [x for x in out if x in la and x not in lb]
    n = [x for x in out if x not in la]
    k = [x for x in la if x in lb and x not in out]
    if any(x not in lb and x not in out for x in la) or any(x not in la and x not in out for x in lb):
        raise NotLowered("a sum over one operand alone")
    if list(out) == [*batch, *n, *m] and list(out) != [*batch, *m, *n]:
        a, la, b, lb, m, n = b, lb, a, la, n, m
    total = [product([sizes[x] for x in group]) for group in (batch, m, n)]
    depth = product([sizes[x] for x in k])
    left = _regrouped(c, a, la, [*batch, *m, *k], [total[0], total[1], depth])
    right = _regrouped(c, b, lb, [*batch, *n, *k], [total[0], total[2], depth])
    order = [*batch, *m, *n]
    made = MatrixProduct(left, right, total, depth)
    if order != list(out):
        made.shape = [sizes[x] for x in order]
        made.finish = lambda stored: permuted(c, stored, [order.index(x) for x in out])
    return made


def _regrouped(c: LoweringContext, t: Tensor, letters: str, order: Sequence[str], shape: Sequence[Ix]) -> Tensor:
    places = [letters.index(x) for x in order]
    return regroup(c, t if places == sorted(places) else permuted(c, t, places), shape)


def _matmul(call: KernelCall) -> MatrixProduct:
    c, a, b = call.c, call.args[0], call.args[1]
    left, right = a.shape[:-2], b.shape[:-2]
    la, lb = ("k" if a.rank == 1 else "mk"), ("k" if b.rank == 1 else "kn")
    out = la[:-1] + lb[1:]
    if all(s == ONE for s in right):  # one matrix for the whole batch: the batch becomes rows
        letters = "abcdefgh"[: len(left)]
        flat = regroup(c, b, b.shape[-2:]) if right else b
        if len(right) > len(left):
            raise NotLowered("a product with leading ones")
        return contraction(c, a, letters + la, flat, lb, letters + out)
    rank = max(len(left), len(right))
    batch = [_broadcast_size(left, right, k - rank) for k in range(rank)]
    letters = "abcdefgh"[:rank]
    return contraction(c, _expanded(c, a, batch), letters + la, _expanded(c, b, batch), letters + lb, letters + out)


def _broadcast_size(left: Sequence[Ix], right: Sequence[Ix], k: int) -> Ix:
    """The broadcast size of leading dimension k, counted from the last."""
    a = left[k] if -k <= len(left) else ONE
    b = right[k] if -k <= len(right) else ONE
    return b if a == ONE else a


def _expanded(c: LoweringContext, t: Tensor, batch: Sequence[Ix]) -> Tensor:
    """A matrix (or vector) for each batch index, read in place."""
    kept = min(t.rank, 2)
    if list(t.shape[:-kept]) == list(batch):
        return t

    def at(index: Index) -> E:
        return t.at(c.broadcast(t, index))

    return c.tensor(t.dtype, [*batch, *t.shape[-kept:]], at)


def _linear(call: KernelCall) -> MatrixProduct:
    c, x, w = call.c, call.args[0], call.args[1]
    letters = "abcdefgh"[: x.rank - 1]
    made = contraction(c, x, letters + "k", w, "nk", letters + "n")
    bias = call.arg(2, "bias")
    if bias is not None:
        made.finish = lambda stored: _plus(c, stored, bias, 1, 1)
    return made


def _added(call: KernelCall) -> MatrixProduct:
    """addmm and baddbmm: beta * bias + alpha * (a @ b)."""
    c, bias, a, b = call.c, *call.args[:3]
    lead = "a" if call.kind == "baddbmm" else ""
    made = contraction(c, a, lead + "mk", b, lead + "kn", lead + "mn")
    beta, alpha = call.kwargs.get("beta", 1), call.kwargs.get("alpha", 1)
    made.finish = lambda stored: _plus(c, stored, bias, alpha, beta)
    return made


def _plus(c: LoweringContext, stored: Tensor, bias: Tensor, alpha: float, beta: float) -> Tensor:
    """alpha * stored + beta * bias, broadcast; with beta 0 the bias is not read, as in PyTorch."""
    arena = c.arena

    def value(x: E, *rest: E) -> E:
        out = x if alpha == 1 else arena.binary("*", x, arena.const(alpha, x.ctype))
        for y in rest:
            scaled = y if beta == 1 else arena.binary("*", y, arena.const(beta, x.ctype))
            out = arena.binary("+", out, scaled)
        return out

    operands = [stored] if beta == 0 else [stored, bias]
    return c.map(value, *operands, dtype=stored.dtype, shape=stored.shape)


def _scaled(call: KernelCall) -> MatrixProduct:
    """8-bit floats as bfloat16, which holds them exactly; the sum is multiplied with scales of the tensors or of rows
    and columns.
    """
    c, meta = call.c, call.outs[0]
    (a, b, *scales), bias = call.args[:4], call.arg(4, "bias")
    if meta is None or call.arg(5, "scale_result") is not None:
        raise NotLowered("a scale of the result")
    made = contraction(c, c.cast(a, "bfloat16"), "mk", c.cast(b, "bfloat16"), "kn", "mn")
    made.stored, made.offered_alone = "float32", True
    for scale, rows in zip(scales, ([a.shape[0], ONE], [ONE, b.shape[1]]), strict=True):
        if scale.dtype != "float32" or (product(scale.shape) != ONE and list(scale.shape) != rows):
            raise NotLowered("scales of parts of rows")
    arena = c.arena

    def value(x: E, one: E, other: E, *more: E) -> E:
        out = arena.binary("*", arena.binary("*", x, one), other)
        out = arena.binary("+", out, more[0]) if more else out
        return arena.call(ROUNDING[meta.dtype], out, ctype="float") if meta.dtype in FLOAT8 else out

    given = [*scales, *([] if bias is None else [bias])]
    made.finish = lambda stored: c.map(value, stored, *given, dtype=meta.dtype, shape=stored.shape, ctype="float")
    return made


def _einsum(call: KernelCall) -> MatrixProduct | None:
    operands = call.args[1]
    found = letters_of(call.args[0], len(operands))
    if found is None:
        return None
    letters, out = found
    if not set(letters[0]) & set(letters[1]) - set(out):
        return None  # nothing is summed
    return contraction(call.c, operands[0], letters[0], operands[1], letters[1], out)


_FORMS: dict[str, Callable[[KernelCall], MatrixProduct | None]] = {
    "mm": _matmul,
    "bmm": _matmul,
    "matmul": _matmul,
    "mv": _matmul,
    "dot": _matmul,
    "linear": _linear,
    "addmm": _added,
    "baddbmm": _added,
    "einsum": _einsum,
    SCALED: _scaled,
}
