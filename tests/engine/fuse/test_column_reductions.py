"""Sums down columns that the rows' kernel adds up on its way (engine/fuse/column_reductions.py)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
import torch

from hipwright.engine import space, write
from tests.engine.harness import captured, compare, kernels_in, reference, run
from tests.engine.template_builds import program_builds

ROWS = 20000


class Norm(torch.nn.Module):
    """The gradient of a layer norm; `width` may be several dimensions."""

    def __init__(self, width: tuple[int, ...], dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.width = width
        self.weight = torch.nn.Parameter(torch.rand(width).to(dtype))
        self.bias = torch.nn.Parameter(torch.randn(width).to(dtype))

    def forward(self, grad: torch.Tensor, x: torch.Tensor, mean: torch.Tensor, rstd: torch.Tensor) -> Any:
        return torch.ops.aten.native_layer_norm_backward(
            grad, x, list(self.width), mean, rstd, self.weight, self.bias, [True, True, True]
        )


def inputs(rows: int, width: tuple[int, ...], dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    ones = [1] * len(width)
    wide = [torch.randn(rows, *width).to(dtype) for _ in range(2)]
    return [*wide, (torch.randn(rows, *ones) * 0.1).to(dtype), (torch.rand(rows, *ones) + 0.5).to(dtype)]


@pytest.mark.parametrize("rows", [1, 37, 5000])
@pytest.mark.parametrize(
    ("width", "dtype"),
    [((512,), torch.float32), ((520,), torch.float16), ((769,), torch.float32), ((8, 72), torch.bfloat16)],
    ids=str,
)
@pytest.mark.matrix(keep=3)
def test_gradient_of_a_norm_reads_its_inputs_once(rows: int, width: tuple[int, ...], dtype: torch.dtype) -> None:
    model = Norm(width, dtype)
    program = write(captured(model, inputs(ROWS, width, dtype)))
    assert "_by_block" in program.text
    assert kernels_in(program.text) == 2
    given = inputs(rows, width, dtype)
    exact, native, _ = reference(model, given)
    compare(run(program, model, given)[0], exact, native)


@pytest.mark.parametrize("block", [64, 1024])
def test_any_block_has_the_whole_row(block: int) -> None:
    model, given = Norm((576,)), inputs(50, (576,))
    program = write(captured(model, inputs(ROWS, (576,))))
    program = msgspec.structs.replace(program, knobs={**program.knobs, "ROW_BLOCK": block})
    exact, native, _ = reference(model, given)
    compare(run(program, model, given)[0], exact, native)


def test_sums_are_the_same_each_time() -> None:
    model, given = Norm((512,)), inputs(700, (512,))
    program = write(captured(model, inputs(ROWS, (512,))))
    first, second = (run(program, model, given)[0] for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def test_search_may_keep_the_sums_apart_and_few_or_narrow_rows_do() -> None:
    graph = captured(Norm((512,)), inputs(ROWS, (512,)))
    (key,) = [k for k in space(graph) if k.startswith("column_sums:")]
    assert "_by_block" not in write(graph, {key: "separate"}).text
    for rows, width in ((1000, 512), (ROWS, 256)):
        assert "_by_block" not in write(captured(Norm((width,)), inputs(rows, (width,)))).text


@pytest.mark.parametrize(("width", "dtype"), [(2048, torch.float32), (1024, torch.bfloat16)], ids=str)
def test_builds_everywhere(width: int, dtype: torch.dtype) -> None:
    build = program_builds(write(captured(Norm((width,), dtype), inputs(ROWS, (width,), dtype))), lambda target: 2)
    assert all(k.spills == 0 for k in build.kernels)
