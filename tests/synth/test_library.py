"""The operator library: its size and families, its ATen names, and the ranges of values."""

from __future__ import annotations

import random

import pytest

from hipwright.synth.compose import compose, lead_operator
from hipwright.synth.library import BY_NAME, LIBRARY, operators_named
from hipwright.synth.values import SketchValue, Unfit, normal, uniform
from tests.synth.drafts import namespace


def test_size_and_families_of_the_library() -> None:
    assert len(LIBRARY) >= 100
    assert len({one.name for one in LIBRARY}) == len({one.aten for one in LIBRARY}) == len(LIBRARY)
    assert len({one.family for one in LIBRARY}) >= 10
    assert sum(one.pointwise for one in LIBRARY) <= 20
    assert sum(one.library for one in LIBRARY) <= len(LIBRARY) // 5


def test_operators_are_found_by_name_and_by_family() -> None:
    assert operators_named("softmax")[0] is BY_NAME["softmax"]
    assert {one.name for one in operators_named("scans")} == {"cumsum", "cumprod", "logcumsumexp", "cummax"}
    assert operators_named("no_such_operator") == ()


def test_a_batch_has_every_operator_as_lead_once() -> None:
    assert {lead_operator(index) for index in range(len(LIBRARY))} == set(BY_NAME)
    assert [lead_operator(index) for index in range(3)] == [lead_operator(index + len(LIBRARY)) for index in range(3)]


@pytest.mark.slow
def test_the_stated_aten_operator_is_called() -> None:
    """The dispatcher sees the name that the library states, or torch.export keeps an operator of that name."""
    import torch

    from hipwright.program.lower.trace import OpTrace

    missing = {}
    for one in LIBRARY:
        made = namespace(compose(random.Random(5), lead=one.name))
        model, given = made["Model"](*made["get_init_inputs"]()), tuple(made["get_inputs"]())
        with torch.no_grad(), OpTrace() as trace:
            model(*given)
        names = {str(call["op"]).split(".")[1] for call in trace.ops}
        if one.aten not in names:
            graph = torch.export.export(model, given, strict=False).graph
            names |= {str(node.target).split(".")[1] for node in graph.nodes if str(node.target).startswith("aten.")}
        if one.aten not in names:
            missing[one.name] = sorted(names)
    assert not missing


def test_ranges_are_propagated() -> None:
    known = normal(2.0, 1.0)
    assert (known.low, known.high) == (-10.0, 12.0)
    halved = known.scaled(-0.5, 1.0)
    assert (halved.low, halved.high, halved.mean, halved.std) == (-5.0, 6.0, 0.5, 1.0)
    assert normal().mapped(lambda v: v * v).mean == pytest.approx(1.0, abs=1e-3)
    assert normal().mapped(lambda v: max(v, 0.0)).mean == pytest.approx(0.4, abs=0.05)
    assert uniform().averaged(100).std == pytest.approx(0.0289, abs=1e-3)
    assert (uniform() * uniform()).mean == pytest.approx(0.25)


def test_overflowing_and_nearly_constant_values_are_unfit() -> None:
    SketchValue("x", (4, 8), "float16", normal()).check_range()
    with pytest.raises(Unfit, match="reaches"):
        SketchValue("x", (4, 8), "float16", normal(1000.0)).check_range()
    with pytest.raises(Unfit, match="nearly a constant"):
        SketchValue("x", (4, 8), "bfloat16", normal(0.01, 1.0)).check_range()
    with pytest.raises(Unfit, match="hardly varies"):
        SketchValue("x", (4, 8), "float16", normal(1e-5)).check_range()
    with pytest.raises(Unfit, match="no value"):
        normal().mapped(lambda v: v**-0.5 if v > 0 else 1 / 0)
    with pytest.raises(Unfit, match="bound"):  # of many clamped elements the largest is the clamp
        normal().mapped(lambda v: min(v, 0.5)).extreme(64)
