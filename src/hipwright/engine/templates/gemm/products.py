"""Matrix products as call templates: every operator that contracts two tensors becomes out[b, m, n] = sum_k A[b, m, k]
B[b, n, k], with A and B functions of the operands, and is offered as `gemv` (few rows or columns) and `gemm` (tiles).

Which of them, or the library, is the default is a static rule: the least of three estimated times (`Costs`). The
library keeps large products, which compute bounds; templates take what memory or launches bound.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any

from hipwright.engine.ir.einsum import letters_of
from hipwright.engine.ir.expr import E, walk
from hipwright.engine.ir.index import ONE, ZERO, Ix, product
from hipwright.engine.lower.core import Index, LoweringContext, NotLowered, Tensor
from hipwright.engine.templates.gemm import gemv, gemv_text, tiny
from hipwright.engine.templates.gemm import small as gemm_small
from hipwright.engine.templates.gemm import whole as gemm_whole
from hipwright.engine.templates.gemm.scope import GemmSpec
from hipwright.engine.templates.gemm.tiling import (
    CACHE_READ,
    LAUNCH,
    STEP,
    UNITS,
    VECTOR_RATE,
    ProductShape,
    choose,
    seconds,
)
from hipwright.engine.templates.offers import DEAR, KernelCall, Offer, Output, permuted, probe, regroup

ITEM_BYTES = {"float64": 8, "int64": 8, "float32": 4, "int32": 4, "float16": 2, "bfloat16": 2, "int16": 2}
KINDS = ("mm", "bmm", "matmul", "linear", "addmm", "baddbmm", "mv", "dot", "einsum")

# Round figures of one H200 (bytes/s, operations/s, s): measured copy 4.2e12, cuBLAS float32 51e12. More in tiling.py.
READ, LIBRARY_READ, SKINNY_READ = 3.8e12, 3.3e12, 3.0e12
SKINNY_RATE = 30e12
LIBRARY_RATE = {"float32": 45e12, "float16": 500e12, "bfloat16": 500e12}
LIBRARY_LATENCY, SKINNY_LATENCY = 2e-6, 1.5e-6
MARGIN = 0.9
DEAR_ONCE = 64
"""The weight up to which a matrix that is read once is computed where it is read: a kernel before does the same."""


@dataclass(eq=False)
class MatrixProduct:
    """out[b, m, n] = sum over k of a[b, m, k] * b[b, n, k]. `finish` makes the node's value of the stored product."""

    a: Tensor
    b: Tensor
    space: list[Ix]
    k: Ix
    finish: Callable[[Tensor], Tensor] | None = None
    shape: Sequence[Ix] = ()  # in memory, where it is not the node's

    @property
    def output(self) -> Output:
        """What the templates make."""
        return Output(self.space, shape=list(self.shape))

    @property
    def dtype(self) -> str:
        """The operands' dtype; sums are taken in float."""
        return self.a.dtype


# ---------------------------------------------------------------- operators as contractions


def product_of(call: KernelCall) -> MatrixProduct | None:
    """The operator as a product, or None when it is none of these or not in a dtype written here."""
    made = _FORMS[call.kind](call)
    if made is None or made.dtype not in LIBRARY_RATE or made.b.dtype != made.dtype:
        return None
    return made


def contraction(c: LoweringContext, a: Tensor, la: str, b: Tensor, lb: str, out: str) -> MatrixProduct:
    """einsum("la,lb->out") with no letter twice in one term."""
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
    left = _grouped(c, a, la, [*batch, *m, *k], [total[0], total[1], depth])
    right = _grouped(c, b, lb, [*batch, *n, *k], [total[0], total[2], depth])
    order = [*batch, *m, *n]
    made = MatrixProduct(left, right, total, depth)
    if order != list(out):
        made.shape = [sizes[x] for x in order]
        made.finish = lambda stored: permuted(c, stored, [order.index(x) for x in out])
    return made


def _grouped(c: LoweringContext, t: Tensor, letters: str, order: Sequence[str], shape: Sequence[Ix]) -> Tensor:
    places = [letters.index(x) for x in order]
    return regroup(c, t if places == sorted(places) else permuted(c, t, places), shape)


