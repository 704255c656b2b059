"""Top-k, sorting and k-th values: values and indices over row lengths, dtypes, ties and specials; AMD builds."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from msgspec import structs

from hipwright.engine import write
from hipwright.program import parse
from hipwright.toolchain.amd import offline as amdgpu
from tests.engine.harness import CACHE, Op, captured, kernels_in, run
from tests.engine.template_builds import builds


def draw(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(7), dtype=torch.float64).to(dtype)


def selected(
    function: Callable[..., Any],
    x: torch.Tensor,
    name: str,
    other: torch.Tensor | None = None,
    wave: int = 64,
    **choices: Any,
) -> str:
    """Checks that values equal PyTorch's, and that indices point to equal values and do not repeat; returns the
    text.
    """
    model = Op(function)
    program = write(captured(model, [x]), choices)
    assert f"{name}" in program.text, program.text
    for case in [x, *([other] if other is not None else [])]:
        got, _ = run(program, model, [case], wave=wave)
        expected = model(case)
        for g, e in zip(got, expected, strict=True):
            assert g.dtype == e.dtype
            assert g.shape == e.shape
        assert torch.equal(torch.nan_to_num(got[0].float(), 7e30), torch.nan_to_num(expected[0].float(), 7e30))
        assert torch.equal(got[1], expected[1]) or _same(case, got, expected)
    return program.text


def _same(x: torch.Tensor, got: Any, expected: Any) -> bool:
    """Whether outputs agree up to ties: the indices must lead to the values."""
    dim = next((d for d in range(x.ndim) if x.shape[d] != got[1].shape[d]), x.ndim - 1)
    return torch.equal(x.gather(dim, got[1]).float(), expected[0].float())


@pytest.mark.matrix(keep=3)
@pytest.mark.parametrize(
    ("shape", "k", "dim", "largest", "name"),
    [
        ((3, 40), 5, -1, True, "lanes a row"),
        ((3, 40), 9, -1, True, "bitonic"),
        ((5, 7, 6), 3, 1, False, "lanes a row"),
        ((2, 1500), 1, -1, True, "the best 1 of a row"),
        ((3, 4000), 64, -1, True, "the best 64 of a row"),
        ((2, 2111), 100, -1, False, "the best 100 of a row"),
    ],
)
def test_topk(shape: tuple[int, ...], k: int, dim: int, largest: bool, name: str) -> None:
    selected(lambda x: x.topk(k, dim, largest), draw(*shape), name)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.int32, torch.uint8])
def test_topk_dtypes(dtype: torch.dtype) -> None:
    x = (draw(3, 1300) * 50).abs().to(dtype)
    selected(lambda x: x.topk(9), x, "the best 9 of a row")


def test_topk_of_sorted_rows_overflows_its_buffer() -> None:
    """Every element passes the filter."""
    selected(lambda x: x.topk(10), torch.arange(5000.0).repeat(2, 1), "the best 10 of a row")


def test_topk_in_chunks() -> None:
    x = draw(2, 6000)
    text = selected(
        lambda x: x.topk(20), x, "the best 20 of a row's chunk", other=draw(3, 1101), **{"call:topk:parts": 2}
    )
    assert kernels_in(text) == 2


def test_specials() -> None:
    row = torch.tensor([0.0, -0.0, float("inf"), float("-inf"), float("nan"), 1.0, -1.0, 1.0, float("nan"), 3.0])
    selected(lambda x: x.topk(6), row.repeat(2, 1), "lanes a row")
    selected(lambda x: x.sort(-1), row.repeat(2, 1), "bitonic")


@pytest.mark.matrix(keep=3)
@pytest.mark.parametrize(
    ("shape", "dim", "descending"),
    [((3, 17), -1, False), ((4, 33, 5), 1, True), ((70, 64), -1, False), ((2, 2000), -1, True), ((1, 9), 1, False)],
)
def test_sort(shape: tuple[int, ...], dim: int, descending: bool) -> None:
    selected(lambda x: torch.sort(x, dim=dim, descending=descending, stable=True), draw(*shape), "bitonic", wave=32)


def test_equal_values_keep_their_order() -> None:
    x = torch.randint(0, 4, (5, 300), generator=torch.Generator().manual_seed(1)).to(torch.int32)
    program = write(captured(Op(lambda x: torch.sort(x, dim=-1, stable=True)), [x]))
    got, _ = run(program, Op(lambda x: x), [x])
    assert torch.equal(got[1], torch.sort(x, dim=-1, stable=True)[1])


def test_a_row_longer_than_the_buffer_is_ranked() -> None:
    selected(lambda x: x.sort(-1), draw(2, 100), "bitonic", other=draw(1, 4100))


def test_kthvalue_and_argsort() -> None:
    selected(lambda x: x.kthvalue(4, -1), draw(6, 50), "lanes a row")
    selected(lambda x: x.kthvalue(40, -1), draw(3, 1200), "the best 40 of a row")
    selected(lambda x: (x.msort(), x.argsort(0)), draw(30, 4), "bitonic")


@pytest.mark.parametrize("shape", [(64, 100), (256, 20000), (2, 1 << 20)])
def test_builds(shape: tuple[int, ...]) -> None:
    builds(Op(lambda x: x.topk(50)), [torch.empty(shape)])


@pytest.mark.parametrize("wave", [32, 64])
@pytest.mark.parametrize("length", [255, 257, 4352, 4353, 9000])
def test_ends_of_load_groups(length: int, wave: int) -> None:
    """Ascending rows, in which every element beats all before it, and a row that ends within a group of loads."""
    rising = torch.arange(2.0 * length).view(2, length)
    model, large = Op(lambda x: x.topk(50)), torch.empty(600, 20000)
    program = write(captured(model, [large]))
    assert "best 50 of a row" in program.text
    for x in (rising, rising.flip(1), draw(3, length)):
        got, _ = run(program, model, [x], wave=wave)
        assert torch.equal(got[0], x.topk(50).values)
        assert torch.equal(x.gather(1, got[1]), got[0])


def _rows(kind: str, length: int) -> torch.Tensor:
    x = draw(3, length)
    match kind:
        case "few values":
            return (x * 2).round() + 0.0
        case "zeros of both signs":
            return torch.where(x > 2, x, torch.where(x > 0, 0.0, -0.0))
        case "all the same":
            return torch.full_like(x, -1.5)
        case "NaN and infinities":
            x[:, 5::97], x[:, 7::101], x[:, 9::103] = float("nan"), float("inf"), float("-inf")
            return x
        case "mostly NaN":
            return torch.where(x > 2.2, x, float("nan"))
        case "smallest integers":
            return torch.where(x > 1, x, -(2.0**31)).int()
    raise AssertionError(kind)


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("block", [128, 256])
@pytest.mark.parametrize(
    "kind",
    ["few values", "zeros of both signs", "all the same", "NaN and infinities", "mostly NaN", "smallest integers"],
)
@pytest.mark.matrix(keep=3)
def test_long_rows_of_many_equals(kind: str, block: int, largest: bool) -> None:
    """Of equal elements the first are kept, after the sampled threshold as after a sort."""
    model = Op(lambda x: x.topk(50, -1, largest))
    for length in (1200, 4400, 9001):
        x = _rows(kind, length)
        program = write(captured(model, [torch.empty(600, 20000, dtype=x.dtype)]))
        assert "best 50 of a row" in program.text
        program = structs.replace(program, knobs={"SELECT_BLOCK": block})
        got, _ = run(program, model, [x], wave=32)
        order = x.double().argsort(dim=-1, descending=largest, stable=True)[:, :50]
        assert torch.equal(got[1], order)
        assert torch.equal(got[0].nan_to_num(nan=9e9), x.gather(1, order).nan_to_num(nan=9e9))


@pytest.mark.parametrize("target", ["gfx942", "gfx1100"])
def test_all_loads_are_under_way_at_once(target: str) -> None:
    """A thread has issued at least half of the 16 loads of a group before it waits for the first."""
    program = write(captured(Op(lambda x: x.topk(50)), [torch.empty(512, 131072)]))
    parsed = parse(program.text)
    build = amdgpu.build(parsed.hip, target, parsed.defines(program.knobs), cache=CACHE, unsafe=True)
    assert build.ok, build.log
    assembly = CACHE.path(build.isa_blob).read_text().partition("\ntopk_kernel_exact:")[2].partition("s_endpgm")[0]
    loads = re.compile(r"global_load_dword|global_load_b32")
    assert len(loads.findall(assembly)) == 16
    first = re.split(r"s_waitcnt vmcnt|s_cbranch", loads.split(assembly, maxsplit=1)[1])[0]
    assert 1 + len(loads.findall(first)) >= 8
