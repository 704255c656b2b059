"""Splits: families, compositions and depth are held out as a whole."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from typing import get_args

from hypothesis import example, given
from hypothesis import strategies as st

from hipwright.dataset.split import (
    COMMON,
    HeldOutShares,
    Split,
    SplitFacts,
    assign_splits,
    pair_splits,
    sizes_of,
    split_facts,
)
from hipwright.synth.compose import compose
from hipwright.synth.library import BY_NAME
from tests.dataset.planted import resized
from tests.synth.captured import task

SPLITS = get_args(Split)
FAMILIES = {
    "relu": "pointwise",
    "exp": "pointwise",
    "add": "pointwise",
    "sum": "reductions",
    "amax": "reductions",
    "softmax": "softmax",
    "cumsum": "scans",
    "gather": "indexing",
    "conv": "products",
    "pad": "layout",
}


def row(number: int, names: frozenset[str], sizes: str, copy: int = 0) -> SplitFacts:
    composition = "+".join(sorted(names))
    families = tuple(sorted({FAMILIES[name] for name in names}))
    return SplitFacts(key=f"{number}.{copy}", task=str(number), composition=composition, families=families, sizes=sizes)


SETS = st.lists(
    st.tuples(st.frozensets(st.sampled_from(sorted(FAMILIES)), max_size=6), st.sampled_from(["8", "9 12", "64"])),
    min_size=1,
    max_size=60,
).map(lambda drawn: [row(n, names, sizes, copy) for n, (names, sizes) in enumerate(drawn) for copy in range(2)])


@example([row(0, frozenset({"add", "amax"}), "8")], 0, 0.5)  # a family that every task has
@given(SETS, st.integers(0, 5), st.floats(0.0, 0.5))
def test_no_composition_of_a_held_out_split_is_in_train(rows: list[SplitFacts], seed: int, share: float) -> None:
    found = assign_splits(rows, seed, HeldOutShares(family=share, deeper=share, compositions=share, shapes=share))
    assert set(found) == {row.key for row in rows}
    assert set(found.values()) <= set(SPLITS)
    assert "train" in found.values()
    by = defaultdict(set)
    for one in rows:
        by[found[one.key]].add(one.composition)
    for held in ("unseen_compositions", "deeper", "test_family"):
        assert not by[held] & (by["train"] | by["unseen_shapes"])
    assert by["unseen_shapes"] <= by["train"]


@given(SETS, st.integers(0, 5))
def test_each_split_has_its_defining_property(rows: list[SplitFacts], seed: int) -> None:
    found = assign_splits(rows, seed)
    of = {name: [one for one in rows if found[one.key] == name] for name in SPLITS}
    train = of["train"]
    known = {name for one in train for name in one.composition.split("+")}
    assert all(set(one.composition.split("+")) <= known for one in of["unseen_compositions"])
    deepest = max(one.composition.count("+") for one in train)
    assert all(one.composition.count("+") > deepest for one in of["deeper"])
    sizes = {(one.composition, one.sizes) for one in train}
    assert all((one.composition, one.sizes) not in sizes for one in of["unseen_shapes"])
    if of["test_family"]:
        held = set.intersection(*(set(one.families) for one in of["test_family"]))
        assert any(all(family not in one.families for one in train) for family in held - COMMON)


@given(SETS, st.integers(0, 5), st.randoms(use_true_random=False))
def test_the_order_of_rows_does_not_matter_and_a_task_stays_whole(
    rows: list[SplitFacts], seed: int, rng: random.Random
) -> None:
    found = assign_splits(rows, seed)
    assert assign_splits(rng.sample(rows, len(rows)), seed) == found
    for one in rows:
        assert found[one.key] == found[f"{one.task}.0"]


def composed(count: int) -> list[SplitFacts]:
    rng = random.Random(8)
    rows = []
    for number in range(count):
        draft = compose(rng)
        names = sorted(set(draft.operators))
        rows.append(
            SplitFacts(
                key=str(number),
                task=str(number),
                composition="+".join(names),
                families=tuple(sorted({BY_NAME[name].family for name in names})),
                sizes=sizes_of(draft.source),
            )
        )
    return rows


def test_every_split_gets_its_share_of_composed_tasks() -> None:
    rows = composed(300)
    twins = [
        SplitFacts(key=f"{r.key}b", task=f"{r.task}b", composition=r.composition, families=r.families, sizes="1")
        for r in rows[:90]
    ]
    counts = Counter(assign_splits([*rows, *twins], seed=1).values())
    assert counts["train"] > 0.5 * counts.total()
    for name in ("test_family", "deeper", "unseen_compositions", "unseen_shapes"):
        assert 0.01 * counts.total() < counts[name] < 0.2 * counts.total(), (name, counts)


def test_the_split_depends_on_the_seed() -> None:
    rows = composed(120)
    assert assign_splits(rows, 1) != assign_splits(rows, 2)


def test_a_single_task_is_train_and_no_rows_give_no_splits() -> None:
    assert assign_splits([row(0, frozenset({"relu"}), "8")]) == {"0.0": "train"}
    assert assign_splits([]) == {}


def test_sizes_are_those_of_inputs_and_constants() -> None:
    source = task("return x.view(-1, 6)")
    assert sizes_of(source) == "8 12"
    assert sizes_of(resized(source) or "") == "24 36"
    assert sizes_of("not Python (") == ""


def test_pairs_are_split_by_their_task() -> None:
    from hipwright.dataset.records import Pair
    from hipwright.records import Program

    def pair(number: int, text: str) -> Pair:
        return Pair(
            task=f"t{number}",
            task_name="",
            task_source=task("return x.exp()"),
            program=Program(text=text),
            kind="engine",
            correct=True,
            status="pass",
            composition="exp",
            families=("pointwise",),
        )

    pairs = [pair(0, "a"), pair(0, "b"), pair(1, "a")]
    assert split_facts(pairs[0]).sizes == "8 12"
    assert pair_splits(pairs) == {one.key: {"split": "train"} for one in pairs}
