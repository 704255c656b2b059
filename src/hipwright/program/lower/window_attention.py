"""The kernel of windows of attention where there is none: torch has `_flash_attention_forward` for GPUs alone.

Imports torch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from hipwright.errors import CandidateError
from hipwright.program.lower.alignment import ALIGNMENT
from hipwright.targets import TORCH_GPU

NAME = "torch.ops.aten._flash_attention_forward"


def on_every_device(call: Callable[..., Any]) -> Callable[..., Any]:
    """`call`, the operator, with the same attention by a mask for tensors that are not a GPU's."""

    def attention(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *rest: Any, **named: Any) -> Any:
        if query.device.type == TORCH_GPU:
            return call(*(_in_whole_vectors(t) for t in (query, key, value)), *rest, **named)
        return _by_mask((query, key, value), *rest, **named)

    return attention


def _in_whole_vectors(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor, or a copy where the kernel could not read all its rows in whole vectors."""
    pack = ALIGNMENT // tensor.element_size()
    apart = [stride for size, stride in zip(tensor.shape[:-1], tensor.stride(), strict=False) if size > 1]
    whole = tensor.stride(-1) == 1 and not any(stride % pack for stride in apart)
    return tensor if whole else tensor.clone(memory_format=torch.contiguous_format)


def _by_mask(
    given: tuple[torch.Tensor, torch.Tensor, torch.Tensor],
    starts_q: Any,
    starts_k: Any,
    longest_q: int,
    longest_k: int,
    dropout: float,
    is_causal: bool,
    debug: bool,
    *,
    scale: float | None = None,
    window_size_left: int | None = None,
    window_size_right: int | None = None,
    **more: Any,
) -> tuple[torch.Tensor, ...]:
    """Attention of tensors [batch, positions, heads, size] with what the window hides masked.

    The window of a query lies about the place that it has where the last query lies at the last key.
    """
    unknown = [name for name, value in more.items() if value is not None]
    if starts_q is not None or starts_k is not None or dropout or debug or unknown:
        raise CandidateError(f"{NAME}: on a processor only dense attention in windows is there", stage="launch")
    q, k, v = (tensor.transpose(1, 2) for tensor in given)
    places = torch.arange(q.shape[2], device=q.device)[:, None] + (k.shape[2] - q.shape[2])
    distance = torch.arange(k.shape[2], device=q.device)[None, :] - places
    seen = torch.ones_like(distance, dtype=torch.bool)
    right = 0 if is_causal else window_size_right
    if right is not None and right >= 0:
        seen &= distance <= right
    if window_size_left is not None and window_size_left >= 0:
        seen &= distance >= -window_size_left
    out = F.scaled_dot_product_attention(q, k, v, attn_mask=seen, scale=scale, enable_gqa=q.shape[1] != k.shape[1])
    return out.transpose(1, 2), *(out.new_empty(0) for _ in range(4))


__all__ = ["NAME", "on_every_device"]
