"""Constraints: parsing, words outside the vocabulary, and the check of finished tasks."""

from __future__ import annotations

import pytest

from hipwright.records import TensorSpec
from hipwright.synth.constrain import PRESETS, TaskConstraints, parse_constraints, violation
from hipwright.synth.library import LIBRARY
from hipwright.synth.records import Draft, SyntheticTask


@pytest.mark.parametrize(
    ("text", "constraints"),
    [
        (
            "memory-bound, three outputs, bf16, reduction over a middle axis",
            TaskConstraints(bound="memory", outputs=3, dtype="bfloat16", reduction_axis="middle"),
        ),
        ("a compute bound task with 2 outputs in fp16", TaskConstraints(bound="compute", outputs=2, dtype="float16")),
        (
            "bound=memory, outputs=3, dtype=bfloat16, axis=first, fused=3-6, ndim=3, elements=1k-64k",
            TaskConstraints(
                bound="memory",
                outputs=3,
                dtype="bfloat16",
                reduction_axis="first",
                fused=(3, 6),
                ndim=3,
                elements=(1000, 64000),
            ),
        ),
        (
            "softmax and layer norm, at least 3 operators",
            TaskConstraints(operators=("layer_norm", "softmax"), fused=(3, 8)),
        ),
        ("operators=softmax+gelu", TaskConstraints(operators=("gelu", "softmax"))),
        (
            "4-d inputs, between 2 and 4 ops, about 100k elements",
            TaskConstraints(ndim=4, fused=(2, 4), elements=(50_000, 200_000)),
        ),
        (
            "reduces along the last dimension; rank 2; at most 5 operators",
            TaskConstraints(reduction_axis="last", ndim=2, fused=(0, 5)),
        ),
        ("5 or more operators", TaskConstraints(fused=(5, 8))),
        ("", TaskConstraints()),
    ],
)
def test_constraints_are_parsed(text: str, constraints: TaskConstraints) -> None:
    assert parse_constraints(text) == (constraints, ())


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("bf16, with a butterfly exchange", ("butterfly", "exchange")),
        ("bf16, fp16", ("fp16",)),
        ("nine outputs", ("nine", "outputs")),
        ("9 outputs", ("9", "outputs")),
        ("colour=blue", ("colour=blue",)),
        ("at least 4 at most 2 operators", ("at", "least", "4")),
    ],
)
def test_words_outside_the_vocabulary_are_returned(text: str, left: tuple[str, ...]) -> None:
    assert parse_constraints(text)[1] == left


def test_every_operator_and_family_of_the_library_is_in_the_vocabulary() -> None:
    for name in {one.name for one in LIBRARY} | {one.family for one in LIBRARY}:
        assert parse_constraints(f"bf16, {name.replace('_', ' ')}") == (
            TaskConstraints(dtype="bfloat16", operators=(name,)),
            (),
        ), name


def test_the_presets_are_within_the_vocabulary() -> None:
    assert all(parse_constraints(text)[1] == () and parse_constraints(text)[0] != TaskConstraints() for text in PRESETS)


TASK = SyntheticTask(
    draft=Draft(name="x", source="", mode="constraint", operators=("gelu",)),
    task="k",
    operators=("aten.mean.dim", "aten.softmax.int", "aten.add.Tensor"),
    families=("reductions", "softmax", "pointwise"),
    fused=3,
    dtype="bfloat16",
    inputs=(TensorSpec(dtype="bfloat16", shape=(8,)), TensorSpec(dtype="bfloat16", shape=(4, 5, 6))),
    outputs=(TensorSpec(dtype="bfloat16", shape=(4, 6)),) * 2,
    provenance={"bound": "memory", "reduction_axes": ["middle", "last"]},
)


@pytest.mark.parametrize(
    "constraints",
    [
        TaskConstraints(),
        TaskConstraints(bound="memory", outputs=2, dtype="bfloat16", ndim=3, fused=(3, 3), elements=(128, 128)),
        TaskConstraints(reduction_axis="middle", operators=("softmax", "reductions")),
    ],
)
def test_a_task_that_meets_its_constraints(constraints: TaskConstraints) -> None:
    assert violation(TASK, constraints) == ""


@pytest.mark.parametrize(
    ("constraints", "why"),
    [
        (TaskConstraints(bound="compute"), "bound is memory, not compute"),
        (TaskConstraints(outputs=3), "outputs is 2, not 3"),
        (TaskConstraints(dtype="float32"), "dtype is bfloat16, not float32"),
        (TaskConstraints(ndim=2), "ndim is 3, not 2"),
        (TaskConstraints(fused=(4, 8)), "fused is 3, not 4 to 8"),
        (TaskConstraints(elements=(0, 127)), "elements is 128, not 0 to 127"),
        (TaskConstraints(reduction_axis="first"), "it reduces over middle and last, not first"),
        (TaskConstraints(operators=("gelu",)), "it has no gelu"),  # the draft claims it; the graph has none
    ],
)
def test_the_constraint_that_a_task_misses_is_named(constraints: TaskConstraints, why: str) -> None:
    assert violation(TASK, constraints) == why
