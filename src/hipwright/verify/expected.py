"""The expectation of a case: a tree with a `Rule` for each tensor. `tolerance` makes rules, `compare` applies them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from hipwright.records import TensorSpec
from hipwright.tensors import HostTensor, Tree
from hipwright.verify.accepted_results import AcceptedResults

LUCKY_SHARE = 0.1
"""Share of a leaf's rows whose budgets may grow to that of the leaf's worst honest row.

A row's honest error is one draw or two: where few terms decide a row, a second honest kernel is more than four times as
far off in one row of forty.
"""

F64 = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class IndexRule:
    """How an index output selects: index i along `dim` of `source` yields `values`; any index of a tie is accepted.

    several: the output holds more than one index along `dim` (topk, sort), and they must differ. others: further ways
    that explain the output as well, of which nothing tells which is the task's: an output is judged by the one by which
    most of its indices are right.
    """

    source: F64
    dim: int
    keepdim: bool
    values: F64
    several: bool = False
    others: tuple[IndexRule, ...] = ()

    def same_choice(self, got: npt.NDArray[np.int64]) -> Mask:
        """Where `got` selects a value equal to the expected one; an index out of range or repeated is wrong."""
        return max((one._chosen(got) for one in (self, *self.others)), key=np.count_nonzero)

    def _chosen(self, got: npt.NDArray[np.int64]) -> Mask:
        size = self.source.shape[self.dim]
        valid = (got >= 0) & (got < size)
        index = np.where(valid, got, 0)
        taken = np.take_along_axis(
            self.source, index if self.keepdim else np.expand_dims(index, self.dim), axis=self.dim
        )
        taken = taken if self.keepdim else np.squeeze(taken, self.dim)
        if self.several:
            valid &= (np.diff(np.sort(got, axis=self.dim), axis=self.dim) != 0).all(axis=self.dim, keepdims=True)
        same: Mask = valid & ((taken == self.values) | (np.isnan(taken) & np.isnan(self.values)))
        return same

    def any_index(self) -> bool:
        """Whether every index along `dim` selects the same values."""
        return bool((self.source == self.source.take([0], self.dim)).all())

    def ties(self) -> Mask:
        """Where several elements of the source have the selected value, so that any of their indices is accepted."""
        tied: Mask = np.logical_and.reduce([one._tied() for one in (self, *self.others)])
        return tied

    def _tied(self) -> Mask:
        kept = self.values if self.keepdim else np.expand_dims(self.values, self.dim)
        if not self.several:
            many: Mask = np.sum(self.source == kept, axis=self.dim, keepdims=self.keepdim) > 1
            return many
        values, ordered = np.moveaxis(kept, self.dim, -1), np.sort(np.moveaxis(self.source, self.dim, -1), axis=-1)
        if not _same(ordered[..., : values.shape[-1]], values):
            ordered = np.flip(ordered, -1)
        same = ordered[..., 1:] == ordered[..., :-1]
        edge = np.zeros_like(same[..., :1])
        found = np.concatenate([edge, same], -1) | np.concatenate([same, edge], -1)
        return np.moveaxis(found[..., : values.shape[-1]], -1, self.dim)


def _same(a: F64, b: F64) -> bool:
    return bool(np.array_equal(a, b, equal_nan=True))


@dataclass(frozen=True, eq=False)
class Rule:
    """What one tensor leaf must hold, and by how much it may differ.

    expected: float64 values, or the exact bits of an integer or bool leaf. element: absolute budget of each element.
    row: absolute budget of each row's rms, rows of `row_length` elements; both None for exact leaves. lift: the factor,
    at least 1, on the budgets of a row whose honest error happened to be small (`LUCKY_SHARE`). judged: False where the
    honest baseline itself disagrees with the reference, so that nothing can be judged. near: where an index was chosen
    among values that differ by less than honest kernels' rounding (task/host/modes/ties.py). matched: the share of
    elements that must be within their budgets, below 1 only in other benchmarks' own rules. evidence: False for a leaf
    that must only remain unchanged. stays: where a leaf that is written in place keeps its bits, those of `before`.
    accepted: results that passed.
    """

    path: str
    spec: TensorSpec
    expected: npt.NDArray[Any]
    element: F64 | None = None
    row: F64 | None = None
    row_length: int = 1
    lift: F64 | None = None
    judged: Mask | None = None
    near: Mask | None = None
    gather: IndexRule | None = None
    matched: float = 1.0
    evidence: bool = True
    stays: Mask | None = None
    before: npt.NDArray[Any] | None = None
    accepted: AcceptedResults = field(default_factory=AcceptedResults, init=False, repr=False)


@dataclass(frozen=True, eq=False)
class Expected:
    """The expected outputs of one case. tree: the same nesting as the outputs, a Rule for each tensor.

    aliases: pairs (leaf path, what it may share memory with) that the reference itself has. reference_dtype: "native"
    where the reference could not run in float64. generator: digest of torch's generator after the call; "" where the
    reference does not draw.
    """

    tree: Any
    aliases: frozenset[tuple[str, str]] = frozenset()
    reference_dtype: str = "float64"
    generator: str = ""


def rules(tree: Any) -> list[Rule]:
    """The Rules of an expectation tree in order."""
    if isinstance(tree, Rule):
        return [tree]
    items = tree.values() if isinstance(tree, Mapping) else tree if isinstance(tree, (list, tuple)) else ()
    return [rule for item in items for rule in rules(item)]


def zip_rules(path: str, trees: Sequence[Tree], make: Any) -> Any:
    """make(path, leaf of each tree) for every leaf of the first tree."""
    first = trees[0]
    if isinstance(first, HostTensor):
        return make(path, *trees)
    if isinstance(first, (list, tuple)):
        parts = zip(*trees, strict=True)
        return tuple(zip_rules(f"{path}[{i}]", part, make) for i, part in enumerate(parts))
    if isinstance(first, dict):
        return {key: zip_rules(f"{path}[{key!r}]", [tree[key] for tree in trees], make) for key in first}
    return first
