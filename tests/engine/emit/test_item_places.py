"""Items of a Sequential whose names are not their places: a slice keeps the names, and an index is a place."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

import pytest
import torch
from torch import nn

from hipwright.capture.forward import exported
from hipwright.engine import write
from hipwright.engine.knobs import GIVEN_UP, PLAIN_PLAN
from hipwright.program.lower.table import StateTable
from hipwright.ship import torch_op
from tests.engine.harness import captured, compare, reference, run, state_table


class Holds(nn.Module):
    def __init__(self, part: nn.Module) -> None:
        super().__init__()
        self.part = part

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.part(x)
        return found


def sliced() -> nn.Module:
    layers = nn.Sequential(nn.Linear(7, 5), nn.ReLU(), nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Linear(8, 6), nn.Tanh())
    return layers[2:]


def named() -> nn.Module:
    """A number stands behind a name, as in MONAI's discriminator."""
    return nn.Sequential(OrderedDict([("first", nn.Linear(6, 8)), ("0", nn.BatchNorm1d(8)), ("1", nn.Linear(8, 6))]))


def nested() -> nn.Module:
    return nn.Sequential(nn.Identity(), nn.ModuleDict({"a": sliced()})["a"])[1:]


@pytest.mark.parametrize("make", [sliced, named, nested])
@pytest.mark.parametrize("given_up", ["", PLAIN_PLAN])
@pytest.mark.parametrize("train", [False, True])
def test_items_are_read_and_written_at_their_places(make: Callable[[], nn.Module], given_up: str, train: bool) -> None:
    torch.manual_seed(1)
    model, x = Holds(make()).train(train), torch.randn(9, 6)
    graph = captured(model, [x])
    assert graph.positions
    expected, native, buffers = reference(model, [x])
    got, after = run(write(graph, {GIVEN_UP: given_up} if given_up else {}), model, [x])
    compare(got, expected, native)
    for name, want in buffers.items():
        if want.is_floating_point():
            torch.testing.assert_close(after[name].double(), want.double(), rtol=1e-4, atol=1e-5)


def test_ordinary_items_need_no_places() -> None:
    model = Holds(nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 6)))
    assert not captured(model, [torch.randn(3, 6)]).positions


def test_a_program_of_torch_export_has_the_places_too() -> None:
    _, graph = exported(Holds(sliced()).eval(), [torch.randn(9, 6)])
    assert graph.positions == {"part.2": 0, "part.3": 1, "part.4": 2, "part.5": 3}


@pytest.mark.parametrize("make", [sliced, named, nested])
def test_exports_name_the_same_places(make: Callable[[], nn.Module]) -> None:
    model = Holds(make())
    positions = StateTable(state_table(model)).positions()
    assert positions == captured(model, [torch.randn(9, 6)]).positions
    for path, tensor in model.named_parameters():
        assert eval(torch_op.self_path(path, positions), {"self": model}) is tensor
