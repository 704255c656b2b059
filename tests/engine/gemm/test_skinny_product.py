"""Products with few vectors by matrix units: weights and vectors go from memory to their operands."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from hipwright.engine import author, space, write
from hipwright.engine.knobs import SPLIT
from tests.engine.gemm.test_packed_product import UNITS
from tests.engine.harness import Op, captured, check, compare, reference, run
from tests.engine.template_builds import program_builds

HALF, BRAIN = torch.float16, torch.bfloat16


class Gated(nn.Module):
    """Two layers of the same vectors, an activation and a sum: each is the epilogue of a product."""

    def __init__(self, width: int, hidden: int, dtype: torch.dtype) -> None:
        super().__init__()
        self.gate, self.up = (nn.Linear(width, hidden, bias=bias, dtype=dtype) for bias in (True, False))
        self.down = nn.Linear(hidden, width, dtype=dtype)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(nn.functional.silu(self.gate(x)) * self.up(x))


def batched(x: Tensor, y: Tensor) -> Tensor:
    """The matrix on the left, one for each of a batch."""
    return torch.relu(y @ x.transpose(1, 2))


def chosen(model: nn.Module, inputs: list[Tensor]) -> dict[str, Any]:
    names = [k for k, c in space(captured(model, inputs)).items() if "skinny" in c.options]
    return dict.fromkeys(names, "skinny")


@pytest.mark.matrix(keep=6)
@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: "-".join(str(v) for v in unit.values()))
@pytest.mark.parametrize("dtype", [HALF, BRAIN])
@pytest.mark.parametrize(("rows", "width", "hidden"), [(8, 64, 136), (3, 200, 48), (17, 72, 40), (64, 128, 24)])
def test_values(rows: int, width: int, hidden: int, dtype: torch.dtype, unit: dict[str, Any]) -> None:
    """Partial tiles of rows and vectors, and a k that four lanes' loads do not divide."""
    model, x = Gated(width, hidden, dtype), torch.randn(rows, width, dtype=dtype)
    program = write(captured(model, [x]), {**chosen(model, [x]), "SKINNY_BLOCK": 128})
    assert program.text.count("skinny_multiply<WIDTH>") == 3
    expected, native, _ = reference(model, [x])
    compare(run(program, model, [x], **unit)[0], expected, native)


@pytest.mark.matrix(keep=6)
@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: "-".join(str(v) for v in unit.values()))
@pytest.mark.parametrize(("rows", "width", "hidden"), [(8, 256, 136), (3, 300, 48), (33, 260, 40), (64, 512, 24)])
def test_floats_are_as_exact_as_the_library(rows: int, width: int, hidden: int, unit: dict[str, Any]) -> None:
    """Also where neighbours differ in size by 2^40."""
    torch.manual_seed(3)
    model, x = nn.Linear(width, hidden), torch.randn(rows, width) * 2.0 ** torch.randint(-40, 1, (rows, width))
    program = write(captured(model, [x]), {**chosen(model, [x]), "SKINNY_BLOCK": 128})
    assert program.text.count("skinny_multiply<WIDTH>") == 1
    got, own = run(program, model, [x], **unit)[0], model(x)
    exact = model.double()(x.double())
    assert (got - exact).abs().max() <= 2 * (own - exact).abs().max()


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: "-".join(str(v) for v in unit.values()))
def test_floats_that_are_not_finite(unit: dict[str, Any]) -> None:
    """A sum that is not finite is added again by floats."""
    model, x = nn.Linear(256, 24), torch.randn(9, 256)
    x[2, 7], x[4, 100], x[5, 255], x[6, 3] = torch.inf, -torch.inf, torch.nan, 3.4e38
    program = write(captured(model, [x]), chosen(model, [x]))
    got, want = run(program, model, [x], **unit)[0], model(x)
    torch.testing.assert_close(got, want, equal_nan=True)


def test_more_vectors_than_the_captured_ones() -> None:
    model, x = Gated(64, 48, HALF), torch.randn(5, 64, dtype=HALF)
    check(model, [x], choices=chosen(model, [x]), other=[torch.randn(150, 64, dtype=HALF)])


def test_vectors_that_no_load_takes_whole() -> None:
    """Rows of 65 numbers, summed by elements."""
    model, x = Gated(65, 31, BRAIN), torch.randn(4, 65, dtype=BRAIN)
    check(model, [x], choices=chosen(model, [x]))


def test_batches_of_matrices() -> None:
    x, y = torch.randn(3, 6, 80, dtype=HALF), torch.randn(3, 50, 80, dtype=HALF)
    choices = chosen(Op(batched), [x, y])
    assert "skinny_multiply" in check(Op(batched), [x, y], choices=choices)


def test_blocks_share_k() -> None:
    model, x = nn.Linear(4096, 32, dtype=BRAIN), torch.randn(8, 4096, dtype=BRAIN)
    assert "partials_linear" in check(model, [x], choices={"call:linear": "skinny", "call:linear:split": 4})


def test_when_it_is_the_default() -> None:
    """For few vectors where all targets are known to have matrix units."""
    model = nn.Sequential(nn.Linear(896, 4864, dtype=BRAIN), nn.SiLU())
    for rows, usual in ((1, "gemv"), (8, "skinny"), (16, "skinny"), (64, "library")):
        graph = captured(model, [torch.randn(rows, 896, dtype=BRAIN)])
        assert author(graph, {SPLIT: True}).space["call:linear"].default == usual, rows
        assert author(graph).space["call:linear"].default != "skinny", rows


def test_when_it_is_the_default_for_floats() -> None:
    """Where reading the weights takes longer than the products of their parts, for a k that the parts are exact for."""
    for width, rows, usual in ((4096, 32, True), (4096, 2, False), (64, 32, False)):
        graph = captured(nn.Linear(width, 8192), [torch.randn(rows, width)])
        assert (author(graph, {SPLIT: True}).space["call:linear"].default == "skinny") == usual, (width, rows)
        assert author(graph).space["call:linear"].default != "skinny", rows


@pytest.mark.parametrize("dtype", [HALF, BRAIN, torch.float32])
def test_builds(dtype: torch.dtype) -> None:
    model, x = Gated(1024, 2816, dtype), torch.randn(8, 1024, dtype=dtype)
    program_builds(write(captured(model, [x]), chosen(model, [x])), lambda target: 2)
