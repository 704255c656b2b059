"""The miniature's tasks: disjoint splits, and functions of the seed."""

from __future__ import annotations

from itertools import combinations, islice

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hipwright.train.mini.tasks import (
    CORPUS,
    CPU,
    DEEPER,
    GPU,
    HELD,
    HELD_OUT,
    LARGER,
    MAX_TRAIN_OPERATORS,
    OF_TRAIN,
    OPERATORS,
    PRACTICE,
    USUAL_ELEMENTS,
    Composition,
    Grammar,
    Scale,
    Split,
    practised,
    weight,
)
from hipwright.train.records import TrainingProblem

SEEDS = st.integers(0, 1000)
TASKS = 60


def composition(problem: TrainingProblem) -> Composition:
    """The composition in a task's name."""
    return Composition(tuple(problem.name.split("-")[:-2]), problem.facts["dtype"])


@given(SEEDS)
@settings(max_examples=10, deadline=None)
def test_held_out_pairs_are_in_the_split_of_compositions_only(seed: int) -> None:
    grammar = Grammar(seed)
    held = grammar.held_pairs
    train, other = (list(islice(grammar.compositions(split), TASKS)) for split in ("train", "compositions"))
    assert not any(one.pairs & held for one in train)
    assert all(one.pairs & held for one in other)
    assert not set(train) & set(other)
    assert max(len(one.operators) for one in other) <= MAX_TRAIN_OPERATORS


@given(SEEDS)
@settings(max_examples=10, deadline=None)
def test_deeper_tasks_have_more_operators_than_any_of_train(seed: int) -> None:
    grammar = Grammar(seed)
    assert {len(one.operators) for one in islice(grammar.compositions("deeper"), TASKS)} == set(DEEPER)
    assert {len(one.operators) for one in islice(grammar.compositions("train"), TASKS)} <= set(
        range(1, MAX_TRAIN_OPERATORS + 1)
    )


@given(SEEDS, st.sampled_from([GPU, CPU]))
@settings(max_examples=10, deadline=None)
def test_deeper_practice_has_no_set_of_operators_of_the_deeper_split(seed: int, scale: Scale) -> None:
    grammar = Grammar(seed, scale)
    held = {frozenset(one.operators) for one in islice(grammar.compositions("deeper"), TASKS)}
    deeper = grammar.practice(50, 20, 0.4)[30:]
    made = [composition(p) for p in deeper]
    assert {len(one.operators) for one in made} == set(DEEPER)
    assert not held & {frozenset(one.operators) for one in made}
    assert all(practised(one.operators) for one in made) and not any(map(practised, held))
    assert not any(one.pairs & grammar.held_pairs for one in made)
    sizes = set(scale.shapes(PRACTICE, judged=True)) | set(scale.shapes(CORPUS, judged=True))
    assert {tuple(p.facts["shape"]) for p in deeper} <= sizes


def test_half_of_the_deeper_compositions_are_practised() -> None:
    for depth in DEEPER:
        sets = [frozenset(one) for one in combinations(OPERATORS, depth)]
        assert abs(sum(map(practised, sets)) / len(sets) - 0.5) < 0.1
    assert practised(("relu", "gelu", "sum", "add")) == practised(("add", "sum", "gelu", "relu"))


def test_practice_without_deeper_tasks_has_none() -> None:
    grammar = Grammar(0)
    assert max(p.facts["depth"] for p in grammar.practice(50, 20)) <= MAX_TRAIN_OPERATORS
    assert grammar.practice(50, 20, 0.4)[:30] == grammar.practice(30, 20)


@pytest.mark.parametrize("scale", [GPU, CPU])
def test_larger_tasks_are_trains_compositions_at_larger_sizes(scale: Scale) -> None:
    grammar = Grammar(3, scale)
    tasks = grammar.problems("larger", 40, 20)
    assert {composition(p) for p in tasks} <= set(islice(grammar.compositions("train"), 20))
    elements = [p.facts["shape"][0] * p.facts["shape"][1] for p in tasks]
    assert scale.larger[0] <= min(elements) and max(elements) <= scale.larger[1]
    assert scale.larger[0] > scale.elements[1]
    used = {size for shape in scale.shapes(LARGER) for size in shape}
    assert used == {*scale.rows[LARGER], *scale.columns[LARGER]}, "a size without a shape"


