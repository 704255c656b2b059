"""The operator library: how many, of what kinds, and that each does what it says."""

from __future__ import annotations

import random

import pytest

from hipwright.synth.compose import compose, lead_of
from hipwright.synth.library import BY_NAME, FAMILIES, LIBRARY, named
from hipwright.synth.values import SketchValue, Unfit, normal, uniform
from tests.synth.drafts import namespace


def test_how_many_and_of_what_kinds() -> None:
    assert len(LIBRARY) >= 100
    assert len({one.name for one in LIBRARY}) == len({one.aten for one in LIBRARY}) == len(LIBRARY)
    assert len(FAMILIES) >= 10
    assert all(sum(one.family == family for one in LIBRARY) >= 1 for family in FAMILIES)
    assert sum(one.pointwise for one in LIBRARY) <= 20
    assert sum(one.library for one in LIBRARY) <= len(LIBRARY) // 5


def test_words_are_names_or_families() -> None:
    assert named("softmax")[0] is BY_NAME["softmax"]
    assert {one.name for one in named("scans")} == {"cumsum", "cumprod", "logcumsumexp", "cummax"}
    assert named("no_such_operator") == ()


def test_a_batch_leads_with_every_operator_once() -> None:
    assert {lead_of(index) for index in range(len(LIBRARY))} == set(BY_NAME)
    assert [lead_of(index) for index in range(3)] == [lead_of(index + len(LIBRARY)) for index in range(3)]


@pytest.mark.slow
def test_the_aten_operator_is_called() -> None:
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


def test_ranges() -> None:
    known = normal(2.0, 1.0)
    assert (known.low, known.high) == (-10.0, 12.0)
    halved = known.times(-0.5, 1.0)
    assert (halved.low, halved.high, halved.mean, halved.std) == (-5.0, 6.0, 0.5, 1.0)
    assert normal().through(lambda v: v * v).mean == pytest.approx(1.0, abs=1e-3)
    assert normal().through(lambda v: max(v, 0.0)).mean == pytest.approx(0.4, abs=0.05)
    assert uniform().averaged(100).std == pytest.approx(0.0289, abs=1e-3)
    assert (uniform() * uniform()).mean == pytest.approx(0.25)


def test_what_overflows_or_says_nothing_is_unfit() -> None:
    SketchValue("x", (4, 8), "float16", normal()).fit()
    with pytest.raises(Unfit, match="reaches"):
        SketchValue("x", (4, 8), "float16", normal(1000.0)).fit()
    with pytest.raises(Unfit, match="nearly a constant"):
        SketchValue("x", (4, 8), "bfloat16", normal(0.01, 1.0)).fit()
    with pytest.raises(Unfit, match="hardly varies"):
        SketchValue("x", (4, 8), "float16", normal(1e-5)).fit()
    with pytest.raises(Unfit, match="no value"):
        normal().through(lambda v: v**-0.5 if v > 0 else 1 / 0)
    with pytest.raises(Unfit, match="bound"):  # of many clamped elements the largest is the clamp
        normal().through(lambda v: min(v, 0.5)).extreme(64)
