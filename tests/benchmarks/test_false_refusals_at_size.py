"""Honest programs at a task's own size, judged on a device (here the CPU); a program that loses terms is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from benchmarks.__main__ import main
from benchmarks.honest.at_size import timed
from benchmarks.honest.orders import Reordered

TEXT = """import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(512, 64)
        self.norm = nn.BatchNorm1d(64)

    def forward(self, x):
        return torch.relu(self.norm(self.linear(x))), x.float().mean(1)


def get_inputs():
    return [torch.randn(96, 512)]
"""


def judged(orders: list[str], most_bytes: int = 1 << 30) -> tuple[list, str]:
    return timed("small", TEXT, orders, 3, torch.device("cpu"), most_bytes)[:2]


def test_other_orders_pass() -> None:
    pairs, why = judged(["eighths", "lanes", "permuted"])
    assert not why and [pair.order for pair in pairs] == ["eighths", "lanes", "permuted"]
    assert all(0 < pair.worst < 1 and not pair.refused for pair in pairs)


def test_a_program_that_loses_terms_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = Reordered.parts
    monkeypatch.setattr(Reordered, "parts", lambda self, count: parts(self, count)[:-1])
    pairs, _ = judged(["eighths"])
    assert pairs[0].refused and pairs[0].worst > 1


def test_the_librarys_own_order_is_no_pair(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        Reordered, "__torch_dispatch__", lambda self, fn, types, args=(), kwargs=None: fn(*args, **kwargs or {})
    )
    assert judged(["eighths"]) == ([], "")


def test_large_inputs_are_left_out() -> None:
    pairs, why = judged(["eighths"], 1 << 10)
    assert not pairs and "MiB of inputs and parameters" in why


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "small.py").write_text(TEXT)
    assert main(["false-refusals", "--at-size", str(tmp_path), "--order", "halves", "--seeds", "2"]) == 0
    assert "0 of 2 pairs refused" in capsys.readouterr().out
    assert main(["false-refusals", "--at-size", str(tmp_path / "none")]) == 2
    if not torch.cuda.is_available():
        assert main(["false-refusals", "--at-size", str(tmp_path), "--device", "cuda:0"]) == 2
