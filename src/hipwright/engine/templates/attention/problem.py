"""The attention problem that templates share, and how they read rows of q, k and v (docs/engine-templates.md)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from hipwright.engine.ir.expr import E, walk
from hipwright.engine.ir.index import ONE, Ind, Ix, Var, ix
from hipwright.engine.ir.operators import ATTENTION
from hipwright.engine.knobs import SPLIT
from hipwright.engine.lower.values import Tensor
from hipwright.engine.templates.access import has_unit_stride, unconditional_loads
from hipwright.engine.templates.call_kernel import CallKernel
from hipwright.engine.templates.offers import KernelCall, NotLowered

DECODING_MAX_ROWS, DECODING_MIN_KEYS = 16, 128
"""Decoding: at most so many queries of a key head, and at least so many keys."""
MAX_HEAD_SIZE = 256
FLOATS = ("float32", "float16", "bfloat16")
LOG2E = math.log2(math.e)
MAX_OPERATIONS = {"float32": 1e9, "float16": 1e8, "bfloat16": 1e8}
"""Floating-point operations up to which the tiled kernel is the default: the library's kernels use matrix units."""
NARROW_HEADS = 64
"""Head sizes, of keys and values together, up to which it is the default for float32 whatever the work: storing and
reading the scores takes longer than the library's faster products save (4 x 8 heads of 32 over 1024: 160 us instead of
266).
"""
Place = Sequence[Ix | str | int]


