"""Graphs of networks of hundreds of layers: one trace, and the same graph as two."""

from __future__ import annotations

import itertools
import sys
import time
from typing import Any

import pytest
import sympy
import torch
from torch import nn

import hipwright.capture.forward as forward
from hipwright.capture import long_graphs, time_limit
from hipwright.capture.forward import capture
from tests.engine.harness import check


class Residual(nn.Module):
    """Convolutions, batch norms, activations in place, a sum in place, dropout: as classifiers have them."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4)
        self.act, self.drop = nn.ReLU(inplace=True), nn.Dropout(0.5, inplace=True)
        self.head = nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = self.act(self.norm(self.conv(x)))
        out += self.conv(out)
        out = self.act(out)
        out = nn.functional.adaptive_avg_pool2d(out, 1)
        return self.head(self.drop(torch.flatten(out, 1)))


def both(model: nn.Module, args: list[Any], monkeypatch: pytest.MonkeyPatch) -> tuple[Any, Any, bool]:
    """(graph by one trace, graph by two, whether one sufficed)."""
    used: list[bool] = []
    needs = long_graphs.needs_no_decomposition

    def noted(*how: Any) -> bool:
        used.append(needs(*how))
        return used[-1]

    monkeypatch.setattr(forward, "needs_no_decomposition", noted)
    return capture(model, args, long=1), capture(model, args, long=10**6), used[0]


def operators(graph: Any) -> list[str]:
    return [node["op"] for node in graph["nodes"]]


def test_one_trace_gives_the_graph_of_two(monkeypatch: pytest.MonkeyPatch) -> None:
    one, two, sufficed = both(Residual().eval(), [torch.randn(2, 4, 6, 5)], monkeypatch)
    assert sufficed
    known = {"aten.flatten.using_ints": "aten.view.default"}
    assert [known.get(op, op) for op in operators(one)] == operators(two)
    assert [n["outs"] for n in one["nodes"]] == [n["outs"] for n in two["nodes"]] and one["guards"] == two["guards"]


class Written(nn.Module):
    """Writes that something else sees: `kind` says what."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind, self.map = kind, nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> Any:
        out = self.map(x)
        if self.kind == "view":
            seen = out.view(-1)
        elif self.kind == "slice":
            seen, out = out, out[:, :2]
        elif self.kind == "input":
            seen, out = x * 2, x
        elif self.kind == "narrow":
            seen, out = out, out.half()
            return out.add_(self.map(x)), seen
        else:
            seen = out
        return torch.relu_(out), seen


@pytest.mark.parametrize("kind", ["view", "slice", "narrow", "same"])
def test_writes_that_others_see_are_right(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forward, "LONG", 1)
    check(Written(kind), [torch.randn(3, 4)])


def test_training_needs_both_traces(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not both(Residual(), [torch.randn(2, 4, 6, 5)], monkeypatch)[2]


def test_a_trace_that_takes_too_long_has_fewer_free_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    class Slow(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if not isinstance(x.shape[1], int):
                for _ in itertools.count():  # as sympy does with the sizes of windows
                    try:
                        sum(range(1000))
                    except Exception:
                        continue
            return torch.relu(x)

    monkeypatch.setattr(forward, "SECONDS", 0.3)
    graph = capture(Slow(), [torch.randn(3, 4)])
    assert graph["nodes"][0]["outs"][0]["shape"][1] == 4 and isinstance(graph["nodes"][0]["outs"][0]["shape"][0], str)
    with time_limit.within(0):
        pass


def test_an_end_that_a_callback_loses_is_raised_again_and_says_nothing() -> None:
    class Last:
        def __del__(self) -> None:  # an exception in here is printed and forgotten
            end = time.process_time() + 0.5
            while time.process_time() < end:
                sum(range(1000))

    hook = sys.unraisablehook
    with pytest.raises(time_limit.TraceTooLong), time_limit.within(0.2):
        Last()
        lost = time.process_time()
        while time.process_time() < lost + 5:
            sum(range(1000))
    assert time.process_time() - lost < 0.9 and sys.unraisablehook is hook


def test_a_trace_that_is_mostly_in_sympy_ends_earlier(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time_limit, "SYMBOLIC_SECONDS", 0.3)
    n = sympy.Symbol("n", integer=True)

    def expanded() -> None:
        sympy.expand((n + 1) ** 12 * (n - 2) ** 9)
        sympy.core.cache.clear_cache()

    with pytest.raises(time_limit.TraceTooLong), time_limit.within(60):
        while True:
            expanded()
    with time_limit.within(60):  # as long, but for its many operators
        end = time.process_time() + 0.6
        while time.process_time() < end:
            sum(range(1000))
