"""Operators that torch traces only where their shapes are given (`capture.fake_operators`)."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from hipwright.capture.composite_forms import combinations
from hipwright.engine import write
from hipwright.errors import TaskError
from hipwright.program.lower.trace import OpTrace
from hipwright.program.lower.unshaped import UNSHAPED
from tests.engine.harness import Op, captured, leaves, run


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("tensors", [True, False])
def test_a_loss_that_torch_does_not_trace_stays_a_library_call(tensors: bool, reduction: str) -> None:
    """Its result has a fixed shape; only what its gradient reads depends on values."""

    def loss(x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        sizes: Any = [(20,) * 4, (5,) * 4]
        if tensors:
            sizes = [target.new_full((4,), size[0]) for size in sizes]
        return torch.nn.functional.ctc_loss(x.log_softmax(-1), target, *sizes, reduction=reduction) * 2

    inputs = [torch.randn(20, 4, 6), torch.randint(1, 6, (4, 5))]
    graph = captured(Op(loss), inputs)
    assert any(node.op.startswith("aten.ctc_loss.") for node in graph.nodes)
    program = write(graph)
    found = leaves(run(program, Op(loss), inputs)[0])[0]
    assert found.shape == ((4,) if reduction == "none" else ()) and torch.allclose(found, loss(*inputs))


def test_an_operator_without_shapes_of_its_own_is_traced_on_zeros() -> None:
    def counts(elements: int) -> torch.Tensor:
        return torch.histogram(torch.empty(elements, device="meta"), bins=7)[0]

    with OpTrace() as seen:
        found = counts(20)
    assert found.is_meta and found.shape == (7,) and seen.ops[-1]["out"][0]["shape"] == [7]
    with pytest.raises(NotImplementedError), OpTrace():
        counts(1 << 27)  # zeros would fill the memory


@pytest.mark.parametrize("labels", [(4, 5), (20,)])
def test_shapes_that_follow_from_the_operands_need_no_values(labels: tuple[int, ...]) -> None:
    """Labels one after the other are as many as their lengths say, which no zeros do."""
    given = torch.empty(20, 4, 6, device="meta")
    target, lengths = (torch.empty(shape, dtype=torch.int64, device="meta") for shape in (labels, (4,)))
    with OpTrace() as seen:
        found = torch._ctc_loss(given, target, lengths, lengths)[0]
    assert found.is_meta and found.shape == (4,) and seen.ops[-1]["out"][0]["shape"] == [4]


@pytest.mark.parametrize("driver", [None, "gelsy", "gels", "gelsd", "gelss"])
@pytest.mark.parametrize(
    ("rows", "columns", "right"),
    [
        (5, 3, (5, 2)),
        (3, 5, (3, 2)),
        (4, 4, (4,)),
        (5, 3, (5,)),
        (5, 3, (1, 5, 4)),
        (3, 5, (2, 3)),
        (5, 3, (2, 5)),
    ],
)
def test_least_squares_have_the_shapes_that_torch_gives(
    driver: str | None, rows: int, columns: int, right: tuple[int, ...]
) -> None:
    batch = (2,) if len(right) > 2 or right == (2, rows) else ()
    a, b = torch.randn(*batch, rows, columns), torch.randn(right)
    shaped = UNSHAPED[torch.ops.aten.linalg_lstsq.default]
    made = shaped(a, b, driver=driver)
    found = torch.linalg.lstsq(a, b, driver=driver)
    assert [(t.shape, t.dtype) for t in made] == [(t.shape, t.dtype) for t in found]


def test_least_squares_by_the_driver_of_fixed_sizes_are_captured() -> None:
    """Its results have fixed sizes; those of the others depend on values, or on memory that torch does not fill."""

    def solved(driver: str | None) -> Op:
        return Op(lambda a, b: torch.linalg.lstsq(a, b, driver=driver).solution * 2)

    program = write(captured(solved("gels"), [torch.randn(5, 3), torch.randn(5, 2)]))
    for inputs in ([torch.randn(5, 3), torch.randn(5, 2)], [torch.randn(7, 6), torch.randn(7, 4)]):
        found = leaves(run(program, solved("gels"), inputs)[0])[0]
        torch.testing.assert_close(found, solved("gels")(*inputs))
    with pytest.raises(TaskError, match="linalg_lstsq"):
        captured(solved(None), [torch.randn(5, 3), torch.randn(5, 2)])


@pytest.mark.parametrize("repeated", [False, True])
@pytest.mark.parametrize("chosen", [1, 2, 3])
def test_combinations_are_as_many_as_the_size_says(chosen: int, repeated: bool) -> None:
    """Torch counts them by a mask, whose sum it reads."""
    model = Op(lambda x: torch.combinations(x * 2, chosen, repeated) + 1)
    graph = captured(model, [torch.randn(6)])
    assert graph.symbols or chosen == 3  # whose count torch asks whether it is negative
    program = write(graph)
    for size in (6, 4) if graph.symbols else (6,):
        x = torch.randn(size)
        assert torch.equal(leaves(run(program, model, [x])[0])[0], model(x))
        assert torch.equal(combinations(x, chosen, repeated), torch.combinations(x, chosen, repeated))
    assert torch.equal(combinations(x, 0), torch.combinations(x, 0))
