"""Transformer layers that ask whether a mask is causal are captured, with the mask."""

from __future__ import annotations

import pytest
import torch

from hipwright.capture.forward import capture
from hipwright.engine import write
from tests.engine.harness import captured, leaves, run

CAUSAL = torch.nn.Transformer.generate_square_subsequent_mask(5)
OTHER = torch.where(torch.eye(5) > 0, 0.0, -torch.inf)


class Masked(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        layer = torch.nn.TransformerEncoderLayer(8, 2, 16, 0.0)
        self.encoder = torch.nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return self.encoder(x, mask=mask)


@pytest.mark.parametrize("mask", [CAUSAL, OTHER], ids=["causal", "diagonal"])
def test_a_mask_is_an_input_whatever_its_values(mask: torch.Tensor) -> None:
    usual = torch.nn.modules.transformer._detect_is_causal_mask
    model, inputs = Masked(), [torch.randn(5, 3, 8), mask]
    program = write(captured(model, inputs))
    assert torch.nn.modules.transformer._detect_is_causal_mask is usual
    for other in (CAUSAL, OTHER):
        given = [inputs[0], other]
        found = leaves(run(program, model, given)[0])[0]
        with torch.no_grad():
            assert torch.allclose(found, model(*given), atol=1e-5)


class Whole(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        encoder = torch.nn.TransformerEncoder(torch.nn.TransformerEncoderLayer(8, 2, 16, 0.0), 1, None, False)
        self.model = torch.nn.Transformer(8, 2, 1, 1, 16, 0.0, custom_encoder=encoder)

    def forward(self, source: torch.Tensor, target: torch.Tensor, *masks: torch.Tensor) -> torch.Tensor:
        return self.model(source, target, src_mask=masks[0], tgt_mask=masks[1])


def test_a_whole_transformer_is_captured() -> None:
    inputs = [torch.randn(4, 3, 8), torch.randn(5, 3, 8), CAUSAL[:4, :4], CAUSAL]
    assert len(capture(Whole(), inputs)["nodes"]) > 20
