"""The calls of a model's parts: their order, operators, arguments with strides, and times by two clocks."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from hipwright.api.whole import calls
from hipwright.api.whole.load import LoadedModel
from hipwright.targets import REPRESENTATIVE


class Scaled(torch.nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)

    def forward(self, x: torch.Tensor, *, factor: float) -> torch.Tensor:
        return torch.relu(self.linear(x)) * factor


class Two(torch.nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = Scaled(), Scaled()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(self.first(x.t(), factor=2.0), factor=2.0)


class Writes(torch.nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.act = torch.nn.ReLU()

    def forward(self, x: torch.Tensor) -> Any:
        y = x + 1
        out = self.act(y)
        y.zero_()
        return out


def loaded(model: torch.nn.Module, *args: torch.Tensor) -> LoadedModel:
    return LoadedModel(model.eval(), args, {})


def test_calls_are_numbered_in_the_order_in_which_they_begin() -> None:
    model = Two()
    seen = calls.seen_calls(loaded(model, torch.randn(4, 6)))
    assert [call.path for call in seen.calls] == ["", "first", "first.linear", "second", "second.linear"]
    assert [call.parent for call in seen.calls] == [-1, 0, 1, 0, 3]
    assert calls.operator_counts(seen)[0] == 6 and calls.operator_counts(seen)[2] == 1
    assert not any(part._forward_pre_hooks or part._forward_hooks for part in model.modules())


def test_signatures_see_sizes_strides_and_numbers_and_not_values() -> None:
    model = Two()
    seen = calls.seen_calls(loaded(model, torch.randn(4, 4)))
    first, second = seen.calls[1], seen.calls[3]
    assert first.signature != second.signature  # strides
    again = calls.seen_calls(loaded(model, torch.randn(4, 4) * 3))
    assert [call.signature for call in again.calls] == [call.signature for call in seen.calls]


def test_arguments_keep_strides_and_keywords() -> None:
    x = torch.randn(4, 6)
    found = calls.captured_calls(loaded(Two(), x), {1, 4})
    assert sorted(found) == [1, 4] and found[4].path == "second.linear"
    assert found[1].args[0].stride() == (1, 6) and found[1].kwargs == {"factor": 2.0}
    assert torch.equal(found[1].args[0], x.t())


class Layer(torch.nn.Module):  # type: ignore[misc]
    def __init__(self, number: int, factor: float = 2.0, activation: Any = torch.relu) -> None:
        super().__init__()
        self.layer_idx, self.factor, self.activation = number, factor, activation
        self.linear = torch.nn.Linear(6, 6)

    def forward(self, x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        return self.activation(self.linear(x)) * self.factor + positions


class Layers(torch.nn.Module):  # type: ignore[misc]
    def __init__(self, *layers: Layer) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(layers)

    def forward(self, x: torch.Tensor, positions: torch.Tensor, others: torch.Tensor) -> torch.Tensor:
        for layer in self.layers[:-1]:
            x = layer(x, positions)
        last: torch.Tensor = self.layers[-1](x, others)
        return last


@pytest.mark.parametrize(
    ("last", "other", "alike"),
    [
        (Layer(2), 0, True),
        (Layer(2), 1, False),
        (Layer(2, factor=3.0), 0, False),
        (Layer(2, activation=torch.tanh), 0, False),
    ],
)
def test_layers_are_alike_that_differ_in_number_and_values_alone(last: Layer, other: int, alike: bool) -> None:
    model, positions = Layers(Layer(0), Layer(1), last), torch.arange(6)
    found = calls.captured_calls(loaded(model, torch.randn(4, 6), positions, positions + other), set(range(20)))
    keys = [calls.likeness(part, found[number]) for number, part in zip((1, 3, 5), model.layers, strict=True)]
    assert keys[0] == keys[1] and (keys[2] == keys[0]) is alike


def test_a_copy_is_not_reached_by_later_writes() -> None:
    found = calls.captured_calls(loaded(Writes(), torch.ones(3)), {1})
    assert torch.equal(found[1].args[0], torch.full((3,), 2.0))


def test_an_estimate_adds_up_and_exceeds_the_least_time() -> None:
    seen = calls.seen_calls(loaded(Two(), torch.randn(4, 6)))
    spent = calls.estimated(seen, REPRESENTATIVE.architecture)
    floor = calls.least(seen, REPRESENTATIVE.architecture)
    assert abs(spent[0] - spent[1] - spent[3]) < 1e-12
    assert all(0.0 < low < high for low, high in zip(floor[:2], spent[:2], strict=True))


def test_another_process_does_not_make_a_part_dear_on_the_processor() -> None:
    """Four of five forwards were interrupted, each in another part; the parts still add up to less than the whole."""
    turns = [[9.0, 1.0, 7.5], [9.0, 8.0, 0.5], [5.0, 4.0, 0.5], [8.0, 1.0, 6.5], [2.0, 1.0, 0.5]]
    assert calls._least_turn(turns) == [2.0, 1.0, 0.5]


def test_the_profiler_gives_each_call_its_time() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(256, 1024), torch.nn.Linear(1024, 2))
    spent = calls.profiled(loaded(model, torch.randn(512, 256)), 3, device=False)
    assert spent[0] >= spent[1] + spent[2] and min(spent) > 0.0
