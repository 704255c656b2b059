"""Names in captured graphs."""

from __future__ import annotations

import torch

from hipwright.capture.forward import capture
from hipwright.capture.graph import Graph


def test_a_size_has_no_name_of_a_call() -> None:
    """An input `mul` beside a call `mul_1`: the size of its dimension 1 has another name."""

    class Doubled(torch.nn.Module):
        def forward(self, mul: torch.Tensor) -> torch.Tensor:
            return (mul * 2) * mul.shape[1] * 3.0

    graph = Graph.from_dict(capture(Doubled(), [torch.randn(3, 5)]))
    names = [symbol.name for symbol in graph.symbols]
    assert len(names) == 2 and not set(names) & {node.name for node in graph.nodes}
