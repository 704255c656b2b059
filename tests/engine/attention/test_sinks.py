"""Attention of few queries whose softmax has a sink, as modules write it out."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from hipwright.engine import author
from hipwright.engine.knobs import SPLIT
from tests.engine.capturing import captured
from tests.engine.harness import Op, check, kernels_in
from tests.engine.template_builds import builds

LIBRARY = ("aten.matmul.default",)


def _shares(scores: torch.Tensor, sinks: torch.Tensor) -> torch.Tensor:
    top = torch.maximum(scores.amax(dim=-1, keepdim=True), sinks)
    shares = torch.exp(scores - top)
    return shares / (shares.sum(dim=-1, keepdim=True) + torch.exp(sinks - top))


def _attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, sinks: torch.Tensor) -> torch.Tensor:
    scores = q @ k.transpose(-1, -2) * 0.2
    return _shares(scores, sinks) @ v


def _other_order(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, sinks: torch.Tensor) -> torch.Tensor:
    scores = q @ k.transpose(-1, -2)
    top = torch.maximum(sinks, scores.amax(dim=-1, keepdim=True))
    shares = torch.exp(scores - top)
    return (shares / (torch.exp(sinks - top) + shares.sum(dim=-1, keepdim=True))) @ v


def _masked(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, sinks: torch.Tensor) -> torch.Tensor:
    scores = q @ k.transpose(-1, -2)
    place = torch.arange(k.shape[-2])
    return _shares(scores.masked_fill(place < place.shape[0], float("-inf")), sinks) @ v


def _heads(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, sinks: torch.Tensor) -> torch.Tensor:
    wide = [x.repeat_interleave(4, dim=1) for x in (k, v)]
    scores = q @ wide[0].transpose(-1, -2)
    return _shares(scores, sinks.view(1, -1, 1, 1)) @ wide[1]


def _inputs(batch: int, heads: int, rows: int, keys: int, size: int, *, shared: int = 1) -> list[torch.Tensor]:
    torch.manual_seed(keys + size)
    q = torch.randn(batch, heads, rows, size)
    k, v = (torch.randn(batch, heads // shared, keys, size) for _ in range(2))
    return [q, k, v, torch.randn(1, heads, rows, 1) * 3]


@pytest.mark.parametrize("shape", [(2, 3, 4, 130, 16), (1, 2, 1, 257, 64), (2, 1, 8, 128, 24)])
@pytest.mark.parametrize("function", [_attention, _other_order])
def test_a_sink_takes_weight_and_has_no_value(function: Callable[..., torch.Tensor], shape: tuple[int, ...]) -> None:
    text = check(Op(function), _inputs(*shape), wave=32 if shape[2] == 4 else 64)
    assert kernels_in(text) == 2
    assert "sink" in text


def test_rows_without_keys_are_zero() -> None:
    text = check(Op(_masked), _inputs(2, 2, 4, 140, 16))
    assert "row_sum = exp2f" in text


def test_heads_that_share_keys_have_sinks_of_their_own() -> None:
    inputs = _inputs(2, 8, 1, 150, 32, shared=4)
    assert kernels_in(check(Op(_heads), [*inputs[:3], torch.randn(8)])) == 2


def test_a_sink_that_decides_all() -> None:
    *rest, sinks = _inputs(1, 2, 2, 130, 16)
    for value in (1e4, -1e4, float("-inf")):
        check(Op(_attention), [*rest, torch.full_like(sinks, value)])


def _other_scores(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, sinks: torch.Tensor) -> torch.Tensor:
    scores = q @ k.transpose(-1, -2)
    top = torch.maximum(scores.amax(dim=-1, keepdim=True), sinks)
    shares = torch.exp(scores - top)
    return (shares / (shares.sum(dim=-1, keepdim=True) + torch.exp(sinks + 1 - top))) @ v


def _shares_too(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, sinks: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    shares = _shares(q @ k.transpose(-1, -2), sinks)
    return shares @ v, shares


@pytest.mark.parametrize("function", [_other_scores, _shares_too])
def test_other_sums_stay_written_out(function: Callable[..., object]) -> None:
    text = check(Op(function), _inputs(2, 2, 4, 130, 16), library=LIBRARY)
    assert "const float sink" not in text


def test_many_queries_stay_written_out() -> None:
    text = check(Op(_attention), _inputs(1, 2, 40, 130, 16), library=LIBRARY)
    assert "const float sink" not in text


def test_the_choice_leaves_it_written_out() -> None:
    inputs = _inputs(2, 2, 4, 130, 16)
    space = author(captured(Op(_attention), inputs), {}).space
    (key,) = (k for k in space if k.startswith("attention:"))
    assert space[key].options == ("separate", "fused")
    assert "const float sink" not in check(Op(_attention), inputs, choices={key: "separate"}, library=LIBRARY)


def test_it_builds_without_scratch() -> None:
    assert "sink" in builds(Op(_attention), _inputs(32, 8, 8, 1024, 64))


def test_matrix_units_have_sinks() -> None:
    def widened(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, sinks: torch.Tensor) -> torch.Tensor:
        return _attention(*(x.to(sinks.dtype) for x in (q, k, v)), sinks)

    q, k, v, sinks = _inputs(2, 2, 4, 140, 64)
    text = check(Op(widened), [*(x.half() for x in (q, k, v)), sinks], choices={SPLIT: True}, wave=32)
    assert "FewRows" in text
    assert "const float sink" in text
