"""What attention templates share: the call's form, and how rows of q, k and v are read (docs/engine-templates.md)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from hipwright.engine.ir.expr import E, walk
from hipwright.engine.ir.index import ONE, Ind, Ix, Var, ix
from hipwright.engine.ir.index_text import to_c
from hipwright.engine.ir.operators import ATTENTION
from hipwright.engine.lower.core import Tensor
from hipwright.engine.templates.access import certain_loads
from hipwright.engine.templates.call_kernel import CallKernel
from hipwright.engine.templates.offers import KernelCall, NotLowered

FEW, MANY = 16, 128
"""Few queries of one key head over many keys: decoding."""
LARGEST_HEAD = 256
FLOATS = ("float32", "float16", "bfloat16")
LOG2E = math.log2(math.e)
SMALL_WORK = {"float32": 1e9, "float16": 1e8, "bfloat16": 1e8}
"""Floating-point operations up to which the tile kernel is the default: the library's kernels use matrix units."""
NARROW = 64
"""Head sizes, of keys and values together, up to which that holds for float32 whatever the work: writing and reading
the scores takes longer than the library's faster products save (4 x 8 heads of 32 over 1024: 160 us for 266)."""
Place = Sequence[Ix | str | int]


@dataclass(eq=False)
class AttentionProblem:
    """One attention: q [lead..., queries, size], k [lead..., keys, size], v [lead..., keys, size_v].

    The last of `lead` is the query's head; `group` query heads share a key head. scale includes log2(e).
    With `scores` the attention is a module's own: scores [..., queries, keys] are a function of the product, powers are
    those of e, and a row with nothing to attend to is NaN unless there are no keys at all.
    """

    dtype: str
    lead: list[Ix]
    queries: Ix
    keys: Ix
    size: int
    size_v: int
    group: int
    scale: float
    causal: bool
    kv_lead: list[Ix]
    scores: Tensor | None = None
    hints: dict[str, int] = field(default_factory=dict)

    @property
    def decoding(self) -> bool:
        """Do few queries read many keys, so that memory bounds the work?"""
        return _few(self.hints["rows"] * self.group, self.hints["keys"])

    @property
    def small(self) -> bool:
        """Is the work small enough for the vector units?"""
        heads = self.hints["heads"] * self.group
        return _work(heads, self.hints["rows"], self.hints["keys"], self.size, self.size_v) <= SMALL_WORK[self.dtype]

    def empty(self, kernel: CallKernel) -> str:
        """What a row gets that has nothing to attend to, as C text."""
        return "0.0f" if self.scores is None else f"({kernel.size(self.keys)} == 0 ? 0.0f : NAN)"

    def power(self, exponent: str) -> str:
        """The exponential of a difference of scores, as C text."""
        return f"exp2f({exponent})" if self.scores is None else f"exp2f(({exponent}) * {LOG2E!r}f)"


def by_default(dtype: str, rows: int, keys: int, heads: int, size: int, size_v: int) -> bool:
    """Do the templates take an attention of these sizes by their static rule?"""
    narrow = dtype == "float32" and size + size_v <= NARROW
    return narrow or _few(rows, keys) or _work(heads, rows, keys, size, size_v) <= SMALL_WORK[dtype]


def _work(heads: int, rows: int, keys: int, size: int, size_v: int) -> float:
    """Floating-point operations of the two products."""
    return 2.0 * heads * rows * keys * (size + size_v)


def _few(rows: int, keys: int) -> bool:
    return rows <= FEW and keys >= MANY


def form(call: KernelCall) -> AttentionProblem:
    """The form of `scaled_dot_product_attention(q, k, v, mask, dropout, causal, scale=, enable_gqa=)`, or of
    `hip.attention(q, k, v, scores)`.

    Raises NotLowered for what the templates do not write: dropout, doubles, a head size that varies or is over 256.
    """
    if call.kind == ATTENTION:
        return _form(call, 1.0, causal=False, scores=call.args[3])
    q, k, v = call.args[:3]
    if call.arg(4, "dropout_p", 0.0) != 0.0:
        raise NotLowered("attention with dropout draws random numbers")
    if any(t.dtype != q.dtype or t.dtype not in FLOATS for t in (q, k, v)) or q.rank < 3:
        raise NotLowered("attention of these dtypes or ranks")
    sizes = [q.shape[-1].value, v.shape[-1].value]
    if None in sizes or q.shape[-1] != k.shape[-1] or max(s or 0 for s in sizes) > LARGEST_HEAD:
        raise NotLowered("the head size varies or is over 256")
    lead, kv_lead = q.shape[:-2], k.shape[:-2]
    if len(kv_lead) != len(lead) or any(a != b for a, b in zip(kv_lead[:-1], lead[:-1], strict=True)):
        raise NotLowered("leading dimensions that broadcast")
    if [s.key for s in v.shape[:-2]] != [s.key for s in kv_lead] or v.shape[-2] != k.shape[-2]:
        raise NotLowered("keys and values of different shapes")
    scale = call.arg(7, "scale")
    factor = 1.0 / math.sqrt(sizes[0] or 1) if scale is None else float(scale)
    return _form(call, factor * LOG2E, causal=bool(call.arg(5, "is_causal", False)))


