"""Rows of several tensors, concatenated along another dimension: each is read by vectors, without conditional loads."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from hipwright.engine import space, write
from tests.engine.harness import Op, captured, check, kernels_in
from tests.engine.template_builds import builds

F = torch.nn.functional


def rolled(x: torch.Tensor) -> Any:
    """A value of which only parts of a concatenation are made: each element is computed where it is stored."""
    kept = torch.roll(F.softshrink(x), 1, 1)
    return torch.cat([F.relu6(kept), kept], 1)


def side_by_side(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> Any:
    """The conditions lie within arithmetic."""
    return F.silu(torch.cat([x * 2, y, z.exp()], 1)) + 1


def five(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> Any:
    return torch.cat([x, y, torch.cat([z * 2, x + 1], 1), y.exp()], 1)


def twice(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> Any:
    """Two results, concatenated at different places."""
    return torch.cat([x, y], 1).relu(), torch.cat([y, x], 1) * 3


FUNCTIONS = {f.__name__: f for f in (rolled, side_by_side, five, twice)}


def inputs(name: str, width: int, dtype: torch.dtype, channels: tuple[int, ...] = (3, 2, 4)) -> list[torch.Tensor]:
    drawn = torch.Generator().manual_seed(width)
    found = [torch.randn(2, count, 3, width, generator=drawn).to(dtype) for count in channels]
    return found[:1] if name == "rolled" else found


def by_rows(name: str, given: list[torch.Tensor]) -> dict[str, Any]:
    names = [k for k in space(captured(Op(FUNCTIONS[name]), given)) if k.startswith("map:")]
    return dict.fromkeys(names, "rows")


@pytest.mark.matrix(keep=4)
@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize(("width", "other"), [(264, 77), (259, 264), (40, 13)])
def test_values(name: str, dtype: torch.dtype, width: int, other: int) -> None:
    """Rows of blocks and of lanes, with tails; other sizes than the captured."""
    given = inputs(name, width, dtype)
    choices = {**by_rows(name, given), "ROW_BLOCK": 64, "ROW_ITEMS": 2, "LANES": 4, "BLOCK": 64}
    check(Op(FUNCTIONS[name]), given, choices=choices, other=inputs(name, other, dtype))


@pytest.mark.parametrize(("name", "loads"), [("rolled", 2), ("side_by_side", 3)])
def test_each_part_is_read_by_vectors(name: str, loads: int) -> None:
    """In one kernel, which stores a vector for each that it loads."""
    given = [t.repeat(8, 1, 8, 1) for t in inputs(name, 1024, torch.float32)]
    text = write(captured(Op(FUNCTIONS[name]), given)).text
    assert kernels_in(text) == 1
    body = text.split("#include")[-1].split('extern "C"')[0]
    assert body.count(" = load_whole_vectors<") == body.count("store_whole_vectors<") == loads
    assert "continue" not in body and "bool t" not in body


def test_more_parts_than_a_kernel_writes_out_are_read_under_conditions() -> None:
    given = inputs("five", 264, torch.float32)
    text = write(captured(Op(five), given), by_rows("five", given)).text
    assert "load_whole_vectors<" not in text and "store_whole_vectors<" in text


def test_builds() -> None:
    builds(Op(side_by_side), [torch.empty(8, count, 64, 1024).half() for count in (32, 16, 64)])
