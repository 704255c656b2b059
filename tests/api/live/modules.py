"""Live modules and functions of the tests, and a task's own reference in the place of a program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from hipwright.api.live.exported import LiveTask
from hipwright.errors import GuardFailed
from hipwright.task.host.load import TaskModule

SCALE = 2.0


class Convolved(torch.nn.Module):
    """Buffers that a call writes, a table as an attribute, numbers among the arguments, and nested results."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 8, 3)
        self.norm = torch.nn.BatchNorm2d(8)
        self.head = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.GELU())
        self.table = torch.arange(4.0)
        self.shift = 0.5

    def forward(self, x: torch.Tensor, *, scale: float = 2.0, mask: torch.Tensor | None = None) -> dict[str, Any]:
        y = self.head(torch.relu(self.norm(self.conv(x))).mean((2, 3))) * scale + self.shift
        y = y * SCALE if mask is None else y * mask
        return {"grid": y.view(y.shape[0], 2, 2) + self.table.view(2, 2), "rest": (y, None, x)}


class Recalled:
    """A task's reference as a program: its model, set to the state of each call. calls: how often it ran."""

    device = "cpu"

    def __init__(self, live: LiveTask) -> None:
        self.model, self.calls = TaskModule("task.py", live.task.text).model(0), 0

    def __call__(
        self, inputs: Sequence[torch.Tensor], state: Mapping[str, torch.Tensor]
    ) -> tuple[Sequence[torch.Tensor], dict[str, torch.Tensor]]:
        own = dict([*self.model.named_parameters(), *self.model.named_buffers()])
        with torch.no_grad():
            for name, tensor in own.items():
                tensor.copy_(state[name])
            try:
                outputs = self.model(*inputs)
            except AssertionError as error:
                raise GuardFailed(str(error)) from error
        self.calls += 1
        return outputs, {name: tensor.clone() for name, tensor in self.model.named_buffers()}


def same(first: Any, second: Any) -> bool:
    """Whether two nestings hold the same numbers, up to rounding."""
    a, b = pytree.tree_flatten(first), pytree.tree_flatten(second)
    return a[1] == b[1] and all(
        torch.allclose(x, y, rtol=1e-4, atol=1e-5) if isinstance(x, torch.Tensor) else x == y
        for x, y in zip(a[0], b[0], strict=True)
    )
