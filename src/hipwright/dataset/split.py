"""Splits by what tasks are made of: whole operator families, whole compositions, depth; never row by row.

    test_family          holds an operator of a family that train never sees
    deeper               more distinct operators in one task than any of train
    unseen_compositions  operators of train in a combination that train does not have
    unseen_shapes        a combination of train, at sizes that train does not have for it
    train                the rest

All rows of a task are in one split. Except for unseen_shapes, whose point it is, no composition of a held-out split is
one of train. The split depends on the set of rows and the seed, not on the rows' order.
"""

from __future__ import annotations

import ast
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, Literal

from hipwright import syntax
from hipwright.dataset.records import Pair
from hipwright.records import Record, content_key

Split = Literal["train", "unseen_shapes", "unseen_compositions", "deeper", "test_family"]
SPLITS: tuple[Split, ...] = ("train", "unseen_shapes", "unseen_compositions", "deeper", "test_family")

COMMON = frozenset({"", "pointwise", "view"})
"""Families that nearly every task has: they are never held out."""


class SplitFacts(Record, frozen=True, kw_only=True):
    """What decides a row's split. composition: its operators' names in order, joined by "+"; sizes: of its task."""

    key: str
    task: str
    composition: str
    families: tuple[str, ...] = ()
    sizes: str = ""


class Shares(Record, frozen=True, kw_only=True):
    """About how much of the tasks (families, depth) or of what is left (compositions, shapes) is held out."""

    family: float = 0.08
    deeper: float = 0.08
    compositions: float = 0.1
    shapes: float = 0.15


DEFAULT = Shares()


def split(rows: Iterable[SplitFacts], seed: int = 0, shares: Shares = DEFAULT) -> dict[str, Split]:
    """{key: split}. Small sets may leave a split empty, but never train."""
    rows = list(rows)
    tasks = _tasks(rows)
    chosen: dict[str, Split] = {}
    family = _held_family(list(tasks.values()), seed, shares.family)
    depth = _deepest([row for row in tasks.values() if family not in row.families], shares.deeper)
    for task, row in tasks.items():
        if family and family in row.families:
            chosen[task] = "test_family"
        elif _depth(row) > depth:
            chosen[task] = "deeper"
    rest = {task: row for task, row in tasks.items() if task not in chosen}
    chosen |= _held_compositions(rest, seed, shares.compositions)
    # a composition of a task with a held-out family is of no other split: its operators say so
    chosen |= _held_shapes({task: row for task, row in rest.items() if task not in chosen}, seed, shares.shapes)
    return {row.key: chosen.get(row.task, "train") for row in rows}


def fields(pairs: Iterable[Pair], seed: int = 0, shares: Shares = DEFAULT) -> dict[str, dict[str, Any]]:
    """{pair key: {"split": name}}, as dataset.store takes it."""
    found = split((row_of(pair) for pair in pairs), seed, shares)
    return {key: {"split": name} for key, name in found.items()}


def row_of(pair: Pair) -> SplitFacts:
    """What a pair's split is decided by."""
    return SplitFacts(
        key=pair.key,
        task=pair.task,
        composition=pair.composition,
        families=pair.families,
        sizes=sizes_of(pair.task_source),
    )


def sizes_of(source: str) -> str:
    """The whole numbers from 2 up in the functions that give inputs and in the constants at the top, sorted."""
    try:
        tree = syntax.parse(source)
    except (SyntaxError, ValueError, RecursionError):
        return ""
    giving = ("get_inputs", "get_init_inputs", "get_input_groups")
    places = [
        top
        for top in tree.body
        if isinstance(top, (ast.Assign, ast.AnnAssign)) or (isinstance(top, ast.FunctionDef) and top.name in giving)
    ]
    numbers = [n.value for top in places for n in ast.walk(top) if isinstance(n, ast.Constant) and type(n.value) is int]
    return " ".join(map(str, sorted(n for n in numbers if isinstance(n, int) and n >= 2)))


# ---------------------------------------------------------------- what is held out


def _tasks(rows: Sequence[SplitFacts]) -> dict[str, SplitFacts]:
    """One row a task, all families any row of it names; in an order that the rows' order does not change."""
    families: defaultdict[str, set[str]] = defaultdict(set)
    first: dict[str, SplitFacts] = {}
    for row in sorted(rows, key=lambda row: (row.task, row.composition, row.sizes, row.families, row.key)):
        first.setdefault(row.task, row)
        families[row.composition].update(row.families)
    # tasks of one composition have one set of families, so that they stay together
    return {
        task: SplitFacts(
            key=row.key,
            task=task,
            composition=row.composition,
            families=tuple(sorted(families[row.composition])),
            sizes=row.sizes,
        )
        for task, row in first.items()
    }


def _depth(row: SplitFacts) -> int:
    """How many distinct operators stand together."""
    return len(row.composition.split("+")) if row.composition else 0


def _held_family(tasks: Sequence[SplitFacts], seed: int, share: float) -> str:
    """A family with about that share of the tasks: of those that have between a third and twice of it, drawn; never
    one that all tasks have, or nothing would be left to train on."""
    counts = Counter(family for row in tasks for family in row.families if family not in COMMON)
    fit = [f for f, n in counts.items() if share / 3 <= n / len(tasks) <= 2 * share and n < len(tasks)]
    return min(fit, key=lambda f: content_key("held family", str(seed), f), default="")


def _deepest(tasks: Sequence[SplitFacts], share: float) -> int:
    """The greatest depth of train: deeper tasks are at most that share of all, and some are left."""
    depths = Counter(map(_depth, tasks))
    limit, left = max(depths, default=0), share * len(tasks)
    for depth in sorted(depths, reverse=True):
        if depths[depth] > left:
            break
        left -= depths[depth]
        limit = depth - 1
    return limit


def _held_compositions(tasks: dict[str, SplitFacts], seed: int, share: float) -> dict[str, Split]:
    """Combinations of two operators or more, each of which train has in another combination."""
    groups: defaultdict[str, list[str]] = defaultdict(list)
    for task, row in tasks.items():
        groups[row.composition].append(task)
    uses = Counter(name for composition in groups for name in composition.split("+"))
    wanted = share * len(tasks)
    held: dict[str, Split] = {}
    for composition in sorted(groups, key=lambda c: content_key("held composition", str(seed), c)):
        names = composition.split("+")
        fits = len(held) + len(groups[composition]) <= wanted
        if len(names) > 1 and fits and all(uses[name] > 1 for name in names):
            uses.subtract(names)
            held |= dict.fromkeys(groups[composition], "unseen_compositions")
    return held


def _held_shapes(tasks: dict[str, SplitFacts], seed: int, share: float) -> dict[str, Split]:
    """Of compositions at several sizes, one size each."""
    groups: defaultdict[str, defaultdict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for task, row in tasks.items():
        groups[row.composition][row.sizes].append(task)
    wanted = share * len(tasks)
    held: dict[str, Split] = {}
    for composition in sorted(groups, key=lambda c: content_key("held shapes", str(seed), c)):
        sizes = groups[composition]
        drawn = min(sizes, key=lambda s: content_key("held size", str(seed), composition, s))
        if len(sizes) > 1 and len(held) + len(sizes[drawn]) <= wanted:
            held |= dict.fromkeys(sizes[drawn], "unseen_shapes")
    return held
