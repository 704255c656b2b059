"""Lists of whole numbers in order stay in order at other sizes: offsets of bags, ends of sequences."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hipwright.task.host.draw import resize


@given(
    st.lists(st.integers(0, 30), min_size=2, max_size=12), st.lists(st.integers(0, 30), min_size=12), st.integers(1, 30)
)
def test_offsets_stay_in_order(first: list[int], second: list[int], size: int) -> None:
    offsets, other = torch.tensor(sorted(first)), torch.tensor(sorted(second)[: len(first)])
    found = resize(offsets, other, (size,))
    assert (found.diff() >= 0).all() and found.shape == (size,)
    assert set(found.tolist()) <= set(range(31))


@pytest.mark.parametrize("values", [[3, 1, 2], [0, 2, 1, 5]])
def test_other_lists_are_tiled(values: list[int]) -> None:
    tensor = torch.tensor(values)
    assert resize(tensor, tensor, (2 * len(values),)).tolist() == values * 2
    in_order = torch.tensor(sorted(values))
    assert resize(in_order, tensor, (2 * len(values),)).tolist() == sorted(values) * 2, "in order by chance"
