"""Sizes that are negative, which amounts of padding may be: they crop."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from hipwright.engine import author
from hipwright.engine.ir.sizes import SizeReader, evaluate
from tests.engine.capturing import captured
from tests.engine.harness import Op, compare, reference, run

pad = torch.nn.functional.pad


def shifted(x: Any) -> Any:
    """Rows moved by one, as x_transformers shifts tokens."""
    by = min(-1, x.shape[0])
    return pad(x, (0, 0, by, -by)) * 2 + x


@pytest.mark.parametrize(
    ("forward", "shapes"),
    [
        (shifted, [(6, 3), (9, 4), (2, 2)]),
        (lambda x: pad(x, (8 - x.shape[1], 0)).tanh(), [(3, 12), (2, 9), (4, 31)]),
        (lambda x: pad(x, (0, 8 - x.shape[1])).tanh(), [(3, 12), (2, 9), (4, 31)]),
        (lambda x: pad(x, (0, 8 - x.shape[1])).tanh(), [(3, 5), (2, 8), (4, 3)]),
    ],
)
def test_padding_that_crops_by_a_size_is_written(forward: Any, shapes: list[tuple[int, int]]) -> None:
    model = Op(forward)
    graph = captured(model, [torch.randn(shapes[0])])
    assert graph.symbols
    program = author(graph, {}).program
    assert "__global__" in program.text
    for shape in shapes:
        x = torch.randn(shape)
        expected, native, _ = reference(model, [x])
        compare(run(program, model, [x])[0], expected, native)


@pytest.mark.parametrize(
    ("text", "value"), [("min(-1, s)", "-1"), ("max(s, 0)", "s"), ("min(2*s, s)", "s"), ("max(-t, 3*s)", "3*s")]
)
def test_a_bound_that_all_sizes_have_is_no_size_of_its_own(text: str, value: str) -> None:
    reader = SizeReader(["s", "t"])
    assert reader.read(text) == reader.read(value) and not reader.derived


def test_a_bound_that_some_sizes_have_is_one() -> None:
    reader, hints = SizeReader(["s"]), {"s": 3}
    size = reader.read("min(5, s)")
    reader.evaluate_derived(hints)
    assert reader.derived and evaluate(size, hints) == 3
