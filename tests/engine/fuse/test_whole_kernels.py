"""Codes that are unpacked, and what is made of them, are computed where they are read, not by a kernel before."""

from __future__ import annotations

import pytest
import torch

from hipwright.engine import author
from tests.engine.harness import Op, captured, check, kernels_in


def nibbles(packed: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    """Two codes a byte with a sign each, and a scale for 16 of them."""
    code = torch.stack((packed & 15, packed >> 4), dim=-1).flatten(1).int()
    size = (code & 7).float() * 0.25
    value = torch.where(code >= 8, -size, size + size.square())
    return (value.unflatten(-1, (-1, 16)) * scales.unsqueeze(-1)).flatten(1)


def packed_inputs(rows: int, width: int) -> list[torch.Tensor]:
    return [torch.randint(0, 256, (rows, width // 2), dtype=torch.uint8), torch.rand(rows, width // 16)]


@pytest.mark.parametrize("wave", [32, 64])
def test_unpacked_codes_are_not_stored(wave: int) -> None:
    text = check(Op(nibbles), packed_inputs(5, 64), other=packed_inputs(3, 96), wave=wave)
    assert kernels_in(text) == 1


def test_each_value_is_a_choice() -> None:
    graph = captured(Op(nibbles), packed_inputs(5, 64))
    made = author(graph)
    offered = [key for key in made.space if key.startswith("intermediate:")]
    assert offered
    kept = author(graph, dict.fromkeys(offered, "stored"))
    assert kernels_in(kept.program.text) == 2
    assert set(offered) <= kept.space.keys()
    check(Op(nibbles), packed_inputs(5, 64), choices=dict.fromkeys(offered, "stored"))


def test_interleaved_pairs_are_computed_where_they_are_read() -> None:
    def turned(x: torch.Tensor, angle: torch.Tensor) -> torch.Tensor:
        even, odd = x[:, ::2], x[:, 1::2]
        pairs = torch.stack((even * angle - odd, odd * angle + even), dim=-1).flatten(1)
        return pairs / (1 + pairs.square().mean(-1, keepdim=True))

    check(Op(turned), [torch.randn(4, 32), torch.randn(4, 16)], other=[torch.randn(3, 10), torch.randn(3, 5)])


def test_what_is_returned_as_well_is_stored() -> None:
    def both(packed: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        code = torch.stack((packed & 15, packed >> 4), dim=-1).flatten(1).int()
        return code, (code.float() * 0.5).softmax(-1)

    check(Op(both), [torch.randint(0, 256, (5, 24), dtype=torch.uint8)])
