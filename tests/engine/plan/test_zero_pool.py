"""Fewer launches: small buffers of zeros are made together, and single numbers are computed by one kernel."""

from __future__ import annotations

import re

import pytest
import torch
from torch import nn

from hipwright.engine import write
from hipwright.engine.knobs import SPLIT
from hipwright.engine.plan import zero_pool
from hipwright.program import parse
from tests.engine.harness import Op, captured, check


class Convolutions(nn.Module):
    """Split convolutions, each with the largest number of each image."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Conv2d(32, 32, 3, padding=1) for _ in range(count))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x).relu()
        return x


def text_of(count: int) -> str:
    choices = {SPLIT: True} | {f"call:conv2d{'' if n == 0 else f'_{n}'}": "split" for n in range(count)}
    return write(captured(Convolutions(count), [torch.empty(2, 32, 28, 28)]), choices).text


def test_buffers_of_one_size_are_rows_of_one_tensor() -> None:
    text = text_of(3)
    assert re.findall(r"torch.zeros\(.*\)", text) == ["torch.zeros((3, x_0), dtype=torch.int32)"]
    assert re.findall(r"= (zeroed\[\d\])", text) == ["zeroed[0]", "zeroed[1]", "zeroed[2]"]


def test_one_buffer_is_allocated_as_it_is() -> None:
    assert re.findall(r"torch.zeros\(.*\)", text_of(1)) == ["torch.zeros((x_0,), dtype=torch.int32)"]


def test_large_buffers_are_made_where_they_are_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zero_pool, "SMALL", 1)
    assert text_of(2).count("torch.zeros(") == 2


def test_buffers_of_a_knobs_size_are_made_where_they_are_needed() -> None:
    text = write(captured(Op(lambda x: (x.softmax(-1), (x * 2).softmax(-1))), [torch.empty(3, 1 << 20)])).text
    made = re.findall(r"torch.zeros\(\(.*\), dtype", text)
    assert made and all("COOP_BLOCKS" in one for one in made)


def test_programs_with_a_pool_are_right() -> None:
    x, other = torch.randn(2, 32, 28, 28), torch.randn(1, 32, 5, 9)
    made = {SPLIT: True, "call:conv2d": "split", "call:conv2d_1": "split"}
    assert "zeroed[1]" in check(Convolutions(2), [x], other=[other], choices=made)


class Counting(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.BatchNorm1d(12) for _ in range(3))
        self.register_buffer("scale", torch.tensor(2.0))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        for norm in self.norms:
            x = norm(x).relu()
        self.scale.mul_(0.5)
        return x, self.scale + x.sum()


def test_the_steps_that_layers_count_are_one_launch() -> None:
    text = check(Counting(), [torch.randn(9, 12)], other=[torch.randn(4, 12)])
    counting = [name for name, s in parse(text).signatures.items() if any("tracked" in p.name for p in s.params)]
    assert len(counting) == 1 and text.count(f"    {counting[0]}[") == 1
