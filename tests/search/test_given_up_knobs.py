"""Programs in which operators are given up start from their own kernels' knobs."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from hipwright.engine import author
from hipwright.engine.knobs import GIVEN_UP
from hipwright.search import EngineSource
from tests.engine.harness import Op, captured


def two_attentions(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Over many tokens of 32 channels, whose tile holds many keys, and over 32 tokens of 256 channels."""
    return F.scaled_dot_product_attention(x, x, x), F.scaled_dot_product_attention(y, y, y)


def test_a_kernel_does_not_get_the_default_of_one_that_was_given_up() -> None:
    graph = captured(Op(two_attentions), [torch.randn(2, 16, 144, 32), torch.randn(2, 2, 32, 256)])
    authored = author(graph, {})
    source = EngineSource(authored.space, lambda choices: author(graph, choices).program, None)
    keys = {name: one.default for name, one in authored.space.items() if name.startswith("ATTN_KEYS")}
    assert len(set(keys.values())) == 2, "both kernels have knobs of their own"
    node = next(node.name for node in graph.nodes if node.op != "getitem")
    given_up = source.written({GIVEN_UP: node})
    assert not given_up.program.knobs
    assert given_up.program == author(graph, {GIVEN_UP: node}).program
    assert source.written({}).program == authored.program
