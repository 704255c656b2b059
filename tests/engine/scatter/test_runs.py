"""Sums of runs: products of compressed matrices, whose rows one kernel adds up in order."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from hipwright.engine import author
from tests.engine.capturing import captured
from tests.engine.harness import Op, check, kernels_in, run
from tests.engine.template_builds import builds

Tensors = list[torch.Tensor]


def _index(starts: torch.Tensor, count: int) -> torch.Tensor:
    rows = torch.arange(starts.shape[0] - 1)
    return torch.repeat_interleave(rows, starts.diff(), output_size=count)


def _vector(starts: torch.Tensor, columns: torch.Tensor, values: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    index = _index(starts, columns.shape[0])
    return torch.zeros(starts.shape[0] - 1, dtype=x.dtype).index_add(0, index, values * x[columns])


def _matrix(starts: torch.Tensor, columns: torch.Tensor, values: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    index = _index(starts, columns.shape[0])
    made = torch.zeros(starts.shape[0] - 1, x.shape[1], dtype=x.dtype)
    return made.index_add(0, index, values.unsqueeze(-1) * x[columns])


def _counted(starts: torch.Tensor, columns: torch.Tensor, values: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    index = torch.repeat_interleave(starts[1:] - starts[:-1], output_size=columns.shape[0])
    return torch.ones(starts.shape[0] - 1, dtype=x.dtype).index_add(0, index, values * x[columns])


def _then_more(starts: torch.Tensor, columns: torch.Tensor, values: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return torch.relu(_vector(starts, columns, values, x) * 2 - 1)


def _inputs(
    lengths: Tensors | torch.Tensor, width: int = 0, dtype: torch.dtype = torch.float32, first: int = 0
) -> Tensors:
    counts = torch.as_tensor(lengths)
    torch.manual_seed(int(counts.sum()) + width)
    starts = torch.cat([torch.zeros(1, dtype=torch.long), counts.cumsum(0)]) + first
    total, places = int(counts.sum()), 57
    x = torch.randn(places, width, dtype=dtype) if width else torch.randn(places, dtype=dtype)
    return [starts, torch.randint(-places, places, (total,)), torch.randn(total, dtype=dtype), x]


LENGTHS = {
    "uneven": torch.randint(0, 13, (301,), generator=torch.Generator().manual_seed(1)),
    "empty rows": torch.tensor([0, 0, 3, 0, 1, 0, 0]),
    "one long row": torch.tensor([2, 0, 5003, 1, 129]),
    "many long rows": torch.full((70,), 131),
    "one row": torch.tensor([9]),
    "one each": torch.ones(513, dtype=torch.long),
}


@pytest.mark.parametrize("name", list(LENGTHS))
@pytest.mark.parametrize("wave", [32, 64])
def test_a_vector_times_a_matrix_is_one_kernel_without_atomics(name: str, wave: int) -> None:
    text = check(Op(_vector), _inputs(LENGTHS[name]), wave=wave)
    assert kernels_in(text) == 1
    assert "repeat_interleave" not in text
    assert "atomicAdd(&index" not in text


@pytest.mark.parametrize("name", list(LENGTHS))
@pytest.mark.parametrize("width", [3, 8, 65])
def test_columns(name: str, width: int) -> None:
    text = check(Op(_matrix), _inputs(LENGTHS[name], width))
    assert kernels_in(text) == 1
    assert "repeat_interleave" not in text


@pytest.mark.parametrize("function", [_counted, _then_more])
def test_other_forms_and_what_reads_the_sums(function: Callable[..., torch.Tensor]) -> None:
    assert kernels_in(check(Op(function), _inputs(LENGTHS["uneven"]))) == 1


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_dtypes(dtype: torch.dtype) -> None:
    check(Op(_vector), _inputs(LENGTHS["uneven"], dtype=dtype))
    check(Op(_matrix), _inputs(LENGTHS["uneven"], 24, dtype=dtype))


def test_other_sizes_and_rows_that_do_not_begin_at_zero() -> None:
    check(Op(_vector), _inputs(LENGTHS["uneven"]), other=_inputs(LENGTHS["one long row"], first=7))


def test_every_size_of_a_block_gives_the_same_sums() -> None:
    model, inputs = Op(_vector), _inputs(LENGTHS["uneven"])
    made = author(captured(model, inputs), {})
    expected = model(*inputs)
    for key, values in {"RUN_BLOCK": (256, 512), "RUN_ITEMS": (2, 16), "RUN_ROWS": (32, 256)}.items():
        for value in values:
            assert value in made.space[key].options
            program = made.program.__class__(text=made.program.text, knobs={**made.program.knobs, key: value})
            got, _ = run(program, model, inputs)
            torch.testing.assert_close(got, expected, atol=1e-4, rtol=1e-4)


def test_sums_are_scattered_where_that_is_chosen() -> None:
    text = check(
        Op(_vector),
        _inputs(LENGTHS["uneven"]),
        choices={"runs:index_add": "scattered"},
        library=("aten.diff.default", "aten.repeat_interleave.self_Tensor"),
    )
    assert "atomicAdd(" in text
    assert "RUN_ROWS" not in text


def _other_rows(starts: torch.Tensor, columns: torch.Tensor, values: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    rows = torch.arange(starts.shape[0] - 1).flip(0)
    index = torch.repeat_interleave(rows, starts.diff(), output_size=columns.shape[0])
    return torch.zeros(starts.shape[0] - 1, dtype=x.dtype).index_add(0, index, values * x[columns])


def _scaled(starts: torch.Tensor, columns: torch.Tensor, values: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    index = _index(starts, columns.shape[0])
    return torch.zeros(starts.shape[0] - 1, dtype=x.dtype).index_add(0, index, values * x[columns], alpha=2)


def _index_returned(
    starts: torch.Tensor, columns: torch.Tensor, values: torch.Tensor, x: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    return _vector(starts, columns, values, x), _index(starts, columns.shape[0])


@pytest.mark.parametrize("function", [_other_rows, _scaled, _index_returned])
def test_other_indices_keep_their_meaning(function: Callable[..., object]) -> None:
    library = ("aten.diff.default", "aten.repeat_interleave.self_Tensor")
    assert "repeat_interleave" in check(Op(function), _inputs(LENGTHS["uneven"]), library=library)


@pytest.mark.parametrize("width", [0, 64])
def test_it_builds_without_scratch(width: int) -> None:
    lengths = torch.full((4000,), 8)
    builds(Op(_matrix if width else _vector), _inputs(lengths, width))