def _form(call: KernelCall, scale: float, *, causal: bool, scores: Tensor | None = None) -> AttentionProblem:
    q, k, v = call.args[:3]
    lead, kv_lead, sizes = q.shape[:-2], k.shape[:-2], (q.shape[-1].value, v.shape[-1].value)
    found = AttentionProblem(
        q.dtype,
        lead,
        q.shape[-2],
        k.shape[-2],
        sizes[0] or 0,
        sizes[1] or 0,
        _group(lead[-1], kv_lead[-1]),
        scale,
        causal,
        kv_lead,
        scores,
    )
    names = {"rows": q.shape[-2], "keys": k.shape[-2]}
    found.hints = {name: call.c.hint(s) for name, s in names.items()}
    found.hints["heads"] = call.c.hints_of(kv_lead)
    return found


def _group(heads: Ix, shared: Ix) -> int:
    if heads == shared:
        return 1
    if heads.value is None or shared.value is None or heads.value % shared.value:
        raise NotLowered("the number of heads varies")
    return heads.value // shared.value


# ---------------------------------------------------------------- reading rows


def vector(operand: Tensor, width: int) -> int:
    """Elements of a row that are read as 16 bytes: 4 or 8 where they lie side by side and aligned, else 1.

    What is computed from such a row (a scale before the product) is read in the same way.
    """
    e = operand.at([ix(Var(f"p{k}", s)) for k, s in enumerate(operand.shape)])
    axis, counts = f"p{operand.rank - 1}", [1]
    for load in [e] if e.op == "load" else certain_loads([e]):
        count = {"float32": 4, "float16": 8, "bfloat16": 8}.get(load.attr[2], 1)
        if width % count == 0 and _aligned(load.attr[1], axis, count):
            counts.append(count)
    return max(counts)


def _aligned(position: Ix, axis: str, count: int) -> bool:
    """Does the position step by one along the axis, and by multiples of `count` along all else?"""
    for mono, factor in position.terms.items():
        mine = [a for a in mono if isinstance(a, Var) and a.name == axis]
        if mine and (len(mono) != 1 or factor != 1):
            return False
        if not mine and factor % count:
            return False
    inner = [a for a in position.atoms() if isinstance(a, Ind)]
    axes = [m for m in position.terms if any(isinstance(a, Var) and a.name == axis for a in m)]
    return not inner and len(axes) == 1


def read(kernel: CallKernel, operand: Tensor, place: Place, count: int, into: str) -> None:
    """Statements `into[v] = operand[place + v]` for v < count along the last dimension, all in range."""
    if count == 1:
        kernel.line(f"{into}[0] = {kernel.load(operand, place)};")
        return
    e: E = operand.at(
        [ix(Var(i, s)) if isinstance(i, str) else ix(i) for i, s in zip(place, operand.shape, strict=True)]
    )
    if e.op != "load":
        kernel.vector(operand, place, str(place[-1]), str(count), into)
        return
    buffer, position, _ = e.attr
    kernel.include("load_16_bytes")
    kernel.aligned[buffer] = count
    name = kernel.fresh("wide")
    kernel.line(f"const auto {name} = load_16_bytes({kernel.pointer(buffer)} + {to_c(position)});")
    kernel.line("#pragma unroll")
    kernel.line(f"for (int v = 0; v < {count}; ++v) {into}[v] = (float){name}.v[v];")


# ---------------------------------------------------------------- scores


def score(kernel: CallKernel, f: AttentionProblem, mask: Tensor | None, names: Sequence[str], value: str) -> str:
    """A score with its mask, over variables `m` and `n` in range; may emit statements.

    With `f.scores`, the score is that function of the product, `mask` its tensor.
    """
    if mask is None:
        return value
    index: list[Ix | str | int] = [*names, "m", "n"]
    if f.scores is not None:
        for e in walk([mask.at([ix(Var(f"p{k}", s)) for k, s in enumerate(mask.shape)])]):
            if e.op == "row":
                kernel.rows[e.attr] = value
        return kernel.load(mask, index[len(index) - mask.rank :])
    tail = index[len(index) - mask.rank :]
    place = [0 if size == ONE else i for i, size in zip(tail, mask.shape, strict=True)]
    text = kernel.load(mask, place)
    if mask.dtype == "bool":
        return f"({text}) ? {value} : -INFINITY"
    return f"{value} + ({text}) * {LOG2E!r}f"


def split_index(kernel: CallKernel, counter: str, sizes: Sequence[Ix], names: Sequence[str]) -> None:
    """Statements that split a counter into indices, row-major."""
    rest = counter
    for name, size in reversed(list(zip(names, sizes, strict=True))[1:]):
        kernel.line(f"const {kernel.kind} {name} = {rest} % {kernel.size(size)};")
        rest = f"({rest} / {kernel.size(size)})"
    kernel.line(f"const {kernel.kind} {names[0]} = {rest};")


def kv_names(f: AttentionProblem, names: Sequence[str]) -> list[str]:
    """The names that index the leading dimensions of keys and values."""
    return [*names[:-1], "shared_head"]


__all__ = [
    "FLOATS",
    "LARGEST_HEAD",
    "AttentionProblem",
    "by_default",
    "form",
    "kv_names",
    "read",
    "score",
    "split_index",
    "vector",
]
