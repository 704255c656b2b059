"""A program that would be too long with static-shape variants has none."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from hipwright.engine import assembly, write
from tests.engine.harness import captured, check


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 512), nn.GELU(), nn.LayerNorm(512), nn.Softmax(-1))


def test_variants_are_dropped_from_a_long_program(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.randn(64, 8)
    usual = write(captured(model(), [x])).text
    assert "_exact[" in usual and "captured =" in usual
    monkeypatch.setattr(assembly, "MOST_TEXT", len(usual) - 1)
    short = check(model(), [x], library=["aten.linear.default"], other=[torch.randn(3, 8)])
    assert "_exact" not in short and "captured" not in short and len(short) < len(usual)