def test_a_task_weighs_by_its_memory() -> None:
    usual = [p for split in ("shapes", "deeper") for p in Grammar(1).problems(split, 20, 20)]  # type: ignore[arg-type]
    assert {weight(p) for p in usual} == {1}
    for p in Grammar(1).problems("larger", 20, 20):
        rows, columns = p.facts["shape"]
        assert weight(p) >= 2 * rows * columns / USUAL_ELEMENTS


@pytest.mark.parametrize("split", OF_TRAIN)
@pytest.mark.parametrize("scale", [GPU, CPU])
def test_unseen_shapes_share_no_size_with_train(scale: Scale, split: Split) -> None:
    grammar = Grammar(3, scale)
    train = grammar.problems("train", TASKS, 20)
    unseen = grammar.problems(split, 30, 20)
    sizes = [{(axis, p.facts["shape"][axis]) for p in some for axis in (0, 1)} for some in (train, unseen)]
    assert not sizes[0] & sizes[1]
    for axis in (scale.rows, scale.columns):
        assert len({size for pool in axis for size in pool}) == sum(map(len, axis))
    # only the sizes differ
    bodies = [{p.source.split("def get_inputs")[0] for p in some} for some in (train, unseen)]
    assert bodies[1] <= {
        one.source((1, 1)).split("def get_inputs")[0] for one in islice(grammar.compositions("train"), 20)
    }


@pytest.mark.parametrize("scale", [GPU, CPU])
def test_practice_has_new_shapes_and_compositions_but_no_held_out_ones(scale: Scale) -> None:
    grammar = Grammar(0, scale)
    practice = grammar.practice(100, 20)
    assert len({p.name for p in practice}) == 100
    known = {one.operators for one in islice(grammar.compositions("train"), 20)}
    compositions = [composition(p) for p in practice]
    assert 20 < sum(one.operators in known for one in compositions) < 80
    assert 25 < sum(tuple(p.facts["shape"]) in scale.shapes(PRACTICE) for p in practice) < 75
    assert not any(one.pairs & grammar.held_pairs or len(one.operators) > MAX_TRAIN_OPERATORS for one in compositions)
    held = {(axis, size) for shape in scale.shapes(HELD) for axis, size in enumerate(shape)}
    assert not held & {(axis, size) for p in practice for axis, size in enumerate(p.facts["shape"])}


def test_tasks_are_functions_of_the_seed() -> None:
    for split in ("train", *HELD_OUT):
        assert Grammar(5).problems(split, 20) == Grammar(5).problems(split, 20)
    assert Grammar(5).problems("train", 20) != Grammar(6).problems("train", 20)
    assert Grammar(5).held_pairs != Grammar(6).held_pairs


def test_each_operator_keeps_most_of_its_partners() -> None:
    held = Grammar(0).held_pairs
    assert len(held) > 0.1 * len(OPERATORS) * (len(OPERATORS) - 1) / 2
    assert max(sum(o in pair for pair in held) for o in OPERATORS) < len(OPERATORS) / 3


@pytest.mark.parametrize("split", ["train", *HELD_OUT])
def test_the_sources_run(split: Split) -> None:
    for problem in Grammar(1, CPU).problems(split, 12):
        names: dict[str, object] = {}
        exec(problem.source, names)
        inputs = names["get_inputs"]()  # type: ignore[operator]
        out = names["Model"]()(*inputs)  # type: ignore[operator]
        assert out.shape[0] == problem.facts["shape"][0] == inputs[0].shape[0]
        assert str(out.dtype) == f"torch.{problem.facts['dtype']}"
        assert bool(out.isfinite().all())


def test_tasks_are_different_and_as_many_as_asked() -> None:
    problems = Grammar(2).problems("compositions", 100)
    assert len({p.name for p in problems}) == len({p.source for p in problems}) == 100
