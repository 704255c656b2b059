"""Indexing, embedding, and selection by value."""

from __future__ import annotations

from hipwright.synth.operators.base import SynthOperator, operator
from hipwright.synth.sketch import Sketch
from hipwright.synth.values import SketchValue, indices, normal, require

INDEXING, SELECTION = "indexing", "selection"

MIN_SLICES = 8  # to pick from


def _picked(s: Sketch, x: SketchValue) -> tuple[str, int, int]:
    """(the expression of a new index input along an axis, its length, the axis)."""
    axis = s.rng.choice(range(1, x.rank))
    require(x.shape[axis] >= MIN_SLICES)
    length = max(3, x.shape[axis] * 2 // 3)
    return s.index_input("picks", (length,), x.shape[axis], f"{x.name}.shape[{axis}]"), length, axis


def _with(shape: tuple[int, ...], axis: int, size: int) -> tuple[int, ...]:
    return tuple(size if k == axis else n for k, n in enumerate(shape))


@operator("embedding", INDEXING, "an embedding of tokens")
def _embedding(s: Sketch, x: SketchValue) -> SketchValue:
    require(x.rank in (2, 3))
    tokens = s.index_input("tokens", x.shape[:-1], s.sizes.get("vocabulary", 97))
    width = x.shape[-1]
    table = s.module("embed", f"nn.Embedding({s.size(s.sizes.get('vocabulary', 97))}, {s.size(width)})")
    return s.assign("embedded", f"{x.name} + {table}({tokens})", x.shape, x.range + normal())


@operator("index_select", INDEXING, "a selection of slices")
def _index_select(s: Sketch, x: SketchValue) -> SketchValue:
    picks, length, axis = _picked(s, x)
    text = f"torch.index_select({x.name}, {axis}, {picks})"
    return s.assign("selected", text, _with(x.shape, axis, length), x.range)


@operator("gather", INDEXING, "a gather along the last axis")
def _gather(s: Sketch, x: SketchValue) -> SketchValue:
    require(x.shape[-1] >= 4)
    width = max(2, x.shape[-1] // 2)
    where = s.index_input("where", (*x.shape[:-1], width), x.shape[-1], f"{x.name}.shape[-1]")
    return s.assign("gathered", f"torch.gather({x.name}, -1, {where})", (*x.shape[:-1], width), x.range)


@operator("take_along_dim", INDEXING, "one chosen element a row")
def _take_along(s: Sketch, x: SketchValue) -> SketchValue:
    require(x.shape[-1] >= 8 and x.elements >= MIN_SLICES * x.shape[-1])
    where = s.index_input("label", (*x.shape[:-1], 1), x.shape[-1], f"{x.name}.shape[-1]")
    text = f"{x.name} - torch.take_along_dim({x.name}, {where}, dim=-1)"
    return s.assign("margin", text, x.shape, x.range + x.range.scaled(-1))


@operator("index", INDEXING, "rows picked by an index")
def _rows(s: Sketch, x: SketchValue) -> SketchValue:
    require(x.shape[0] >= MIN_SLICES)
    picks = s.index_input("rows", (x.shape[0],), x.shape[0], f"{x.name}.shape[0]")
    return s.assign("picked", f"{x.name}[{picks}]", x.shape, x.range, constant_sums=x.constant_sums)


@operator("one_hot", INDEXING, "a one-hot code of labels")
def _one_hot(s: Sketch, x: SketchValue) -> SketchValue:
    require(8 <= x.shape[-1] <= 512 and x.elements >= MIN_SLICES * x.shape[-1])
    labels = s.index_input("labels", x.shape[:-1], x.shape[-1], f"{x.name}.shape[-1]")
    text = f"{x.name} - F.one_hot({labels}, {x.name}.shape[-1])"
    return s.assign("residue", text, x.shape, x.range + normal(0.1))


@operator("index_add", INDEXING, "a sum into picked rows", library=True)
def _index_add(s: Sketch, x: SketchValue) -> SketchValue:
    require(x.shape[0] >= MIN_SLICES)
    slots = s.index_input("slots", (x.shape[0],), x.shape[0], f"{x.name}.shape[0]")
    text = f"{x.name}.index_add(0, {slots}, 0.5 * {x.name})"
    return s.assign("gained", text, x.shape, (x.range + x.range).scaled(1.0))


@operator("scatter_add", INDEXING, "a scatter of sums", library=True)
def _scatter_add(s: Sketch, x: SketchValue) -> SketchValue:
    require(x.shape[-1] >= 4)
    where = s.index_input("bins", x.shape, x.shape[-1], f"{x.name}.shape[-1]")
    text = f"torch.scatter_add({x.name}, -1, {where}, 0.5 * {x.name})"
    return s.assign("binned", text, x.shape, x.range + x.range)


# ---------------------------------------------------------------- selection by value


def _check_rows(x: SketchValue) -> None:
    """Raise Unfit unless x has rows of at least 4 elements that differ."""
    require(x.rank >= 2 and x.shape[-1] >= 4 and x.range.std > 0.05 * abs(x.range.mean))


@operator("argmax", SELECTION, "the position of the maximum", non_float=True)
def _argmax(s: Sketch, x: SketchValue) -> SketchValue:
    _check_rows(x)
    require(not x.constant_sums, "the position may be the same for all")
    text = f"{x.name}.argmax(dim=-1)"
    return s.assign("best", text, x.shape[:-1], indices(x.shape[-1]), dtype="int64", keep=False)


@operator("argmin", SELECTION, "the position of the minimum", non_float=True)
def _argmin(s: Sketch, x: SketchValue) -> SketchValue:
    _check_rows(x)
    require(not x.constant_sums, "the position may be the same for all")
    text = f"{x.name}.argmin(dim=-1)"
    return s.assign("worst", text, x.shape[:-1], indices(x.shape[-1]), dtype="int64", keep=False)


@operator("max", SELECTION, "the largest of each row")
def _maximum(s: Sketch, x: SketchValue) -> SketchValue:
    _check_rows(x)
    text = f"{x.name}.max(dim=-1, keepdim=True).values - {x.name}"
    known = x.range.extreme(x.shape[-1]) + x.range.scaled(-1)
    return s.assign("gap", text, x.shape, known.clipped(0.0, known.high))


@operator("min", SELECTION, "the smallest of each row")
def _minimum(s: Sketch, x: SketchValue) -> SketchValue:
    _check_rows(x)
    text = f"{x.name} - {x.name}.min(dim=-1, keepdim=True).values"
    known = x.range + x.range.extreme(x.shape[-1], -1).scaled(-1)
    return s.assign("height", text, x.shape, known.clipped(0.0, known.high))


@operator("topk", SELECTION, "the largest few of each row", library=True)
def _topk(s: Sketch, x: SketchValue) -> SketchValue:
    _check_rows(x)
    count = s.rng.choice([k for k in (2, 3, 5, 8) if k < x.shape[-1]])
    known = x.range.extreme(max(2, x.shape[-1] // count))
    return s.assign("top", f"torch.topk({x.name}, {count}, dim=-1).values", (*x.shape[:-1], count), known)


@operator("sort", SELECTION, "a sort of each row", library=True)
def _sort(s: Sketch, x: SketchValue) -> SketchValue:
    _check_rows(x)
    return s.assign("ranked", f"torch.sort({x.name}, dim=-1).values", x.shape, x.range, constant_sums=True)


@operator("kthvalue", SELECTION, "a quantile of each row", library=True)
def _kthvalue(s: Sketch, x: SketchValue) -> SketchValue:
    _check_rows(x)
    k = max(1, x.shape[-1] // 4)
    known = x.range.averaged(max(2, x.shape[-1] // 2)).scaled(1.0, -0.6 * x.range.std)
    return s.assign("quantile", f"{x.name}.kthvalue({k}, dim=-1).values", x.shape[:-1], known)


@operator("median", SELECTION, "a median of each row", library=True)
def _median(s: Sketch, x: SketchValue) -> SketchValue:
    _check_rows(x)
    known = (x.range + x.range.averaged(max(2, x.shape[-1] // 2)).scaled(-1)).scaled(1.0)
    return s.assign("centred", f"{x.name} - {x.name}.median(dim=-1, keepdim=True).values", x.shape, known)


OPERATORS: tuple[SynthOperator, ...] = (
    _embedding,
    _index_select,
    _gather,
    _take_along,
    _rows,
    _one_hot,
    _index_add,
    _scatter_add,
    _argmax,
    _argmin,
    _maximum,
    _minimum,
    _topk,
    _sort,
    _kthvalue,
    _median,
)
