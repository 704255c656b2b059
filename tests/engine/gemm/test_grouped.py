"""Products of groups of rows, each with its matrix: uneven, empty and single groups, epilogues; AMD builds."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from hipwright.engine import explain, space, write
from tests.engine.harness import Op, captured, kernels_in, run
from tests.engine.template_builds import builds


def draw(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(3)).bfloat16() * 0.3


def ends(*rows: int) -> torch.Tensor:
    return torch.tensor(rows, dtype=torch.int32)


def experts(x: torch.Tensor, w: torch.Tensor, offs: torch.Tensor) -> torch.Tensor:
    return torch._grouped_mm(x, w, offs=offs)


def gated(x: torch.Tensor, w: torch.Tensor, offs: torch.Tensor) -> torch.Tensor:
    return torch.relu(torch._grouped_mm(x * 2, w.transpose(1, 2), offs=offs)) + 1


def looped(x: torch.Tensor, w: torch.Tensor, offs: torch.Tensor) -> torch.Tensor:
    """The same in double, group by group."""
    starts = [0, *offs.tolist()[:-1]]
    return torch.cat([x[a:b].double() @ m.double() for a, b, m in zip(starts, offs.tolist(), w, strict=True)])


def close(got: torch.Tensor, expected: torch.Tensor) -> None:
    assert got.dtype == torch.bfloat16
    torch.testing.assert_close(got.double(), expected, rtol=1e-2, atol=2e-2)


@pytest.mark.parametrize("wave", [32, 64])
@pytest.mark.parametrize("offsets", [(10, 44, 44, 100), (0, 0, 0, 100), (100, 100, 100, 100), (1, 2, 3, 100)])
def test_groups(offsets: tuple[int, ...], wave: int) -> None:
    x, weight, model = draw(100, 40), draw(4, 40, 72), Op(experts)
    graph = captured(model, [x, weight, ends(*offsets)])
    program = write(graph, {"call:_grouped_mm": "grouped"})
    assert kernels_in(program.text) == 1
    got, _ = run(program, model, [x, weight, ends(*offsets)], wave=wave)
    close(got, looped(x, weight, ends(*offsets)))
    x, weight = draw(9, 48), draw(2, 48, 24)
    got, _ = run(program, model, [x, weight, ends(8, 9)], wave=wave)
    close(got, looped(x, weight, ends(8, 9)))


def test_prologue_and_epilogue_are_fused() -> None:
    x, weight, offs = draw(70, 40), draw(3, 72, 40), ends(30, 31, 70)
    program = write(captured(Op(gated), [x, weight, offs]), {"call:_grouped_mm": "grouped"})
    assert kernels_in(program.text) == 1
    got, _ = run(program, Op(gated), [x, weight, offs])
    close(got, looped(x * 2, weight.transpose(1, 2), offs).relu() + 1)


def test_other_forms_stay_with_the_library() -> None:
    made = explain(captured(Op(experts), [draw(4, 16, 32), draw(32, 64), ends(10, 20, 30, 64)]))
    assert "_grouped_mm" in made["library"]


def test_the_static_rule() -> None:
    """Large products are left to the library, which has matrix units; the template takes what memory or the launch
    bounds.
    """

    def default(rows: int, depth: int, columns: int) -> Any:
        inputs = [torch.empty(rows, depth), torch.empty(16, depth, columns)]
        graph = captured(Op(experts), [*(t.bfloat16() for t in inputs), ends(*range(16))])
        return space(graph)["call:_grouped_mm"].default

    assert default(8192, 2048, 1408) == "library"
    assert default(64, 128, 128) == "grouped"


def test_builds() -> None:
    text = builds(Op(experts), [draw(64, 128), draw(16, 128, 128), ends(*range(4, 65, 4))])
    assert "__global__" in text and "begin" in text
