"""Attention as modules write it out, and inputs of it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

KEY = "attention:softmax"
CALL = "call:softmax_attention"
HALF, BRAIN = torch.float16, torch.bfloat16
LIBRARY = ("aten.matmul.default", "aten.bmm.default", "aten.einsum.default")


class Written(torch.nn.Module):
    """A function of q, k, v and more as a module."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, q: Tensor, k: Tensor, v: Tensor, *more: Tensor) -> Any:
        return self.function(q, k, v, *more)


def draw(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape))).to(dtype)


def qkv(*sizes: int, shared: int = 0, dtype: torch.dtype = torch.float32) -> list[Tensor]:
    """(batch, heads, queries, keys, size, size of values)."""
    b, h, n, m, d, dv = sizes
    few = shared or h
    return [draw(b, h, n, d, dtype=dtype), draw(b, few, m, d, dtype=dtype), draw(b, few, m, dv, dtype=dtype)]


def seen(*shape: int) -> Tensor:
    """A boolean mask in which one query sees nothing."""
    mask = torch.rand(*shape, generator=torch.Generator().manual_seed(1)) > 0.5
    mask[..., 1, :] = False
    return mask


# ---------------------------------------------------------------- forms


def plain(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch.softmax(q @ k.transpose(-2, -1), -1) @ v


def scaled(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return F.softmax(q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1]), dim=3) @ v


def scaled_before(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return F.softmax((q * 0.3) @ (k / 2).mT, -1) @ v


def biased(q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> Tensor:
    return F.softmax(q @ k.transpose(-1, -2) * 0.17 + bias, -1) @ v


def tril(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    s = q @ k.transpose(-2, -1) * 0.3
    ones = torch.tril(torch.ones(s.shape[-2], s.shape[-1]))
    return F.softmax(s.masked_fill(ones == 0, float("-inf")), -1) @ v


def positions(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    after = torch.arange(q.shape[2])[:, None] < torch.arange(k.shape[2])
    return F.softmax((q @ k.transpose(-2, -1)).masked_fill(after, -1e9), -1) @ v


def triu_added(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    s = q @ k.transpose(-2, -1) * 0.3
    mask = torch.triu(torch.full((q.shape[-2], k.shape[-2]), float("-inf")), 1)
    return torch.softmax((s + mask).float(), -1).to(q.dtype) @ v


def filled(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    s = (q @ k.transpose(-2, -1)).masked_fill(~mask, float("-inf"))
    return F.softmax(s, -1) @ v


def where(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    s = torch.einsum("bhqd,bhkd->bhqk", q, k) * 0.3
    s = torch.where(mask, s, torch.finfo(s.dtype).min)
    p = F.dropout(torch.softmax(s, -1, dtype=torch.float32).type_as(q), 0.1, False)
    return torch.einsum("bhqk,bhkd->bhqd", p, v)


def padding(q: Tensor, k: Tensor, v: Tensor, keep: Tensor) -> Tensor:
    return torch.softmax(q @ k.transpose(-2, -1) * 0.3 + (1.0 - keep[:, None, None, :]) * -1e4, -1) @ v


def swallowed(q: Tensor, k: Tensor, v: Tensor, keep: Tensor) -> Tensor:
    """Where all is masked, the module's sum is the mask itself, in every dtype: equal weights (as in T5, cast back)."""
    mask = (1 - keep[:, None, None, :].to(q.dtype)) * torch.finfo(q.dtype).min
    s = q @ k.transpose(-2, -1) + mask
    return torch.softmax(s.float(), -1).type_as(s) @ v


def capped(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return F.softmax(torch.tanh(q @ k.transpose(-2, -1) / 5.0) * 5.0, -1) @ v


def folded(q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> Tensor:
    """Heads as a batch, the mask on heads of their own (the older transformers)."""
    b, h, n, d = q.shape
    m, dv = v.shape[2:]
    s = torch.bmm(q.reshape(b * h, n, d), k.reshape(b * h, m, d).transpose(1, 2))
    s = (s.view(b, h, n, m) + bias).view(b * h, n, m)
    y = torch.bmm(F.softmax(s, -1), v.reshape(b * h, m, dv))
    return y.view(b, h, n, dv).transpose(1, 2).reshape(b, n, h * dv)


def added(q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> Tensor:
    q, k, v = (t.flatten(0, 1) for t in (q, k, v))
    return torch.bmm(torch.baddbmm(bias, q, k.transpose(1, 2), beta=0.5, alpha=0.3).softmax(-1), v)


def ignored(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    q, k, v = (t.flatten(0, 1) for t in (q, k, v))
    nothing = q.new_full((1, 1, 1), math.nan)  # with beta = 0, not read
    return torch.bmm(torch.baddbmm(nothing, q, k.transpose(1, 2), beta=0.0, alpha=0.3).softmax(-1), v)


def last_heads(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Heads behind positions, in the operands and in the result."""
    q, k, v = (t.transpose(1, 2).contiguous() for t in (q, k, v))
    return torch.einsum("bhij,bjhd->bihd", torch.einsum("bihd,bjhd->bhij", q, k).softmax(-1), v)


def matrices(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch.softmax(q[0, 0] @ k[0, 0].T, -1) @ v[0, 0]


def one_of_all(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Keys and values without a batch."""
    return torch.softmax(q @ k[0, 0].T, -1) @ v[0, 0]


def repeated(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    b, h, m, dv = v.shape
    g = q.shape[1] // h
    v = v[:, :, None].expand(b, h, g, m, dv).reshape(b, h * g, m, dv)
    return torch.softmax(q @ k.repeat_interleave(g, 1).transpose(2, 3), -1) @ v


SIZES = (2, 2, 19, 29, 24, 40)
SQUARE = (2, 2, 21, 21, 16, 16)
