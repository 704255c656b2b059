"""A norm whose transpose a product reads is stored as its own kernel traverses it: one launch, and the product reads
across rows.
"""

from __future__ import annotations

import pytest
import torch
from torch import nn

from hipwright.engine import explain
from tests.engine.harness import captured, check


class Across(nn.Module):
    """A linear layer over the tokens of a norm over features."""

    def __init__(self, tokens: int, width: int, heads: bool = False) -> None:
        super().__init__()
        self.norm, self.across, self.heads = nn.LayerNorm(width), nn.Linear(tokens, tokens), heads

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        turned = self.norm(x).transpose(1, 2)
        return torch.exp(turned) if self.heads else nn.functional.gelu(self.across(turned))


@pytest.mark.parametrize("wave", [32, 64])
def test_two_launches(wave: int) -> None:
    torch.manual_seed(0)
    model, x = Across(9, 20), torch.randn(3, 9, 20)
    text = check(model, [x], choices={"call:linear": "gemm"}, wave=wave, other=[torch.randn(5, 9, 20)])
    assert len(explain(captured(model, [x]), {"call:linear": "gemm"})["kernels"]) == 2
    assert "layer_norm_mean" not in text[text.index("def forward") :]


def test_large_norms_and_other_readers_are_stored_transposed() -> None:
    large = explain(captured(Across(64, 64), [torch.empty(128, 64, 64)]), {"call:linear": "gemm"})["kernels"]
    assert len(large) == 3
    assert len(explain(captured(Across(9, 20, heads=True), [torch.empty(3, 9, 20)]))["kernels"]) <= 2
