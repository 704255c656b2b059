"""Forms near to attention that stay separate kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from hipwright.engine import space
from tests.engine.harness import captured
from tests.engine.rewrite.attention_forms import Written, qkv

# ---------------------------------------------------------------- near misses


def probabilities_too(q: Tensor, k: Tensor, v: Tensor) -> Any:
    p = torch.softmax(q @ k.transpose(-2, -1), -1)
    return p @ v, p


def scores_too(q: Tensor, k: Tensor, v: Tensor) -> Any:
    s = q @ k.transpose(-2, -1)
    return torch.softmax(s * 0.3, -1) @ v, s


def scores_read_twice(q: Tensor, k: Tensor, v: Tensor) -> Any:
    s = q @ k.transpose(-2, -1)
    return torch.softmax(s, -1) @ v + s.sum(-1, keepdim=True)


def along_queries(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch.softmax(q @ k.transpose(-2, -1), -2) @ v


def over_all(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    s = q @ k.transpose(-2, -1)
    return torch.softmax(s.flatten(2), -1).view(s.shape) @ v


def weighted(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return (torch.softmax(q @ k.transpose(-2, -1), -1) * 0.5) @ v


def normalised(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    s = q @ k.transpose(-2, -1)
    return torch.softmax(s - s.mean(-1, keepdim=True), -1) @ v


def turned_scores(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch.softmax((k @ q.transpose(-2, -1)).transpose(-2, -1), -1) @ v


def probabilities_on_the_right(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return v.transpose(-2, -1) @ torch.softmax(q @ k.transpose(-2, -1), -1)


def dropped(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return F.dropout(torch.softmax(q @ k.transpose(-2, -1), -1), 0.5, True) @ v


def more_values(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch.softmax(q[:1] @ k[:1].transpose(-2, -1), -1) @ v


def summed_heads(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch.einsum("bhij,bhjd->bid", torch.softmax(q @ k.transpose(-2, -1), -1), v)


def large_heads(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch.softmax(q.repeat(1, 1, 1, 20) @ k.repeat(1, 1, 1, 20).transpose(-2, -1), -1) @ v


def doubles(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch.softmax(q @ k.transpose(-2, -1), -1, dtype=torch.float64).float() @ v


@pytest.mark.matrix(keep=7)
@pytest.mark.parametrize(
    "form",
    [
        probabilities_too,
        scores_too,
        scores_read_twice,
        along_queries,
        over_all,
        weighted,
        normalised,
        turned_scores,
        probabilities_on_the_right,
        dropped,
        more_values,
        summed_heads,
        large_heads,
        doubles,
    ],
)
def test_near_misses_stay_separate(form: Callable[..., Any]) -> None:
    graph = captured(Written(form), qkv(2, 3, 16, 16, 16, 16))
    assert not [name for name in space(graph) if name.startswith("attention:")]
