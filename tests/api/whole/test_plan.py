"""The cut through a model's calls, Amdahl's law and budgets."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hipwright.api.whole.handle import Clock
from hipwright.api.whole.plan import Call, Region, at_most, budgets, cut, ranked, speedup, without_scales
from hipwright.api.whole.profile import ModelProfile, in_parts


def tree(*rows: tuple[str, int, float, int]) -> list[Call]:
    """Calls of (signature, parent, seconds, operators); the path is the signature with the number."""
    return [
        Call(number, f"{name}{number}" if parent >= 0 else "", name, parent, seconds, 0.0, operators, name)
        for number, (name, parent, seconds, operators) in enumerate(rows)
    ]


def test_a_small_model_is_one_region() -> None:
    calls = tree(("model", -1, 3.0, 3), ("linear", 0, 2.0, 1), ("act", 0, 1.0, 1))
    found = cut(calls, {})
    assert list(found.candidates) == ["model"] and not found.stays


def test_equal_blocks_are_regions_and_what_holds_them_is_taken_in_parts() -> None:
    calls = tree(
        ("model", -1, 10.0, 12),
        ("stage", 0, 8.0, 10),
        ("block", 1, 4.0, 5),
        ("block", 1, 4.0, 5),
        ("head", 0, 1.0, 1),
    )
    found = cut(calls, {})
    assert [(name, len(same)) for name, same in found.candidates.items()] == [("block", 2), ("head", 1)]
    assert [(one.path, one.seconds) for one in found.stays] == [("", 1.0)]
    assert "equal blocks" in found.stays[0].why


def test_what_cannot_be_a_task_is_taken_in_parts_with_the_reason() -> None:
    calls = tree(("model", -1, 10.0, 3), ("odd", 0, 6.0, 2), ("linear", 1, 5.0, 1), ("tiny", 0, 0.01, 1))
    found = cut(calls, {"model": "reads values", "odd": "returns a view"})
    assert list(found.candidates) == ["linear"]
    assert {one.path: one.why.partition(":")[0] for one in found.stays} == {
        "": "reads values",
        "odd1": "returns a view",
        "tiny3": "below 1% of the time",
    }


def test_a_long_call_is_taken_in_parts() -> None:
    found = cut(tree(("model", -1, 10.0, 65), ("a", 0, 5.0, 40), ("b", 0, 5.0, 25)), {})
    assert list(found.candidates) == ["a", "b"]


@given(st.floats(0.0, 1.0), st.floats(1.0, 1e6))
def test_amdahls_law_is_bounded_by_the_factor_and_by_what_is_left(share: float, factor: float) -> None:
    found = speedup(share, factor)
    assert 1.0 - 1e-9 <= found <= factor * (1 + 1e-9)
    assert share == 1.0 or found <= 1.0 / (1.0 - share) + 1e-6


def test_regions_are_ranked_by_what_the_model_gains() -> None:
    slow = Region("a", (Call(0, "a", "A", -1, 4.0, 3.9, 1, "a"),))
    fused = Region("b", (Call(1, "b", "B", -1, 2.0, 0.5, 9, "b"),))
    assert ranked([slow, fused], 6.0) == [fused, slow]
    assert at_most(fused, 6.0) == pytest.approx(6.0 / 4.5)


@given(st.lists(st.tuples(st.floats(0.0, 10.0), st.floats(0.0, 10.0)), min_size=1, max_size=8), st.integers(1, 100))
def test_budgets_are_never_exceeded(times: list[tuple[float, float]], budget: int) -> None:
    regions = [Region(str(n), (Call(n, "", "", -1, a, min(a, b), 1, ""),)) for n, (a, b) in enumerate(times)]
    found = budgets(regions, budget)
    assert len(found) == len(regions) and sum(found) <= budget and min(found) >= 0
    assert budget < 2 * len(regions) or min(found) >= 2


def test_scales_of_inputs_do_not_tell_regions_apart_and_signs_do() -> None:
    text = "weight = torch.randn(4) * 0.5\n\ndef get_inputs():\n    return [{}]\n"
    scaled, plain, positive = (text.format(f"torch.{x}") for x in ("randn(2, 3) * 0.0156", "randn(2, 3)", "rand(2, 3)"))
    assert without_scales(scaled) == plain == without_scales(plain)
    assert without_scales(positive) != plain


@pytest.mark.parametrize(
    ("least", "most", "same"), [(3, 513, True), (0, 513, True), (256, 513, True), (300, 513, False)]
)
def test_the_least_of_whole_numbers_that_are_mostly_larger_does_not(least: int, most: int, same: bool) -> None:
    text = "table = torch.randint(3, 9)\n\ndef get_inputs():\n    return [torch.randint({}, {}, (64,))]\n"
    assert (without_scales(text.format(least, most)) == text.format(0, most)) is same
    assert without_scales(text.format(least, most)) != without_scales(text.format(least, 2 * most))


class Tasks:
    """In place of a model's host: each call's task is its path; keeps the numbers that it was asked for."""

    def __init__(self, calls: list[Call]) -> None:
        self.calls, self.asked = calls, list[int]()

    def tasks(self, numbers: list[int]) -> dict[int, dict[str, str]]:
        self.asked += numbers
        return {number: {"text": self.calls[number].signature} for number in numbers}


def test_a_region_without_a_program_is_taken_in_parts_and_the_others_stay() -> None:
    calls = tree(
        ("model", -1, 10.0, 70), ("big", 0, 6.0, 40), ("mul", 1, 4.0, 3), ("leaf", 1, 1.0, 1), ("head", 0, 4.0, 30)
    )
    big, head = Region("big", (calls[1],)), Region("head", (calls[4],))
    before = ModelProfile(Clock("processor", "here", ""), {}, 10.0, 70, (big, head), (), tuple(calls))
    host = Tasks(calls)
    found = in_parts(host, before, {big: "no program was verified: wrong"})  # type: ignore[arg-type]
    assert [one.text for one in found.regions] == ["head", "mul", "leaf"] or found.regions[0].text == "mul"
    assert any(one is head for one in found.regions) and big not in found.regions
    assert host.asked == [2, 3]
    assert {one.path: one.why for one in found.stays}["big1"] == "taken in parts: no program was verified: wrong"
    assert in_parts(host, found, {head: "x"}) is found, "it has no parts"  # type: ignore[arg-type]
