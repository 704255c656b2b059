"""The state of a drop-in is read where the original has it now."""

from __future__ import annotations

import torch

from hipwright.api.live.exported import live_task
from hipwright.api.live.module import OptimizedModule


class Held(torch.nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)
        self.register_buffer("scale", torch.ones(4))
        self.plain = torch.full((4,), 2.0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x) * self.scale + self.plain


def test_parameters_buffers_and_plain_tensors_that_were_assigned_anew() -> None:
    module = Held().eval()
    x = torch.randn(3, 4)
    drop_in = OptimizedModule(module, live_task(module, (x,), {}, "held"), None)
    names = dict(drop_in._live.task.state)
    module.linear.weight = torch.nn.Parameter(torch.zeros(4, 4))
    module.scale = torch.zeros(4)
    module.plain = torch.zeros(4)
    state = drop_in._state()
    assert state[names["linear.weight"]] is module.linear.weight and state[names["linear.bias"]] is module.linear.bias
    assert state[names["scale"]] is module.scale and state[names["plain"]] is module.plain
    assert len(state) == 4
