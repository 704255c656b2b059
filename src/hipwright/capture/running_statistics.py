"""Instance norms that write running statistics, for capture. Imports torch.

The operator's schema does not say that it writes them, so a captured graph would hold a call whose effect nobody sees.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch


@contextmanager
def running_statistics_seen() -> Iterator[None]:
    """A context in which torch.instance_norm is what torch makes of it where it writes running statistics: a batch norm
    over N * C channels, with the statistics of each, whose means over N are written (at::native::instance_norm).
    """
    whole = torch.instance_norm

    def instance_norm(
        input: Any,
        weight: Any,
        bias: Any,
        running_mean: Any,
        running_var: Any,
        use_input_stats: bool,
        momentum: float,
        eps: float,
        cudnn_enabled: bool,
    ) -> Any:
        given = (running_mean, running_var)
        if not use_input_stats or any(one is None for one in given):
            return whole(input, weight, bias, *given, use_input_stats, momentum, eps, cudnn_enabled)
        n, c = input.shape[:2]
        of_each: list[Any] = [None if one is None else one.repeat(n) for one in (weight, bias, *given)]
        rows = input.reshape(1, n * c, *input.shape[2:])
        out = torch.batch_norm(rows, *of_each, True, momentum, eps, cudnn_enabled)
        for kept, each in zip(given, of_each[2:], strict=True):
            kept.copy_(each.view(n, c).mean(0))
        return out.view(input.shape)

    torch.instance_norm = instance_norm
    try:
        yield
    finally:
        torch.instance_norm = whole
