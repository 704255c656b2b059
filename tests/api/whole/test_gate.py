"""The accuracy gate: float64 as the truth, eager's own error as the measure."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hipwright.api.whole.gate import FACTOR, check_outputs, relative_error
from hipwright.torchio import tree_from_torch


def checked(found: list[Any], eager: list[Any], exact: list[Any] | None) -> list[str]:
    reference = {"eager": tree_from_torch(eager), "exact": tree_from_torch(exact)}
    return [one.why for one in check_outputs(tree_from_torch(found), reference)]


def test_an_error_of_eagers_own_size_passes_and_a_larger_one_does_not() -> None:
    exact = torch.randn(1000, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    eager = (exact * (1 + 1e-3)).float()
    assert checked([(exact * (1 - 2e-3)).float()], [eager], [exact]) == [""]
    assert checked([(exact * (1 - 4e-3)).float()], [eager], [exact]) == ["the error is too large"]


def test_one_wrong_element_of_a_large_output_does_not_pass() -> None:
    exact = torch.ones(100_000, dtype=torch.float64)
    found = exact.float()
    found[7] = 2.0
    assert checked([found], [exact.float()], [exact])[0]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_rounding_of_half_types_passes(dtype: torch.dtype) -> None:
    exact = torch.linspace(1, 2, 500, dtype=torch.float64)
    assert checked([exact.to(dtype)], [exact.to(dtype)], [exact]) == [""]
    assert checked([exact.to(dtype) * 1.05], [exact.to(dtype)], [exact])[0]


def test_without_float64_eager_is_the_truth() -> None:
    eager = torch.randn(50)
    assert checked([eager * 1.0005], [eager], None) == [""] and checked([eager * 1.01], [eager], None)[0]


def test_other_shapes_infinities_indices_and_values() -> None:
    eager = torch.tensor([1.0, float("inf")])
    assert checked([torch.tensor([1.0, 2.0])], [eager], [eager.double()]) == ["finite elsewhere than the eager model"]
    assert checked([eager.double()], [eager], None) == ["another shape or dtype"]
    assert checked([eager, eager], [eager], None)[0].startswith("2 outputs")
    index = torch.arange(2000)
    near = index.clone()
    near[0] = 5
    assert checked([near], [index], [index]) == [""] and checked([index + 1], [index], [index])[0]
    assert checked(["a", 1], ["a", 1], None) == ["", ""] and checked([2], [1], None)[0]


@given(st.floats(1e-4, 1e-1), st.floats(0.0, 10.0))
def test_the_limit_is_a_multiple_of_eagers_error(own: float, times: float) -> None:
    exact = torch.ones(64, dtype=torch.float64)
    eager, found = exact * (1 + own), exact * (1 + own * times)
    passed = not checked([found], [eager], [exact])[0]
    assert passed == (relative_error(found, exact) <= FACTOR * relative_error(eager, exact))
