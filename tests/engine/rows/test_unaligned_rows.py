"""Unaligned rows: head and tail by single elements, the interior in aligned vectors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from hipwright.engine import space, write
from hipwright.toolchain.cpu.sides import Side
from tests.engine.harness import Op, captured, compare, reference, run
from tests.engine.rows.test_half_type_rows import twin
from tests.engine.template_builds import program_builds

INFINITY = float("inf")
DTYPES = [torch.float32, torch.float16, torch.bfloat16]
LENGTHS = (1, 7, 8, 9, 22, 2999, 4104)
"""Lengths: less than a vector, one vector with neither, either or both of head and tail, just under the captured
length, more than registers hold.
"""


def logs(x: torch.Tensor) -> Any:
    return x.float().logsumexp(-1)


def softmax(x: torch.Tensor) -> Any:
    return x.softmax(-1)


def widened(x: torch.Tensor) -> Any:
    return x.float().log_softmax(-1)


def scaled(x: torch.Tensor, y: torch.Tensor) -> Any:
    """Nothing of an element beyond the row is neutral."""
    return (x.float() / (y.float() + 2.0) + 40.0).softmax(-1).to(x.dtype)


def standard(x: torch.Tensor) -> Any:
    mean = x.float().mean(-1, keepdim=True)
    return ((x - mean) / (x.float().var(-1, keepdim=True, unbiased=False) + 1e-3).sqrt()).to(x.dtype)


def first_best(x: torch.Tensor) -> Any:
    return x.argmax(-1), x.amax(-1)


def every_third(x: torch.Tensor) -> Any:
    """A value that uses the index in the row."""
    place = torch.arange(x.shape[-1])
    kept = torch.where(place % 3 == 0, x.float(), 0.0)
    return kept.sum(-1), (kept - kept.amax(-1, keepdim=True)).to(x.dtype)


def apart(x: torch.Tensor, y: torch.Tensor) -> Any:
    """Two inputs whose rows have the same boundaries."""
    return (x.float() - y.float()).abs().sum(-1), (x.float() * y.float()).mean(-1)


FUNCTIONS = [logs, softmax, scaled, widened, standard, first_best, every_third, apart]


def inputs(function: Callable[..., Any], rows: int, length: int, dtype: torch.dtype) -> list[torch.Tensor]:
    draw = torch.Generator().manual_seed(11)
    found = [
        torch.randn(rows, length, generator=draw).to(dtype) for _ in range(2 if function in (scaled, apart) else 1)
    ]
    if function not in (scaled, standard, apart):
        found[0][1], found[0][2, length // 2], found[0][3, length - 1] = -INFINITY, INFINITY, float("nan")
    return found


def off(tensor: torch.Tensor, by: int) -> torch.Tensor:
    """The same values in storage that begins `by` elements earlier."""
    held = torch.empty(tensor.numel() + by, dtype=tensor.dtype)
    held[by:] = tensor.flatten()
    return held[by:].view(tensor.shape)


@pytest.mark.parametrize(("wave", "side"), [(32, ""), (64, ""), (64, "amd")])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
@pytest.mark.matrix(keep=8)
def test_values(function: Callable[..., Any], dtype: torch.dtype, wave: int, side: Side) -> None:
    model, given = Op(function), inputs(function, 5, 3001, dtype)
    written = write(captured(model, given))
    assert "load_row_interior<" in written.text and "interior =" in written.text
    cases = [given, [off(x, 3) for x in given], *(inputs(function, 5, n, dtype) for n in LENGTHS)]
    for case in cases:
        expected, native, _ = reference(model, case)
        got, _ = run(written, model, case, wave=wave, side=side)
        compare(got, expected, native)


@pytest.mark.parametrize("cache", ["registers", "reload"])
@pytest.mark.parametrize("length", [11001, 70001], ids=["one tile", "several"])
def test_long_rows(length: int, cache: str) -> None:
    """Rows of half types that stay in registers unconverted, a few vectors at a time; and rows that exceed them."""
    model, given = Op(softmax), inputs(softmax, 4, length, torch.bfloat16)
    written = write(captured(model, given), {"row_cache:softmax_kernel": cache, "cooperative:softmax_kernel": False})
    assert "store_row_interior<" in written.text
    expected, native, _ = reference(model, given)
    got, _ = run(written, model, given)
    compare(got, expected, native)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("function", [softmax, widened], ids=["half out", "float out"])
def test_no_alignment_is_promised_on_amd(function: Callable[..., Any], dtype: torch.dtype) -> None:
    """AMD reads vectors at any address; the checked build refuses a pointer that promises more than the element's."""
    model, given = Op(function), inputs(function, 4, 256, dtype)
    written = write(captured(model, given))
    for case in ([off(given[0], 1)], inputs(function, 5, 167, dtype)):
        expected, native, _ = reference(model, case)
        got, _ = run(written, model, case, side="amd")
        compare(got, expected, native)


def test_accesses_with_other_starts_are_not_peeled() -> None:
    """Weights along the row, and sliced rows, have other boundaries than the rows."""
    x, w = torch.empty(64, 5003, dtype=torch.float16), torch.empty(5003, dtype=torch.float16)
    for function, given in (
        (lambda x, w: (x * w).softmax(-1), [x, w]),
        (lambda x: x[:, 1:].softmax(-1), [x]),
        (lambda x: x.softmax(-1), [x[:, :5000].contiguous()]),  # packs of 16 bytes fill the row
    ):
        assert "interior =" not in write(captured(Op(function), given)).text


def test_peeling_is_a_choice() -> None:
    graph = captured(Op(softmax), [torch.empty(64, 5003, dtype=torch.float16)])
    assert space(graph)["peel:softmax_kernel"].options == (True, False)
    assert "interior =" not in write(graph, {"peel:softmax_kernel": False}).text


@pytest.mark.parametrize("dtype", DTYPES)
def test_accesses_in_ptx(dtype: torch.dtype) -> None:
    """Elements of head and tail are accessed one by one, all others 16 bytes at a time."""
    program = write(captured(Op(softmax), [torch.empty(4096, 10007, dtype=dtype)]))
    accesses = [line for line in twin(program).splitlines() if "ld.global" in line or "st.global" in line]
    wide = [line for line in accesses if ".v4" in line]
    packs = -(-10007 // (16 // dtype.itemsize) // threads(program.text))
    assert (len(wide), len(accesses)) == (2 * packs, 2 * packs + 2)
    program_builds(program, lambda target: 2)


def threads(text: str) -> int:
    line = next(line for line in text.splitlines() if line.startswith("ROW_BLOCK = "))
    return int(line.split("(")[1].split(",")[0])