@dataclass(eq=False)
class AttentionProblem:
    """One attention: q [lead..., queries, size], k [lead..., keys, size], v [lead..., keys, size_v].

    The last of `lead` is the query head; `group` query heads share a key head. scale includes log2(e). With `scores`
    the attention is written by a module: scores [..., queries, keys] are a function of the product, powers are those of
    e, and a row without keys to attend to is NaN unless there are no keys at all. Without `softmax` the scores are the
    weights themselves.
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
    softmax: bool = True
    sinks: Tensor | None = None  # scores that take weight and have no value, as [..., queries, 1]
    hints: dict[str, int] = field(default_factory=dict)

    @property
    def decoding(self) -> bool:
        """Whether few queries read many keys, so that memory bounds the work."""
        return is_decoding(self.hints["rows"] * self.group, self.hints["keys"])

    @property
    def small(self) -> bool:
        """Whether the work is small enough for the vector units."""
        heads = self.hints["heads"] * self.group
        return (
            _operations(heads, self.hints["rows"], self.hints["keys"], self.size, self.size_v)
            <= MAX_OPERATIONS[self.dtype]
        )

    @property
    def unseen(self) -> str:
        """The score of a key that a query does not attend to, as C text."""
        return "-INFINITY" if self.softmax else "0.0f"

    def empty(self, kernel: CallKernel) -> str:
        """The result of a row without keys to attend to, as C text."""
        return "0.0f" if self.scores is None else f"({kernel.size(self.keys)} == 0 ? 0.0f : NAN)"

    def power(self, exponent: str) -> str:
        """The exponential of a difference of scores, as C text."""
        return f"exp2f({exponent})" if self.scores is None else f"exp2f(({exponent}) * {LOG2E!r}f)"


def is_default(dtype: str, rows: int, keys: int, heads: int, size: int, size_v: int) -> bool:
    """Whether the static rule prefers the templates for attention of these sizes."""
    narrow = dtype == "float32" and size + size_v <= NARROW_HEADS
    return narrow or is_decoding(rows, keys) or _operations(heads, rows, keys, size, size_v) <= MAX_OPERATIONS[dtype]


SPLIT_SIZE, SPLIT_MOST_SIZE, SPLIT_USUAL_SIZE = 16, 128, 64
"""Attention by tensor cores (tiled_matrix.py): what head sizes are multiples of, the largest, and the largest default.
Of 128, registers are spilled.
"""
HALF_SCORES = 1e7
"""Scores of half types from which it is the default. Of 3.4e7 (8 x 16 heads of 64 over 512 with a bias) this kernel
was 2.3 times as fast as the library's products on one H100; fewer, which stay in the cache, were not measured.
"""
SPLIT_OPERATIONS, SPLIT_ROWS = 2e8, 48
"""Floating-point operations, and queries, from which it is the default. Round figures, not measured."""


def is_split(dtype: str, size: int, size_v: int) -> bool:
    """Whether attention by tensor cores is written for these head sizes."""
    return dtype in FLOATS and all(0 < n <= SPLIT_MOST_SIZE and n % SPLIT_SIZE == 0 for n in (size, size_v))


def is_split_default(dtype: str, rows: int, keys: int, heads: int, size: int, size_v: int) -> bool:
    """Whether the static rule prefers attention by tensor cores, in runs that split products; heads: of the queries."""
    enough = rows >= SPLIT_ROWS and _operations(heads, rows, keys, size, size_v) >= SPLIT_OPERATIONS
    usual = SPLIT_USUAL_SIZE if dtype == "float32" else SPLIT_MOST_SIZE
    enough = enough and (dtype == "float32" or heads * rows * keys >= HALF_SCORES)
    return enough and is_split(dtype, size, size_v) and max(size, size_v) <= usual


SHORT_ROWS, SHORT_KEYS, SHORT_WIDE_ROWS = 64, 64, 32
"""Queries and keys up to which the library's kernels, which take 64 or 128 of them at a time, do mostly nothing: the
frames of a video, windows of images, fields of a recommender (8192 x 2 heads of 32 over 39 took an H200 263 us of a
layer's 434 by the library, all of the layer then 171). And queries of heads larger than SPLIT_USUAL_SIZE: not measured.
"""


def is_short_default(dtype: str, rows: int, keys: int, heads: int, size: int, size_v: int) -> bool:
    """Whether the static rule prefers attention by tensor cores for many short sequences of half types."""
    most = SHORT_ROWS if max(size, size_v) <= SPLIT_USUAL_SIZE else SHORT_WIDE_ROWS
    short = 1 < rows <= most and keys <= SHORT_KEYS and dtype != "float32"
    return short and is_split(dtype, size, size_v) and _operations(heads, rows, keys, size, size_v) >= SPLIT_OPERATIONS


def _operations(heads: int, rows: int, keys: int, size: int, size_v: int) -> float:
    """Floating-point operations of the two products."""
    return 2.0 * heads * rows * keys * (size + size_v)


def is_decoding(rows: int, keys: int) -> bool:
    """Whether few queries of a key head, `rows`, read many keys."""
    return rows <= DECODING_MAX_ROWS and keys >= DECODING_MIN_KEYS


LIBRARY_HEADS = 512
"""Heads of one query each from which the library's kernels, a block a head, read keys and values as fast as a copy: 40
x 20 heads of 64 over 1500 keys took an H200 75.5 us, and 83 in chunks that a second kernel combines; 32 x 16 of 128
over 8192 472 and 480.
"""


def is_split_usual(call: KernelCall, f: AttentionProblem) -> bool:
    """Whether the kernels that divide the keys are the default."""
    plain = call.kind != ATTENTION and not isinstance(call.arg(3, "attn_mask"), Tensor) and f.dtype != "float32"
    alone = f.hints["rows"] * f.group == 1 and f.hints["heads"] >= LIBRARY_HEADS
    library = plain and alone and f.size == f.size_v and f.size % 8 == 0 and bool(call.choices.get(SPLIT))
    return f.decoding and not library


def attention_problem(call: KernelCall, *, weights: bool = False, sinks: bool = False) -> AttentionProblem:
    """The problem of `scaled_dot_product_attention(q, k, v, mask, dropout, causal, scale=, enable_gqa=)` or
    `hip.attention(q, k, v, scores, softmax, sinks)`.

    Raises NotLowered for what the templates do not write: dropout, doubles, a head size that varies or is over 256,
    scores without softmax unless `weights`, sinks unless `sinks`.
    """
    if call.kind == ATTENTION:
        found = _problem(call, 1.0, causal=False, scores=call.args[3])
        found.softmax = bool(call.arg(4, "softmax", True))
        found.sinks = call.arg(5, "sinks")
        if found.sinks is not None and not sinks:
            raise NotLowered("a softmax with sinks")
        if not found.softmax and not weights:
            raise NotLowered("scores that are weights without a softmax")
        return found
    q, k, v = call.args[:3]
    if call.arg(4, "dropout_p", 0.0) != 0.0:
        raise NotLowered("attention with dropout draws random numbers")
    if any(t.dtype != q.dtype or t.dtype not in FLOATS for t in (q, k, v)) or q.rank < 3:
        raise NotLowered("attention of these dtypes or ranks")
    sizes = [q.shape[-1].value, v.shape[-1].value]
    if None in sizes or q.shape[-1] != k.shape[-1] or max(s or 0 for s in sizes) > MAX_HEAD_SIZE:
        raise NotLowered("the head size varies or is over 256")
    lead, kv_lead = q.shape[:-2], k.shape[:-2]
    if len(kv_lead) != len(lead) or any(a != b for a, b in zip(kv_lead[:-1], lead[:-1], strict=True)):
        raise NotLowered("leading dimensions that broadcast")
    if [s.key for s in v.shape[:-2]] != [s.key for s in kv_lead] or v.shape[-2] != k.shape[-2]:
        raise NotLowered("keys and values of different shapes")
    scale = call.arg(7, "scale")
    factor = 1.0 / math.sqrt(sizes[0] or 1) if scale is None else float(scale)
    return _problem(call, factor * LOG2E, causal=bool(call.arg(5, "is_causal", False)))


def _problem(call: KernelCall, scale: float, *, causal: bool, scores: Tensor | None = None) -> AttentionProblem:
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
    found.hints["heads"] = call.c.numel_hint(kv_lead)
    return found


def _group(heads: Ix, shared: Ix) -> int:
    if heads == shared:
        return 1
    if heads.value is None or shared.value is None or heads.value % shared.value:
        raise NotLowered("the number of heads varies")
    return heads.value // shared.value


# ---------------------------------------------------------------- reading rows


def vector_width(operand: Tensor, width: int) -> int:
    """Elements of a row that are read as 16 bytes: 4 or 8 where they are contiguous and aligned, else 1.

    A row computed from such a row (a scale before the product) is read in the same way.
    """
    e = operand.at([ix(Var(f"p{k}", s)) for k, s in enumerate(operand.shape)])
    axis, counts = f"p{operand.rank - 1}", [1]
    for load in [e] if e.op == "load" else unconditional_loads([e]):
        count = {"float32": 4, "float16": 8, "bfloat16": 8}.get(load.attr[2], 1)
        if width % count == 0 and _aligned(load.attr[1], axis, count):
            counts.append(count)
    return max(counts)


def _aligned(position: Ix, axis: str, count: int) -> bool:
    """Whether the position advances by one along the axis, and by multiples of `count` along all other axes.

    A place that is read from memory (a page by its block table) is like another axis, unless the axis chooses it.
    """
    for mono, factor in position.terms.items():
        mine = [a for a in mono if isinstance(a, Var) and a.name == axis]
        if mine and (len(mono) != 1 or factor != 1):
            return False
        if not mine and factor % count:
            return False
    inner = [a for a in position.atoms() if isinstance(a, Ind) and not has_unit_stride(position, axis)]
    axes = [m for m in position.terms if any(isinstance(a, Var) and a.name == axis for a in m)]
    return not inner and len(axes) == 1


def emit_load(kernel: CallKernel, operand: Tensor, place: Place, count: int, target: str) -> None:
    """Emits `target[v] = operand[place + v]` for v < count along the last dimension, all in range."""
    if count == 1:
        kernel.line(f"{target}[0] = {kernel.load(operand, place)};")
        return
    e: E = operand.at(
        [ix(Var(i, s)) if isinstance(i, str) else ix(i) for i, s in zip(place, operand.shape, strict=True)]
    )
    if e.op != "load":
        kernel.vector(operand, place, str(place[-1]), str(count), target)
        return
    buffer, position, _ = e.attr
    kernel.use("load_16_bytes")
    kernel.aligned[buffer] = count
    name = kernel.fresh("wide")
    kernel.line(f"const auto {name} = load_16_bytes({kernel.pointer(buffer)} + {kernel.emit.position(position)});")
    kernel.line("#pragma unroll")
    kernel.line(f"for (int v = 0; v < {count}; ++v) {target}[v] = (float){name}.v[v];")


# ---------------------------------------------------------------- scores


def emit_score(kernel: CallKernel, f: AttentionProblem, mask: Tensor | None, names: Sequence[str], value: str) -> str:
    """A score with its mask, over variables `m` and `n` in range, as C text; may emit statements.

    With `f.scores`, the score is that function of the product, and `mask` is its tensor.
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


def emit_split_index(kernel: CallKernel, counter: str, sizes: Sequence[Ix], names: Sequence[str]) -> None:
    """Emits statements that split a counter into indices, row-major."""
    rest = counter
    for name, size in reversed(list(zip(names, sizes, strict=True))[1:]):
        kernel.line(f"const {kernel.kind} {name} = {rest} % {kernel.size(size)};")
        rest = f"({rest} / {kernel.size(size)})"
    kernel.line(f"const {kernel.kind} {names[0]} = {rest};")


def declare_row(kernel: CallKernel, f: AttentionProblem, names: list[str]) -> None:
    """Declares the head and query position of row `row` of the queries that share a key head, from `first_row` on."""
    length = kernel.size(f.queries)
    group = f"shared_head * {f.group} + " if f.group > 1 else "shared_head"
    which = f"(first_row + row) / {length}" if f.group > 1 else ""
    kernel.line(f"const {kernel.kind} {names[-1]} = {group}{which}, m = (first_row + row) % {length};")


def key_lead_names(f: AttentionProblem, names: Sequence[str]) -> list[str]:
    """The names that index the leading dimensions of keys and values."""
    return [*names[:-1], "shared_head"]


__all__ = [
    "FLOATS",
    "MAX_HEAD_SIZE",
    "AttentionProblem",
    "attention_problem",
    "declare_row",
    "emit_load",
    "emit_score",
    "emit_split_index",
    "is_decoding",
    "is_default",
    "is_split",
    "is_split_default",
    "is_split_usual",
    "key_lead_names",
    "vector_width",
]
