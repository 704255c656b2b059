"""Splits by the operators of tasks: families, compositions and depth are held out as a whole, never single rows.

    test_family          tasks with an operator of one family, which train does not have
    deeper               more distinct operators in one task than any of train
    unseen_compositions  operators of train in a combination that train does not have
    unseen_shapes        a combination of train, at sizes that train does not have for it
    train                the rest

All rows of a task are in one split. No composition of a held-out split is in train, except for
unseen_shapes. The split depends on the set of rows and the seed, not on the rows' order.
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

COMMON = frozenset({"", "pointwise", "view"})
"""Families that nearly all tasks have; they are never held out."""


class SplitFacts(Record, frozen=True, kw_only=True):
    """What decides a row's split. composition: sorted operator names joined by "+"; sizes: of its task, as text."""

    key: str
    task: str
    composition: str
    families: tuple[str, ...] = ()
    sizes: str = ""


class HeldOutShares(Record, frozen=True, kw_only=True):
    """Approximate held-out shares: of all tasks (family, deeper), and of the remaining ones (compositions, shapes)."""

    family: float = 0.08
    deeper: float = 0.08
    compositions: float = 0.1
    shapes: float = 0.15


DEFAULT = HeldOutShares()


def assign_splits(rows: Iterable[SplitFacts], seed: int = 0, shares: HeldOutShares = DEFAULT) -> dict[str, Split]:
    """{key: split}. In small sets splits other than train may be empty."""
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
    chosen |= _held_shapes({task: row for task, row in rest.items() if task not in chosen}, seed, shares.shapes)
    return {row.key: chosen.get(row.task, "train") for row in rows}


def pair_splits(pairs: Iterable[Pair], seed: int = 0, shares: HeldOutShares = DEFAULT) -> dict[str, dict[str, Any]]:
    """{pair key: {"split": name}}, for DatasetStore.finish."""
    found = assign_splits((split_facts(pair) for pair in pairs), seed, shares)
    return {key: {"split": name} for key, name in found.items()}


def split_facts(pair: Pair) -> SplitFacts:
    """The facts that decide a pair's split."""
    return SplitFacts(
        key=pair.key,
        task=pair.task,
        composition=pair.composition,
        families=pair.families,
        sizes=sizes_of(pair.task_source),
    )


def sizes_of(source: str) -> str:
    """The integers of at least 2 in the functions that return inputs and in module constants, sorted, as text."""
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
    """{task: one row with the families of all rows of its composition}; independent of the rows' order."""
    families: defaultdict[str, set[str]] = defaultdict(set)
    first: dict[str, SplitFacts] = {}
    for row in sorted(rows, key=lambda row: (row.task, row.composition, row.sizes, row.families, row.key)):
        first.setdefault(row.task, row)
        families[row.composition].update(row.families)
    # tasks of one composition share their families, so that they are in one split
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
    """The number of distinct operators."""
    return len(row.composition.split("+")) if row.composition else 0


def _held_family(tasks: Sequence[SplitFacts], seed: int, share: float) -> str:
    """A family drawn from those with between a third and twice that share of the tasks; "" where there is none."""
    counts = Counter(family for row in tasks for family in row.families if family not in COMMON)
    fit = [f for f, n in counts.items() if share / 3 <= n / len(tasks) <= 2 * share and n < len(tasks)]
    return min(fit, key=lambda f: content_key("held family", str(seed), f), default="")


def _deepest(tasks: Sequence[SplitFacts], share: float) -> int:
    """The greatest depth of train, such that at most that share of the tasks is deeper and train is not empty."""
    depths = Counter(map(_depth, tasks))
    limit, left = max(depths, default=0), share * len(tasks)
    for depth in sorted(depths, reverse=True):
        if depths[depth] > left:
            break
        left -= depths[depth]
        limit = depth - 1
    return limit


def _held_compositions(tasks: dict[str, SplitFacts], seed: int, share: float) -> dict[str, Split]:
    """Compositions of at least two operators, each of which train has in another composition."""
    groups: defaultdict[str, list[str]] = defaultdict(list)
    for task, row in tasks.items():
        groups[row.composition].append(task)
    uses = Counter(name for composition in groups for name in composition.split("+"))
    limit = share * len(tasks)
    held: dict[str, Split] = {}
    for composition in sorted(groups, key=lambda c: content_key("held composition", str(seed), c)):
        names = composition.split("+")
        fits = len(held) + len(groups[composition]) <= limit
        if len(names) > 1 and fits and all(uses[name] > 1 for name in names):
            uses.subtract(names)
            held |= dict.fromkeys(groups[composition], "unseen_compositions")
    return held


def _held_shapes(tasks: dict[str, SplitFacts], seed: int, share: float) -> dict[str, Split]:
    """One size of each of some compositions that occur at several sizes."""
    groups: defaultdict[str, defaultdict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for task, row in tasks.items():
        groups[row.composition][row.sizes].append(task)
    limit = share * len(tasks)
    held: dict[str, Split] = {}
    for composition in sorted(groups, key=lambda c: content_key("held shapes", str(seed), c)):
        sizes = groups[composition]
        drawn = min(sizes, key=lambda s: content_key("held size", str(seed), composition, s))
        if len(sizes) > 1 and len(held) + len(sizes[drawn]) <= limit:
            held |= dict.fromkeys(sizes[drawn], "unseen_shapes")
    return held
