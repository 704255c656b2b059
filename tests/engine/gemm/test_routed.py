"""Products whose matrix is picked for each row: ordered by matrix, every matrix read once for a tile of rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from hipwright.engine import author, explain, space, write
from tests.engine.harness import Op, captured, compare, reference, run
from tests.engine.template_builds import builds

UNITS = [{"wave": 64}, {"wave": 32}, {"side": "amd"}, {"side": "nvidia", "wave": 32}, {"simulated": "gfx942"}]
ROUTED = {"call:matmul": "routed", "call:matmul_1": "routed", "call:bmm": "routed"}


def experts(x: Tensor, chosen: Tensor, gates: Tensor, up: Tensor, down: Tensor) -> Tensor:
    """A gated layer of the chosen experts of each token, the weights gathered."""
    hidden = (up[chosen] @ x[:, None, :, None]).squeeze(-1)
    gate, value = hidden.chunk(2, dim=-1)
    made = (down[chosen] @ (F.silu(gate) * value)[..., None]).squeeze(-1)
    return (made * gates[..., None]).sum(1)


def adapters(x: Tensor, chosen: Tensor, weight: Tensor) -> Tensor:
    """One adapter for each row, the weight on the right; what follows is fused."""
    return F.gelu(torch.bmm(x[:, None], weight[chosen]).squeeze(1)) + x[:, :1]


def draw(rows: int, count: int, top: int, sizes: tuple[int, int], dtype: torch.dtype) -> list[Tensor]:
    make, (width, hidden) = torch.Generator().manual_seed(rows), sizes
    tensors = [
        torch.randn(rows, width, generator=make),
        torch.rand(rows, top, generator=make),
        torch.randn(count, 2 * hidden, width, generator=make) * 0.2,
        torch.randn(count, width, hidden, generator=make) * 0.2,
    ]
    x, gates, up, down = (t.to(dtype) for t in tensors)
    return [x, torch.randint(-1, count, (rows, top), generator=make), gates, up, down]  # -1 is the last one


def rows_of(count: int, weights: Tensor, rows: int) -> list[Tensor]:
    make = torch.Generator().manual_seed(rows)
    x = torch.randn(rows, weights.shape[1], generator=make).to(weights.dtype)
    return [x, torch.randint(0, count, (rows,), generator=make) // 2 * 2, weights]  # every other one has no row


@pytest.mark.matrix(keep=5)
@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: "-".join(str(v) for v in unit.values()))
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_values(dtype: torch.dtype, unit: dict[str, Any]) -> None:
    model = Op(experts)
    inputs = draw(37, 5, 2, (72, 40), dtype)
    made = author(captured(model, inputs), ROUTED)
    assert [k["mapping"] for k in made.explanation["kernels"]].count("call:routed") == 3  # both order alike
    program = made.program
    expected, native, _ = reference(model, inputs)
    compare(run(program, model, inputs, **unit)[0], expected, native)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_matrices_on_the_right_and_empty_groups(dtype: torch.dtype) -> None:
    model = Op(adapters)
    inputs = rows_of(6, torch.randn(6, 40, 24, generator=torch.Generator().manual_seed(1)).to(dtype), 50)
    program = write(captured(model, inputs), ROUTED)
    assert "which rows each matrix has" in program.text
    expected, native, _ = reference(model, inputs)
    compare(run(program, model, inputs)[0], expected, native)


def large(rows: int) -> list[Tensor]:
    return [
        torch.empty(rows, 2048, dtype=torch.bfloat16),
        torch.zeros(rows, 8, dtype=torch.long),
        torch.empty(rows, 8, dtype=torch.bfloat16),
        torch.empty(64, 2048, 2048, dtype=torch.bfloat16),
        torch.empty(64, 2048, 1024, dtype=torch.bfloat16),
    ]


def test_when_it_is_the_default() -> None:
    """Where many rows share a matrix; never where it is turned off. No weights are gathered either way."""
    few, many = (captured(Op(experts), large(rows)) for rows in (16, 256))
    assert (space(few)["call:matmul"].default, space(many)["call:matmul"].default) == ("gemv", "routed")
    assert author(many, {"routed": False}).space["call:matmul"].default == "gemv"
    for graph in (few, many):
        assert not explain(graph)["library"]
        assert "16777216" not in write(graph).text


def test_few_columns_of_a_long_k_are_summed_by_row() -> None:
    """16 tiles would leave most of a device idle over all of k; a row's own blocks read its matrix from the cache."""
    inputs = rows_of(16, torch.randn(16, 2048, 16, generator=torch.Generator().manual_seed(1)).bfloat16(), 256)
    graph = captured(model := Op(adapters), inputs)
    made = author(graph)
    assert made.space["call:bmm"].default == "gemv" and not made.explanation["library"]
    assert "GEMV_COLUMNS = knob(2," in made.program.text  # all threads have columns
    expected, native, _ = reference(model, inputs)
    compare(run(made.program, model, inputs)[0], expected, native)


def other_uses() -> list[tuple[Callable[..., Tensor], list[Tensor]]]:
    weight, index = torch.randn(4, 16, 24), torch.randint(0, 4, (6,))
    return [
        (lambda w, i, x: w[i] @ x, [weight, index, torch.randn(6, 24, 3)]),  # several vectors of each
        (lambda w, i, x: (w[i] * i[:, None, None]) @ x, [weight, index, torch.randn(6, 24, 1)]),  # of the row too
        (lambda w, i, x: (w[i] + w[i.flip(0)]) @ x, [weight, index, torch.randn(6, 24, 1)]),  # two of each row
        (lambda w, i, x: w @ x, [torch.randn(6, 16, 24), index, torch.randn(6, 24, 1)]),
    ]


@pytest.mark.parametrize(("function", "inputs"), other_uses())
def test_other_products_are_not_routed(function: Callable[..., Tensor], inputs: list[Tensor]) -> None:
    found = space(captured(Op(function), inputs)).get("call:matmul")
    assert found is None or "routed" not in found.options


def test_builds() -> None:
    assert "which rows each matrix has" in builds(Op(experts), large(512))