def _matmul(call: KernelCall) -> MatrixProduct:
    c, a, b = call.c, call.args[0], call.args[1]
    left, right = a.shape[:-2], b.shape[:-2]
    la, lb = ("k" if a.rank == 1 else "mk"), ("k" if b.rank == 1 else "kn")
    out = la[:-1] + lb[1:]
    if all(s == ONE for s in right):  # one matrix for all: its rows are simply more
        letters = "abcdefgh"[: len(left)]
        flat = regroup(c, b, b.shape[-2:]) if right else b
        if len(right) > len(left):
            raise NotLowered("a product with leading ones")
        return contraction(c, a, letters + la, flat, lb, letters + out)
    rank = max(len(left), len(right))
    batch = [_wider(left, right, k - rank) for k in range(rank)]
    letters = "abcdefgh"[:rank]
    return contraction(c, _expanded(c, a, batch), letters + la, _expanded(c, b, batch), letters + lb, letters + out)


def _wider(left: Sequence[Ix], right: Sequence[Ix], k: int) -> Ix:
    """The broadcast size of a leading dimension, counted from the last."""
    a = left[k] if -k <= len(left) else ONE
    b = right[k] if -k <= len(right) else ONE
    return b if a == ONE else a


def _expanded(c: LoweringContext, t: Tensor, batch: Sequence[Ix]) -> Tensor:
    """A matrix (or vector) per batch index, read where it lies."""
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


def _einsum(call: KernelCall) -> MatrixProduct | None:
    operands = call.args[1]
    found = letters_of(call.args[0], len(operands))
    if found is None:
        return None
    letters, out = found
    if not set(letters[0]) & set(letters[1]) - set(out):
        return None  # nothing is summed: the library's, or pointwise
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
}


# ---------------------------------------------------------------- the static rule


class Costs:
    """Estimated seconds of a product by each way, for the captured sizes. A rule to choose by, no prediction."""

    def __init__(self, call: KernelCall, p: MatrixProduct) -> None:
        self.c, self.p = call.c, p
        self.batch, self.m, self.n = call.hints(p.space)
        self.k = call.c.hint(p.k)
        self.followed = call.followed
        item = ITEM_BYTES[p.dtype]
        self.out_bytes = self.batch * self.m * self.n * item
        self.bytes = self.out_bytes + sum(map(self._bytes, (p.a, p.b)))
        self.copied = sum(2 * self.c.hints_of(t.shape) * item for t in (p.a, p.b) if self._computed(t))
        self.flops = 2.0 * self.batch * self.m * self.n * self.k

    def _bytes(self, t: Tensor) -> int:
        """What reading the operand in place must move."""
        most = self.c.hints_of(t.shape)
        loads = {e.attr[0]: ITEM_BYTES.get(e.attr[2], 1) for e in walk([probe(self.c, t)]) if e.op == "load"}
        return sum(most * size for size in loads.values())

    def _computed(self, t: Tensor) -> bool:
        """Must the library have the operand computed first?"""
        return probe(self.c, t).op != "load"

    def library(self) -> float:
        """The library's product, a kernel for a computed operand, and one for the pointwise operators behind it."""
        skinny = min(self.m, self.n) <= gemv.FEW
        blocks = self.batch * ceil(self.m / 32) * ceil(self.n / 32) * ceil(self.k / 512)  # it cuts k, too
        rate = LIBRARY_RATE[self.p.dtype] * min(1.0, blocks / UNITS)
        if self.p.dtype == "float32":
            if self.batch > 1 and (max(self.m, self.n) <= 64 or max(min(self.m, self.n), self.k) <= 64):
                rate /= 2  # tiles that are not full, or a k that ends before the pipeline is
            if self.batch > 1 and (self.n % 4 or self.k % 4):
                rate /= 2  # read one by one
        elif self.batch > 1 and max(self.m, self.n) <= 64:
            rate /= 2
        read = SKINNY_READ if skinny else LIBRARY_READ
        seconds = LAUNCH + max(LIBRARY_LATENCY, self.flops / rate, self.bytes / read)
        if self.copied:
            seconds += LAUNCH + self.copied / READ
        return seconds + (LAUNCH + 2 * self.out_bytes / READ if self.followed else 0.0)

    def gemv(self, spec: gemv.GemvSpec) -> float:
        """Bound by memory; from two rows on by the vector units too. The matrix is read once for FEW vectors; a split
        adds a kernel, and its parts are written and read."""
        rows, few = self.c.hint(spec.rows), self.c.hint(spec.few)
        split = gemv.default_split(self.batch, rows, few, self.k, spec)
        second = LAUNCH + 8.0 * split * self.batch * self.m * self.n / CACHE_READ if split > 1 else 0.0
        again = ceil(few / gemv.FEW)
        return LAUNCH + max(SKINNY_LATENCY, again * self.bytes / READ, self.flops / SKINNY_RATE) + second

    def tiny(self) -> float:
        """A thread for some outputs: what it waits for once, then what it reads again for each of them."""
        return LAUNCH + max(tiny.LATENCY, self.flops / tiny.RATE, self.bytes / LIBRARY_READ)

    def whole(self) -> float:
        """All of k at once."""
        return gemm_whole.seconds(ProductShape(self.batch, self.m, self.n, self.k, self.p.dtype))

    def gemm(self) -> float:
        """Tiles on the vector units: matrix units are only used on CDNA, which this rule leaves out."""
        shape = ProductShape(self.batch, self.m, self.n, self.k, self.p.dtype)
        return max(seconds(shape, choose(shape)), LAUNCH + self.bytes / LIBRARY_READ)


