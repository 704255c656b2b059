"""Mean and variance in one pass: large means, outliers, tails; blocks, lanes, columns and cooperative blocks."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from hipwright.engine import space, write
from tests.engine.harness import captured, run


class Spread(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> Any:
        variance, mean = torch.var_mean(x, dim=-1)
        return variance, mean, torch.nn.functional.layer_norm(x, x.shape[-1:])


MAPPINGS = [
    ("block", False, {"ROW_BLOCK": 128, "ROW_VEC": 4}),
    ("block", False, {"ROW_BLOCK": 64, "ROW_VEC": 1}),
    ("block", True, {"ROW_BLOCK": 64, "ROW_VEC": 4, "ROW_ITEMS": 1, "COOP_BLOCKS": 4}),
    ("block", True, {"ROW_BLOCK": 64, "ROW_VEC": 1, "ROW_ITEMS": 4, "COOP_BLOCKS": 2}),
    ("lanes", False, {"LANES": 8, "BLOCK": 64}),
    ("columns", False, {"COLUMNS": 8, "BLOCK": 64}),
]


@pytest.mark.matrix(keep=3)
@pytest.mark.parametrize("wave", [32, 64])
@pytest.mark.parametrize("width", [5, 300, 1028])
@pytest.mark.parametrize(("mapping", "cooperative", "knobs"), MAPPINGS)
def test_digits(mapping: str, cooperative: bool, knobs: dict[str, int], width: int, wave: int) -> None:
    x = torch.randn(6, width, generator=torch.Generator().manual_seed(5))
    x[1] += 3000
    x[2, 0] = 1e4
    x[3, width // 2] = -1e4
    x[4] = 7.25
    x[5] *= 1e-8
    model = Spread()
    graph = captured(model, [x])
    keys = space(graph)
    chosen: dict[str, Any] = {k: mapping for k in keys if k.startswith("map:")}
    chosen |= {k: cooperative for k in keys if k.startswith("cooperative:")}
    program = write(graph, {**chosen, **knobs})
    (variance, mean, norm), _ = run(program, model, [x], wave=wave)
    exact = x.double()
    want, middle = torch.var_mean(exact, dim=-1)
    assert ((variance - want).abs() <= 2e-5 * want).all()
    assert ((mean - middle).abs() <= 3e-7 * exact.abs().mean(-1)).all(), "one far value costs the mean no digits"
    assert torch.allclose(norm.double(), torch.nn.functional.layer_norm(exact, [width]), rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_nan_and_infinity(bad: float) -> None:
    x = torch.randn(3, 300, generator=torch.Generator().manual_seed(6))
    x[1, 17] = bad
    program = write(captured(Spread(), [x]), {})
    (variance, _, norm), _ = run(program, Spread(), [x])
    assert variance[1].isnan() and norm[1].isnan().all()
    assert not norm[::2].isnan().any()
