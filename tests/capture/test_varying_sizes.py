"""Sizes in which a task's own workloads differ stay free where not all sizes can be."""

from __future__ import annotations

import torch

from hipwright.capture.forward import capture


def test_sizes_that_differ_between_workloads_are_free_where_not_all_can_be() -> None:
    class Repeated(torch.nn.Module):
        def forward(self, x: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
            return x @ scales.repeat_interleave(4, dim=0)

    args = [torch.randn(6, 8), torch.randn(2, 5)]
    assert not capture(Repeated(), args)["dynamic"]
    graph = capture(Repeated(), args, varying=[[0], []])
    assert graph["dynamic"] and [one["access"] for one in graph["symbols"]] == ["x.shape[0]"]
    assert {"x.shape[1] == 8", "scales.shape[0] == 2", "scales.shape[1] == 5"} <= set(graph["guards"])
    whole = capture(torch.nn.Linear(8, 3), [torch.randn(6, 8)], varying=[[0]])
    assert whole["dynamic"], "what can be free is"
