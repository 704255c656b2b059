"""The text of a traced graph computes the same values in every layout of what its operators give."""

from __future__ import annotations

import torch

from hipwright.api.live.exported import live_task
from hipwright.api.live.layouts import statistics_contiguous

aten = torch.ops.aten


def test_layouts_of_a_layer_norms_statistics() -> None:
    def gradients(grad: torch.Tensor, x: torch.Tensor, mean: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        return aten.native_layer_norm_backward(grad, x, [8], mean, scale, None, None, [True, False, False])[0]

    grad, x, mean, scale = torch.randn(2, 5, 8), torch.randn(2, 5, 8), torch.randn(2, 5, 1), torch.rand(2, 5, 1)
    turned = [tensor.transpose(0, 1).contiguous().transpose(0, 1) for tensor in (mean, scale)]
    graph = torch.fx.experimental.proxy_tensor.make_fx(gradients)(grad, x, mean, scale)
    exact = gradients(grad, x, mean, scale)
    assert not torch.allclose(graph(grad, x, *turned), exact), "PyTorch reads them by address: else this is not needed"
    statistics_contiguous(graph.graph)
    graph.recompile()
    assert torch.allclose(graph(grad, x, *turned), exact)


class Split(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x * 2.0).view(-1, 3, 4).transpose(0, 1)


def test_a_view_of_a_result_in_another_layout_is_a_copy() -> None:
    x = torch.randn(2, 3, 8)
    found: dict[str, type[torch.nn.Module]] = {}
    exec(live_task(Split(), (x,), {}, "split").task.text, found)
    turned = x.transpose(0, 2).contiguous().transpose(0, 2)
    assert torch.equal(found["Model"]()(turned)[0], Split()(x))