def skinny(call: KernelCall) -> Offer | None:
    """One row or column, or a few: memory bound (templates/gemm/gemv.py)."""
    p = product_of(call)
    spec = gemv.plan(call.c, p.a, p.b, p.space, p.k) if p else None
    if p is None or spec is None:
        return None
    costs = Costs(call, p)
    default = costs.gemv(spec) < min(MARGIN * costs.library(), costs.gemm())
    dear = (DEAR_ONCE if call.c.hint(spec.few) <= gemv.FEW else DEAR, DEAR)
    return Offer(
        "gemv", gemv_text.write, [spec.matrix, spec.vectors], [p.output], default, p.finish, dear=dear, data=spec
    )


def short(call: KernelCall) -> Offer | None:
    """Tiny matrices, many or few (templates/gemm/tiny.py)."""
    p = product_of(call)
    if p is None or ZERO in p.space:
        return None
    costs = Costs(call, p)
    if costs.k > tiny.MOST_DEPTH or costs.flops > 2 * tiny.MOST_WORK:
        return None
    data: Any = GemmSpec(p.space, p.k, p.dtype)
    default = costs.k <= tiny.MOST_DEPTH // 2 and costs.tiny() < min(costs.gemm(), MARGIN * costs.library())
    return Offer("tiny", tiny.write, [p.a, p.b], [p.output], default, p.finish, data=data)


def whole(call: KernelCall) -> Offer | None:
    """A short k (templates/gemm/whole.py)."""
    p = product_of(call)
    if p is None or ZERO in p.space or p.dtype != "float32":
        return None
    costs = Costs(call, p)
    if costs.k > gemm_whole.MOST_K or min(costs.m, costs.n) <= gemv.FEW:
        return None
    data: Any = GemmSpec(p.space, p.k, p.dtype)
    default = costs.whole() < min(costs.gemm(), MARGIN * costs.library())
    return Offer("whole", gemm_whole.write, [p.a, p.b], [p.output], default, p.finish, data=data)


def tiled(call: KernelCall) -> Offer | None:
    """Any product (templates/gemm/tiled.py)."""
    p = product_of(call)
    if p is None or ZERO in p.space:
        return None
    costs = Costs(call, p)
    data: Any = GemmSpec(p.space, p.k, p.dtype)
    default = costs.gemm() < MARGIN * costs.library()
    return Offer("gemm", gemm_small.write, [p.a, p.b], [p.output], default, p.finish, data=data)


__all__ = [
    "ITEM_BYTES",
    "KINDS",
    "LAUNCH",
    "LIBRARY_LATENCY",
    "LIBRARY_RATE",
    "LIBRARY_READ",
    "MARGIN",
    "READ",
    "STEP",
    "VECTOR_RATE",
    "Costs",
    "MatrixProduct",
    "contraction",
    "product_of",
]
