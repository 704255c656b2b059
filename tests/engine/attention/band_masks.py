"""Masks of positions, and heads that queries share, for tests of attention."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from tests.engine.harness import Op

F = torch.nn.functional
HALF, BRAIN = torch.float16, torch.bfloat16
WINDOW_CALL = "torch.ops.aten._flash_attention_forward.default("
Mask = Callable[[Tensor, Tensor], Tensor]


def draw(*shape: int, dtype: torch.dtype = HALF) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape))).to(dtype)


def stacked(length: int, heads: tuple[int, int] = (4, 4), dtype: torch.dtype = HALF) -> list[Tensor]:
    """Queries, keys and values as one tensor, as of one sequence."""
    return [draw(2, heads[0] + 2 * heads[1], length, 16, dtype=dtype)]


def apart(rows: int, keys: int, dtype: torch.dtype = HALF) -> list[Tensor]:
    """Queries, keys and values of two sequences."""
    return [draw(2, 4, n, 16, dtype=dtype) for n in (rows, keys, keys)]


def places(q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
    return torch.arange(q.shape[2], device=q.device)[:, None], torch.arange(k.shape[2], device=q.device)[None, :]


def masked(mask: Mask) -> Op:
    def function(*given: Tensor) -> Tensor:
        q, k, v = given if len(given) == 3 else given[0].split(4, dim=1)
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask(q, k))

    return Op(function)


# ---------------------------------------------------------------- masks of truth values


def causal(q: Tensor, k: Tensor) -> Tensor:
    row, column = places(q, k)
    return column <= row


def lower_triangle(q: Tensor, k: Tensor) -> Tensor:
    return torch.ones(q.shape[2], k.shape[2], dtype=torch.bool, device=q.device).tril()


def upper_triangle_hidden(q: Tensor, k: Tensor) -> Tensor:
    return ~torch.ones(q.shape[2], k.shape[2], dtype=torch.bool, device=q.device).triu(1)[None, None]


def window(q: Tensor, k: Tensor) -> Tensor:
    row, column = places(q, k)
    behind = row - column
    return (behind >= 0) & (behind < 3)


def window_turned(q: Tensor, k: Tensor) -> Tensor:
    """As Hugging Face's models write it: of a causal mask and what lies too far behind."""
    row, column = places(q, k)
    return ~((column > row) | (column <= row - 3))


def both_sides(q: Tensor, k: Tensor) -> Tensor:
    row, column = places(q, k)
    return (row - column).abs() <= 2


def uneven(q: Tensor, k: Tensor) -> Tensor:
    row, column = places(q, k)
    return torch.logical_and(column - row < 2, row - column < 4)


def ends_together(q: Tensor, k: Tensor) -> Tensor:
    """The last query sees the last key, as where keys are cached."""
    row, column = places(q, k)
    return column <= row + (k.shape[2] - q.shape[2])


def far(q: Tensor, k: Tensor) -> Tensor:
    row, column = places(q, k)
    return (column <= row) & (row - column < q.shape[2])


# ---------------------------------------------------------------- masks that are added


def infinite(q: Tensor, k: Tensor) -> Tensor:
    row, column = places(q, k)
    zero = torch.zeros((), dtype=q.dtype, device=q.device)
    return torch.where(column <= row, zero, float("-inf"))


def filled(q: Tensor, k: Tensor) -> Tensor:
    return torch.zeros(q.shape[2], k.shape[2], dtype=q.dtype).masked_fill(~window(q, k), float("-inf"))


def triangle_of_infinities(q: Tensor, k: Tensor) -> Tensor:
    return torch.full((q.shape[2], k.shape[2]), float("-inf"), dtype=q.dtype).triu(1)


def least(q: Tensor, k: Tensor) -> Tensor:
    """The least finite number, as Hugging Face's models write it."""
    return torch.full((q.shape[2], k.shape[2]), torch.finfo(q.dtype).min, dtype=q.dtype).triu(1)


# ---------------------------------------------------------------- heads that queries share


def repeated(x: Tensor, times: int) -> Tensor:
    return x.repeat_interleave(times, dim=1)


def spread(x: Tensor, times: int) -> Tensor:
    """As Hugging Face's `repeat_kv`."""
    batch, heads, length, size = x.shape
    return x[:, :, None].expand(batch, heads, times, length, size).reshape(batch, heads * times, length, size)


def laid(x: Tensor, times: int) -> Tensor:
    """The heads one behind the other, which no kernel takes for shared."""
    return x.repeat(1, times, 1, 1)
