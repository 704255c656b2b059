"""Converts between the device host's descriptions and the rules of verification: budgets, comparisons and degeneracy.

Does not import torch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from math import inf, prod
from typing import Any, TypeVar

import numpy as np

from hipwright.records import Status, TensorSpec
from hipwright.tensors import HostTensor, Tree, leaves, tensor_leaves
from hipwright.verify import tolerance
from hipwright.verify.comparison import OutputComparison
from hipwright.verify.expected import LUCKY_SHARE, Rule

T = TypeVar("T")
_NOTHING = np.empty(0, np.uint8)


def budget(leaf: Mapping[str, Any], arguments: Tree, state: Tree, c: float) -> dict[str, Any]:
    """The numbers of `tolerance.strict_rule` and `kernelbench_rule` for one leaf as the host describes it.

    leaf: {"dtype", "shape", "float"}. c: factor on the honest error. {} for an exact leaf.
    """
    if not leaf["float"]:
        return {}
    dtype, shape = leaf["dtype"], tuple(leaf["shape"])
    given = [spec for spec in leaves(arguments) if isinstance(spec, TensorSpec)]
    reduction = tolerance.reduction_length(given, tensor_leaves(state["params"]), prod(shape))
    length = tolerance.row_length(shape)
    return {
        "row_length": length,
        "factor": c * (1.0 + 2.0 / length),
        "c": c,
        "floor": tolerance.floor(dtype, reduction),
        "least": tolerance.SMALLEST[dtype],
        "element": tolerance.ELEMENT,
        "lucky": LUCKY_SHARE,
        "allclose": tolerance.ALLCLOSE[dtype],
    }


def overflow(described: Sequence[Mapping[str, Any]], shares: Sequence[Mapping[str, Any]]) -> str:
    """Why a family exceeds the dtype's range, or "" (as the oracle decides).

    shares: {"finite", "judged": of the elements, "largest": finite magnitude} of each float leaf, {} for others.
    """
    for leaf, share in zip(described, shares, strict=True):
        if not share:
            continue
        if share["largest"] > tolerance.LARGEST[leaf["dtype"]] / 4:
            return f"the reference leaves the range of {leaf['dtype']}"
        if share["finite"] < 0.1:
            return "the reference gives NaN or Inf nearly everywhere"
        if share["judged"] < 0.99:
            return "the honest baseline overflows"
    return ""


def degenerate(passes: Sequence[Mapping[str, bool]]) -> str:
    """Why a case is no evidence, or "" (as `degenerate.degenerate` decides): which trivial outputs pass each leaf.

    passes: {"blind": nothing in it is judged, "zeros", "constant", "single": one element, "identity", "stranger"}.
    """
    if not passes:
        return "every output is empty"
    if all(leaf["blind"] for leaf in passes):
        return "the honest baseline disagrees with the fp64 reference everywhere"
    if all(leaf["zeros"] for leaf in passes):
        return "zeros would pass"
    if not all(leaf["single"] for leaf in passes) and all(leaf["constant"] for leaf in passes):
        return "a constant would pass"
    if all(leaf["identity"] for leaf in passes):
        return "an input handed back would pass"
    return "the outputs for other inputs would pass" if all(leaf["stranger"] for leaf in passes) else ""


# ---------------------------------------------------------------- structure and results


def without_values(tree: Tree) -> Tree:
    """Specs as tensors without data, for checks of the structure."""
    return _map_specs(tree, lambda spec, path: HostTensor(spec.dtype, spec.shape, spec.stride, 0, _NOTHING), "")


def rules_without_values(tree: Tree) -> Tree:
    """Expected specs as rules without values; `tree` is {"outputs", "buffers"}."""

    def rule(spec: TensorSpec, path: str) -> Rule:
        return Rule(path=path, spec=spec, expected=_NOTHING)

    buffers = {path: rule(spec, f"buffer {path}") for path, spec in tree["buffers"].items()}
    return {"outputs": _map_specs(tree["outputs"], rule, "output"), "buffers": buffers}


def _map_specs(tree: Tree, fn: Any, path: str) -> Tree:
    if isinstance(tree, TensorSpec):
        return fn(tree, path)
    if isinstance(tree, (tuple, list)):
        return type(tree)(_map_specs(item, fn, f"{path}[{i}]") for i, item in enumerate(tree))
    if isinstance(tree, Mapping):
        return {key: _map_specs(item, fn, f"{path}[{key!r}]") for key, item in tree.items()}
    return tree


def pairing(got: Tree, tree: Tree) -> list[int]:
    """For each leaf of `tree` in order, the index of the corresponding leaf of `got` (the structures agree)."""
    numbers = iter(range(1 << 30))
    return _pair(_map_specs(got, lambda spec, path: next(numbers), ""), tree)


def _pair(got: Tree, tree: Tree) -> list[int]:
    if isinstance(tree, TensorSpec):
        return [got]
    if isinstance(tree, (tuple, list)):
        return [number for a, b in zip(got, tree, strict=True) for number in _pair(a, b)]
    return [n for key, item in tree.items() for n in _pair(got[key], item)] if isinstance(tree, Mapping) else []


def comparison(described: Mapping[str, Any], spec: TensorSpec) -> OutputComparison:
    """One leaf's result as an `OutputComparison`.

    described: {"path", "kind": "pass", "element", "row", "mask" or "exact", "worst", "flat": logical index or -1,
    "expected", "got", "budget", "wrong", "total"}.
    """
    kind, total = described["kind"], described["total"]
    if described["flat"] < 0:
        return OutputComparison(path=described["path"], total=total)
    where = tuple(int(i) for i in np.unravel_index(described["flat"], spec.shape))
    status: Status = "pass" if kind == "pass" else "wrong_value"
    hard = kind in ("mask", "exact")
    return OutputComparison(
        status=status,
        worst_error=inf if hard else described["worst"],
        path=described["path"],
        where=where,
        expected=described["expected"],
        got=described["got"],
        budget=None if hard else described["budget"],
        wrong=described["wrong"],
        total=total,
        message="" if kind == "pass" else _message(described, where),
    )


def _message(described: Mapping[str, Any], where: tuple[int, ...]) -> str:
    have, want = (f"{v:.9g}" if isinstance(v, float) else str(v) for v in (described["got"], described["expected"]))
    place = f"[{', '.join(map(str, where))}]" if where else ""
    text, count = (
        f"{described['path']}{place} is {have}, expected {want}",
        f"{described['wrong']} of {described['total']}",
    )
    if described["kind"] == "mask":
        return f"{text}: NaN and Inf must stand where the reference has them ({count} elements wrong)"
    if described["kind"] == "exact":
        return f"{text} ({count} elements wrong)"
    by_row = described["kind"] == "row"
    error, unit = ("its row's rms error", "rows or elements") if by_row else ("the error", "elements")
    return f"{text}: {error} is {described['worst']:.3g} times the tolerance ({count} {unit} wrong)"


def prefetched(items: Iterable[T]) -> Iterator[T]:
    """The same items; a thread fetches the next one while the last is used."""
    end = object()
    iterator = iter(items)
    with ThreadPoolExecutor(1, "hipwright-ahead") as pool:
        waiting = pool.submit(next, iterator, end)
        while (item := waiting.result()) is not end:
            waiting = pool.submit(next, iterator, end)
            yield item  # type: ignore[misc]
