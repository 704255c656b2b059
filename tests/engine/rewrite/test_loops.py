"""Python loops over steps: chains of cells as layers, products of the input for all steps at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from hipwright.engine import explain, space
from tests.engine.harness import captured, check, kernels_in


def draw(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(3), dtype=torch.float64).to(dtype)


CELLS: dict[str, Callable[[int, int], nn.Module]] = {
    "lstm": nn.LSTMCell,
    "gru": lambda i, h: nn.GRUCell(i, h, bias=False),
    "rnn": lambda i, h: nn.RNNCell(i, h, nonlinearity="relu"),
}


class Loop(nn.Module):
    """One cell or two over the steps of a sequence. what: last, all, states, unbound or some."""

    def __init__(self, kind: str, what: str, dim: int, layers: int = 1) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.cells = nn.ModuleList([CELLS[kind](8 if k == 0 else 12, 12) for k in range(layers)])
        self.what, self.dim, self.lstm = what, dim, kind == "lstm"

    def steps(self, x: torch.Tensor) -> Any:
        if self.what == "unbound":
            return x.unbind(self.dim)
        first = 1 if self.what == "some" else 0
        return [x[k] if self.dim == 0 else x[:, k] for k in range(first, 5)]

    def forward(self, x: torch.Tensor) -> Any:
        states: list[Any] = [self.start(x) for _ in self.cells]
        seen = []
        for step in self.steps(x):
            for k, cell in enumerate(self.cells):
                states[k] = cell(step, states[k])
                step = states[k][0] if self.lstm else states[k]
            seen.append(step)
        if self.what == "all":
            return torch.stack(seen, self.dim) * 2, states[-1]
        return states if self.what == "states" else torch.tanh(seen[-1])

    def start(self, x: torch.Tensor) -> Any:
        h = x.new_zeros(x.shape[1 - self.dim], 12)
        return (h, h + 1) if self.lstm else h


@pytest.mark.parametrize("wave", [32, 64])
@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("dim", [0, 1])
@pytest.mark.parametrize("what", ["last", "all", "states", "unbound", "some"])
@pytest.mark.parametrize("kind", list(CELLS))
@pytest.mark.matrix(keep=6)
def test_a_chain_of_cells_is_a_layer(kind: str, what: str, dim: int, layers: int, wave: int) -> None:
    model = Loop(kind, what, dim, layers)
    x = draw(5, 3, 8) if dim == 0 else draw(3, 5, 8)
    text = check(model, [x], wave=wave)
    made = explain(captured(model, [x]))
    assert 1 <= sum(k["mapping"] == "call:persistent" for k in made["kernels"]) <= layers  # alike ones share one
    assert kernels_in(text) <= 2 * layers + 4  # what begins and what is returned is written by small ones


def test_steps_may_be_chosen_and_other_batches_run() -> None:
    model, x = Loop("lstm", "last", 0), draw(5, 3, 8)
    (key,) = [k for k in space(captured(model, [x])) if k.startswith("loop:")]
    text = check(model, [x], choices={key: "steps"}, other=[draw(5, 7, 8)])
    assert text.count("](") > 8, "launches"
    check(model, [x], other=[draw(5, 7, 8)])


def test_a_stack_of_outputs_is_no_copy() -> None:
    made = explain(captured(Loop("gru", "all", 1), [draw(3, 5, 8)]))
    assert not any("stack" in node for kernel in made["kernels"] for node in kernel["nodes"])


class Fed(nn.Module):
    """Loops that are no layer: a state of the middle is read, or an output is the next input."""

    def __init__(self, *, back: bool) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.cell, self.back = nn.LSTMCell(8, 8), back

    def forward(self, x: torch.Tensor) -> Any:
        h, c = x[0], x[1]
        middle = c
        for k in range(3):
            h, c = self.cell(h if self.back else x[k], (h, c))
            middle = middle + c
        return h, middle


@pytest.mark.parametrize("back", [True, False])
def test_what_is_no_layer_stays_a_loop(back: bool) -> None:
    graph = captured(Fed(back=back), [draw(3, 4, 8)])
    assert not any(k.startswith("loop:") for k in space(graph))
    check(Fed(back=back), [draw(3, 4, 8)])


class Written(nn.Module):
    """An LSTM written out, whose input products need not wait."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.inside, self.recurrent = nn.Linear(8, 48), nn.Linear(12, 48)

    def forward(self, x: torch.Tensor, h: torch.Tensor, c: torch.Tensor) -> Any:
        for k in range(4):
            i, f, g, o = (self.inside(x[:, k]) + self.recurrent(h)).chunk(4, 1)
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            h = torch.sigmoid(o) * torch.tanh(c)
        return h, c


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_products_of_the_input_are_one(dtype: torch.dtype) -> None:
    model = Written().to(dtype)
    inputs = [draw(3, 4, 8, dtype=dtype), draw(3, 12, dtype=dtype), draw(3, 12, dtype=dtype)]
    graph = captured(model, inputs)
    (key,) = [k for k in space(graph) if k.startswith("hoist:")]
    calls = {k: "gemm" for k in space(graph) if k.startswith("call:") and k.count(":") == 1}
    assert check(model, inputs, choices=calls).count("](") == 1 + 2 * 4, "launches"
    made = explain(graph, {key: False})
    assert sum(len(k["nodes"]) for k in made["kernels"]) + len(made["library"]) > 9


class Experts(nn.Module):
    """Products of slices in a Python list."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how = how

    def forward(self, x: torch.Tensor, w: torch.Tensor) -> Any:
        if self.how == "cat":
            return torch.cat([x[g] @ w[g] for g in range(4)]) + 1
        if self.how == "one":
            return torch.stack([torch.relu(x[0] @ w[g]) for g in range(4)], 1)
        return torch.stack([x[g] @ w[g + 1] for g in range(3)])


@pytest.mark.parametrize("how", ["cat", "one", "some"])
def test_products_of_slices_are_one(how: str) -> None:
    model, inputs = Experts(how), [draw(4, 6, 10), draw(4, 10, 7)]
    graph = captured(model, inputs)
    calls = {k: "gemm" for k in space(graph) if k.startswith("call:") and k.count(":") == 1}
    assert len(calls) == 1
    assert kernels_in(check(model, inputs, choices=calls)) <= 2
    (key,) = [k for k in space(graph) if k.startswith("hoist:")]
    apart = explain(graph, {key: False, "join": "no"})["kernels"]
    assert len([k for k in apart if k["mapping"].startswith("call:")]) > 1
