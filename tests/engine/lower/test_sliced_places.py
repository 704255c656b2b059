"""Slices and places whose start is a size, counted from the end: `x[:, -n:]`, as caches of decoders are read."""

from __future__ import annotations

import torch

from tests.engine.harness import Op, check


def test_places_that_are_sizes_counted_from_the_end() -> None:
    def last(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        n = x.shape[1]
        written = torch.slice_scatter(y, x, 1, -n) + 1
        return x[:, -n:] * 2, y[:, -n:] + x, y.select(1, -n) * 3, written

    check(Op(last), [torch.randn(3, 9), torch.randn(3, 14)], other=[torch.randn(4, 7), torch.randn(4, 11)])
