"""torch.nn.Transformer asks its masks whether they are causal, for a faster kernel: a value that no result needs.

Imports torch.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch


@contextmanager
def masks_unread() -> Iterator[None]:
    """A context in which torch's transformer layers take a mask as causal only where the caller says so.

    The mask is applied either way (torch.nn.functional.multi_head_attention_forward).
    """
    layers: Any = torch.nn.modules.transformer
    usual = layers._detect_is_causal_mask

    def told(mask: Any, is_causal: bool | None = None, size: int | None = None) -> bool:
        return is_causal is True

    layers._detect_is_causal_mask = told
    try:
        yield
    finally:
        layers._detect_is_causal_mask = usual
