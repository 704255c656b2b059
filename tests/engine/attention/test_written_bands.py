"""Attention that a module writes out with a mask of positions, as the library's calls: what is offered and refused."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from hipwright.engine import author
from hipwright.engine.knobs import SPLIT
from tests.engine.attention.band_masks import (
    WINDOW_CALL,
    both_sides,
    causal,
    repeated,
    stacked,
    triangle_of_infinities,
    window,
)
from tests.engine.harness import Op, captured, check

WRITTEN = {SPLIT: True, "attention:softmax": "fused", "call:softmax_attention": "library"}


def added_mask(s: Tensor, q: Tensor, k: Tensor) -> Tensor:
    """As Hugging Face's models do without a library's attention."""
    return torch.softmax((s * 0.25 + triangle_of_infinities(q, k)).float(), -1)


def filled_scores(s: Tensor, q: Tensor, k: Tensor) -> Tensor:
    return torch.softmax((s / 4).masked_fill(~window(q, k), float("-inf")), -1)


def chosen_scores(s: Tensor, q: Tensor, k: Tensor) -> Tensor:
    return torch.softmax(torch.where(both_sides(q, k), s.float() * 0.25, torch.finfo(torch.float32).min), -1)


def capped(s: Tensor, q: Tensor, k: Tensor) -> Tensor:
    return torch.softmax((s / 4).tanh().masked_fill(~causal(q, k), float("-inf")), -1)


def shifted(s: Tensor, q: Tensor, k: Tensor) -> Tensor:
    return torch.softmax((s * 0.25 + 1).masked_fill(~causal(q, k), float("-inf")), -1)


def squared(s: Tensor, q: Tensor, k: Tensor) -> Tensor:
    return torch.softmax((s * s).masked_fill(~causal(q, k), float("-inf")), -1)


def weakly_filled(s: Tensor, q: Tensor, k: Tensor) -> Tensor:
    return torch.softmax((s * 0.25).masked_fill(~causal(q, k), -1000.0), -1)


def seeing_none(s: Tensor, q: Tensor, k: Tensor) -> Tensor:
    """The first query sees no key: its row is NaN, and 0 by the library."""
    return torch.softmax((s * 0.25).masked_fill(~torch.ones_like(causal(q, k)).tril(-1), float("-inf")), -1)


def written_out(scores: Callable[[Tensor, Tensor, Tensor], Tensor], heads: int) -> Op:
    def function(x: Tensor) -> Tensor:
        q, k, v = x.split((4, heads, heads), dim=1)
        k, v = (repeated(one, 4 // heads) if heads < 4 else one for one in (k, v))
        out = scores(q @ k.transpose(-1, -2), q, k).to(v.dtype) @ v
        return out.transpose(1, 2).flatten(2)

    return Op(function)


@pytest.mark.parametrize("heads", [4, 2])
@pytest.mark.parametrize("scores", [added_mask, filled_scores, chosen_scores])
def test_written_out_bands(scores: Callable[..., Tensor], heads: int) -> None:
    model, (first, then) = written_out(scores, heads), (stacked(n, (4, heads)) for n in (9, 14))
    assert author(captured(model, first), {SPLIT: True}).space["call:softmax_attention"].default != "library"
    text = check(model, first, other=then, choices=WRITTEN, library=["hip.attention"])
    assert (WINDOW_CALL in text) == (scores is not added_mask) and "scale=0.25" in text
    assert ("enable_gqa=True" in text) == (scores is added_mask and heads == 2)


@pytest.mark.parametrize("scores", [capped, shifted, squared, weakly_filled, seeing_none])
def test_other_scores(scores: Callable[..., Tensor]) -> None:
    found = author(captured(written_out(scores, 4), stacked(9)), {SPLIT: True}).space["call:softmax_attention"]
    assert "library" not in found.options
