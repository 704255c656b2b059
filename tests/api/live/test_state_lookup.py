"""The state of a drop-in is read where the original has it now; replicas by torch.nn.DataParallel have their own."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Sequence
from typing import Any

import pytest
import torch

from hipwright.api.live.exported import live_task
from hipwright.api.live.graphed import WARM_CALLS
from hipwright.api.live.module import REPLICATED, FallbackWarning, OptimizedModule
from tests.api.live.modules import Recalled, same
from tests.api.live.nets import WIDTH, Fast, Launched, Net, traced

torch_replicas: Any = importlib.import_module("torch.nn.parallel.replicate")


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


# ---------------------------------------------------------------- replicas


@pytest.fixture
def scaled_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch copies parameters to GPUs only. Here a copy for device d stays on the processor, and is d + 1 times as
    much, so that what reads another device's parameters gives other numbers.
    """

    def copies(tensors: Sequence[torch.Tensor], devices: Sequence[int], detach: bool = False) -> Any:
        return [[tensor.detach() * (device + 1) for tensor in tensors] for device in devices]

    monkeypatch.setattr(torch_replicas, "_broadcast_coalesced_reshape", copies)
    monkeypatch.setattr(torch_replicas, "_get_device_index", lambda device, optional=False: device)


def replicas(module: torch.nn.Module) -> list[Any]:
    return list(torch_replicas.replicate(module, [0, 1], detach=True))


@pytest.mark.usefixtures("scaled_copies")
def test_replicas_of_a_drop_in_are_the_originals_with_their_own_parameters() -> None:
    part, live = Net().eval().first, traced("first")
    program = Launched(live)
    fast: Any = OptimizedModule(part, live, program)
    x = torch.randn(3, WIDTH)
    with torch.no_grad(), pytest.warns(FallbackWarning, match="runs as it was: torch.nn.DataParallel") as said:
        for _ in range(2):
            for mine, expected in zip(replicas(fast), replicas(part), strict=True):
                assert same(mine(x), expected(x))
    assert len(said) == 1 and fast.fallbacks == {REPLICATED: 4} and program.calls == 0
    with torch.no_grad():
        assert same(torch.nn.DataParallel(fast)(x), part(x)), "on one device, or none, torch calls the drop-in itself"
    assert program.calls == 1


@pytest.mark.usefixtures("scaled_copies")
def test_replicas_of_a_function_are_the_function() -> None:
    def gate(x: torch.Tensor) -> torch.Tensor:
        return x * torch.sigmoid(x)

    x = torch.randn(3, WIDTH)
    live = live_task(gate, (x,), {}, "gate")
    fast: Any = OptimizedModule(gate, live, Recalled(live))
    with torch.no_grad(), pytest.warns(FallbackWarning) as said:
        assert all(same(one(x), gate(x)) for one in replicas(fast))
    assert len(said) == 1 and fast.fallbacks == {REPLICATED: 2}


@pytest.mark.usefixtures("scaled_copies")
def test_replicas_of_a_model_replay_no_graph_of_its_own_parameters() -> None:
    fast, x = Fast(), torch.randn(3, WIDTH)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore", FallbackWarning)
        for _ in range(WARM_CALLS + 2):
            fast.net(x)
        before = fast.graphs.counts
        for mine, expected in zip(replicas(fast.net), replicas(fast.plain), strict=True):
            assert same(mine(x), expected(x))
        assert before["replays"] == 2 and fast.graphs.counts == before
        fast.net(x)
        assert fast.graphs.counts["replays"] == 3
