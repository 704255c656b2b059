"""Scans down columns by tiles: groups of tiles, lines of columns, prologue and following values, edge sizes."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from hipwright.engine import space
from tests.engine.harness import Op, captured, check
from tests.engine.template_builds import builds

SMALL = {"SCAN_BLOCK": 64, "COLUMNS": 16, "SCAN_ITEMS": 2}
"""Tiles of 8 rows, groups of 4 tiles."""


def draw(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(3), dtype=torch.float64).to(dtype)


def scaled(x: torch.Tensor, y: torch.Tensor) -> Any:
    total = torch.cumsum(x * y, 0)
    return total * y + 1, total.relu()


def product(x: torch.Tensor, y: torch.Tensor) -> Any:
    return torch.where(y > 0, (1 + x * 0.01).cumprod(-2), y)


@pytest.mark.parametrize("wave", [32, 64])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("shape", [(300, 40), (64, 81), (3, 150, 20), (257, 2, 17)])
@pytest.mark.parametrize("function", [scaled, product], ids=lambda f: f.__name__)
@pytest.mark.matrix(keep=3)
def test_tiles(function: Any, shape: tuple[int, ...], dtype: torch.dtype, wave: int) -> None:
    inputs = [draw(*shape, dtype=dtype), draw(*shape, dtype=dtype).flip(0).contiguous()]
    graph = captured(Op(function), inputs)
    chosen = {k: "tiles" for k in space(graph) if k.startswith("map:")}
    text = check(Op(function), inputs, choices={**chosen, **SMALL}, wave=wave)
    assert ("await_column_prefixes<" in text) == (shape[-2 if function is product else 0] >= 64)


@pytest.mark.parametrize("block", [64, 256])
def test_blocks_and_other_sizes(block: int) -> None:
    """Blocks of one or several rows of threads; the same program on fewer and more rows and columns."""
    model = Op(lambda x: x.cumsum(0))
    choices = {"map:cumsum_kernel": "tiles", "map:cumsum": "tiles", "SCAN_BLOCK": block, "COLUMNS": 64, "SCAN_ITEMS": 4}
    for other in (draw(1, 3), draw(900, 33), draw(0, 20), draw(20, 0)):
        assert "await_column_prefixes<" in check(model, [draw(100, 300)], choices=choices, other=[other])


def test_default_and_whole_numbers() -> None:
    x = torch.randint(-(2**40), 2**40, (600, 18), generator=torch.Generator().manual_seed(1))
    assert "await_column_prefixes<" in check(Op(lambda x: x.cumsum(0) // 3), [x])
    assert "await_column_prefixes<" not in check(Op(lambda x: x.cumsum(0)), [draw(30, 40)])


def test_nan_stays_in_its_column() -> None:
    x = draw(400, 24)
    x[100, 3], x[200, 5] = float("nan"), float("inf")
    assert "await_column_prefixes<" in check(Op(lambda x: x.cumsum(0)), [x])


def test_builds() -> None:
    assert "await_column_prefixes<" in builds(Op(lambda x: x.cumsum(0)), [torch.empty(16384, 8192)])
    builds(Op(scaled), [torch.empty(16384, 512, dtype=torch.bfloat16)] * 2)
    builds(Op(product), [torch.empty(16, 4096, 64)] * 2)
