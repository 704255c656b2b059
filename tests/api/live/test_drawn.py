"""Tensors as expressions: shape, dtype, strides and kind of values of what they draw."""

from __future__ import annotations

import base64
import zlib

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hipwright.api.live.drawn import TABLE, drawn, parameter
from hipwright.errors import BadInput

DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.uint8, torch.bool]


def value(text: str) -> torch.Tensor:
    scope = {"torch": torch, "base64": base64, "zlib": zlib}
    exec(TABLE, scope)
    found = eval(text, scope)
    assert isinstance(found, torch.Tensor)
    return found


@given(
    st.lists(st.integers(0, 5), max_size=4), st.sampled_from(DTYPES), st.randoms(use_true_random=False), st.booleans()
)
def test_form(shape: list[int], dtype: torch.dtype, rng: object, fixed: bool) -> None:
    order = list(range(len(shape)))
    rng.shuffle(order)  # type: ignore[attr-defined]
    tensor = (torch.rand(shape) * 9).to(dtype).permute(order)
    found = value(drawn(tensor, fixed=fixed))
    assert (found.shape, found.dtype) == (tensor.shape, tensor.dtype)
    if tensor.numel():
        assert steps(found) == steps(tensor) or tensor.is_contiguous()
    if fixed and tensor.numel():
        assert torch.equal(found, tensor)


def steps(tensor: torch.Tensor) -> list[int]:
    """The strides that matter."""
    return [step for size, step in zip(tensor.shape, tensor.stride(), strict=True) if size > 1]


def test_tables_keep_their_values() -> None:
    mask = torch.full((32, 32), float("-inf")).triu(1)
    flags, offsets = torch.rand(7, 9) < 0.3, torch.tensor([0, 3, 3, 8])
    for table in (mask, flags, offsets, torch.tensor(3), torch.tensor(2.5)):
        assert torch.equal(value(drawn(table)), table)


def test_scales_are_kept_roughly_and_texts_do_not_depend_on_training() -> None:
    wide, unit, ids = torch.randn(400) * 64, torch.rand(400), torch.randint(0, 1000, (40, 9))
    assert 32 < value(drawn(wide)).std() < 128
    assert value(drawn(unit)).min() >= 0 and value(drawn(unit)).max() <= 1
    found = value(drawn(ids))
    assert found.min() >= 0 and 100 < found.max() <= ids.max()
    layer = torch.nn.Linear(6, 64)
    before = parameter(layer.weight), parameter(layer.bias)
    layer.reset_parameters()
    assert (parameter(layer.weight), parameter(layer.bias)) == before
    assert value(parameter(torch.ones(9))).min() >= 0.5, "a norm's weight stays positive"


def test_constants_and_few_numbers_are_drawn() -> None:
    """Else a verdict would hold for these values alone: tangents of a sum are all 1."""
    for tensor in (torch.ones(40), torch.zeros(40), torch.full((40,), -3.0), torch.tensor([0.0, 1.0]).repeat(30)):
        assert len(torch.unique(value(drawn(tensor)))) > 30


def test_a_long_table_is_drawn_anew() -> None:
    text = drawn(torch.randn(1 << 19), fixed=True)
    assert len(text) < 100


def test_a_dtype_that_no_program_has() -> None:
    with pytest.raises(BadInput, match="uint32"):
        drawn(torch.zeros(3, dtype=torch.uint32))
