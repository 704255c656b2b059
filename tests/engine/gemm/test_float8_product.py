"""Products of 8-bit floats: every pair of forms on every side and in machine code, against float64"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from hipwright.engine import space, write
from hipwright.engine.knobs import CDNA4
from hipwright.records import Program
from tests.engine.gemm.test_gemm import Of
from tests.engine.harness import captured, compare, kernels_in, run

FN, FN5, UZ, UZ5 = (getattr(torch, f"float8_{name}") for name in ("e4m3fn", "e5m2", "e4m3fnuz", "e5m2fnuz"))
PAIRS = [(FN, FN), (FN, FN5), (FN5, FN5), (UZ, UZ), (UZ5, UZ), (FN, UZ)]
BRAIN, FLOAT = torch.bfloat16, torch.float32
EVERYWHERE: list[dict[str, Any]] = [
    {},
    {"side": "amd"},
    {"side": "nvidia", "wave": 32},
    {"simulated": "gfx942"},
    {"simulated": "gfx950"},
]
ON_MATRIX_UNITS = EVERYWHERE[1:]


class Scaled(nn.Module):
    """torch._scaled_mm of matrices that lie as rows, and what is fused behind it."""

    def __init__(self, out: torch.dtype = BRAIN) -> None:
        super().__init__()
        self.out = out

    def forward(self, a: torch.Tensor, b: torch.Tensor, x: torch.Tensor, y: torch.Tensor, *bias: torch.Tensor) -> Any:
        made = torch._scaled_mm(a, b.t(), x, y, bias=bias[0] if bias else None, out_dtype=self.out)
        return made if self.out.itemsize == 1 else made.relu()


def codes(dtype: torch.dtype, *shape: int, seed: int = 0) -> torch.Tensor:
    """Numbers of all codes that are finite: both zeros, subnormals and the largest are among them."""
    every = torch.arange(256, dtype=torch.uint8).view(dtype)
    finite = every[every.float().isfinite()].view(torch.uint8)
    generator = torch.Generator().manual_seed(seed + sum(shape))
    chosen = torch.randint(len(finite), shape, generator=generator)
    return finite[chosen].view(dtype)


def operands(m: int, n: int, k: int, forms: tuple[torch.dtype, torch.dtype], *, rows: bool = True) -> list[Any]:
    """Two matrices and their scales: for each row and column, or one for each matrix; and a bias."""
    generator = torch.Generator().manual_seed(m + n + k)
    scales = [torch.rand(shape, generator=generator) + 0.5 for shape in ([(m, 1), (1, n)] if rows else [(), (1, 1)])]
    return [
        codes(forms[0], m, k),
        codes(forms[1], n, k, seed=1),
        *scales,
        torch.randn(n, generator=generator).to(BRAIN),
    ]


def like(given: list[Any], side: int) -> list[Any]:
    """Operands of another size, for which larger tiles are chosen."""
    a, b, x, y, bias = given
    rows = [torch.empty(side, t.shape[1], dtype=torch.uint8).view(t.dtype) for t in (a, b)]
    scales = [torch.ones(side, 1), torch.ones(1, side)] if x.dim() and x.shape[0] > 1 else [x, y]
    return [*rows, *scales, bias.new_zeros(side)]


def exact(given: list[Any]) -> tuple[torch.Tensor, torch.Tensor]:
    """(the product in float64, the sum of the terms' sizes)."""
    a, b, x, y, *bias = (t.double() for t in given)
    made = (a @ b.t()) * x * y
    sizes = (a.abs() @ b.abs().t()) * x * y
    return (made + bias[0], sizes + bias[0].abs()) if bias else (made, sizes)


def near(got: torch.Tensor, given: list[Any]) -> None:
    """Within the rounding of the result's dtype, and of float sums: 2^-20 of the terms' sizes."""
    made, sizes = exact(given)
    made = made.relu()
    step = {BRAIN: 2.0**-8, FLOAT: 2.0**-23, torch.float16: 2.0**-11}[got.dtype]
    assert ((got.double() - made).abs() <= step * made + 2.0**-20 * sizes).all(), (got, made)


def written(model: nn.Module, given: list[Any], way: str = "float8", **choices: Any) -> Program:
    """The program in which every product that can be is written in one way."""
    graph = captured(model, given)
    calls = {
        k: way for k, c in space(graph).items() if k.count(":") == 1 and k.startswith("call:") and way in c.options
    }
    assert calls
    return write(graph, {**calls, **choices})


# ---------------------------------------------------------------- values


@pytest.mark.matrix(keep=4)
@pytest.mark.parametrize("forms", PAIRS, ids=lambda pair: "-".join(str(d).removeprefix("torch.float8_") for d in pair))
@pytest.mark.parametrize("depth", ["", CDNA4])
def test_every_pair_of_forms(forms: tuple[torch.dtype, torch.dtype], depth: str) -> None:
    """One text is right wherever it runs, whatever forms the unit there knows."""
    given = operands(37, 45, 136, forms)
    program = written(Scaled(), given, **({depth: True} if depth else {}))
    for place in EVERYWHERE:
        near(run(program, Scaled(), given, **place)[0], given)


TILES = [
    (130, 70, 72, {"GEMM_M": 128, "GEMM_N": 64}),
    (65, 129, 200, {"GEMM_M": 64, "GEMM_N": 128, "GEMM_K": 32}),
    (128, 64, 64, {"GEMM_M": 128, "GEMM_N": 64}),
]


@pytest.mark.matrix(keep=3)
@pytest.mark.parametrize("forms", [(FN, FN), (FN5, FN)], ids=["same", "mixed"])
@pytest.mark.parametrize(("m", "n", "k", "knobs"), TILES, ids=["partial", "shallow", "whole"])
@pytest.mark.parametrize("depth", ["", CDNA4])
def test_large_tiles(
    m: int, n: int, k: int, knobs: dict[str, int], forms: tuple[torch.dtype, torch.dtype], depth: str
) -> None:
    given = operands(m, n, k, forms)
    if depth:
        knobs = {"GEMM_M": knobs["GEMM_M"], "GEMM_N": 64}
    program = written(Scaled(), like(given, 4096), **knobs, **({depth: True} if depth else {}))
    assert "mma_m16n8k32_float8" in program.text
    for place in ON_MATRIX_UNITS:
        near(run(program, Scaled(), given, **place)[0], given)


@settings(max_examples=12, deadline=None)
@given(
    m=st.sampled_from([1, 15, 16, 17, 31, 33, 64, 65]),
    n=st.sampled_from([1, 16, 31, 32, 47, 65]),
    k=st.sampled_from([1, 15, 16, 31, 33, 64, 127, 128, 129, 160]),
    place=st.sampled_from(range(len(EVERYWHERE))),
    wide=st.booleans(),
    tile=st.sampled_from([(16, 32), (32, 32), (64, 64)]),
)
def test_sizes_around_the_borders_of_tiles(
    m: int, n: int, k: int, place: int, wide: bool, tile: tuple[int, int]
) -> None:
    """Sizes are free: one program for all of them, with knobs."""
    start = operands(40, 40, 40, (FN, FN))
    program = written(Scaled(FLOAT), start, **({CDNA4: True} if wide else {}))
    given = operands(m, n, k, (FN, FN))
    knobs = {"GEMM_M": tile[0], "GEMM_N": tile[1]}
    near(run(Program(text=program.text, knobs=knobs), Scaled(FLOAT), given, **EVERYWHERE[place])[0], given)


@pytest.mark.matrix(keep=3)
@pytest.mark.parametrize("forms", [(FN, FN), (FN5, FN), (UZ, UZ)], ids=["same", "mixed", "fnuz"])
@pytest.mark.parametrize("depth", ["", CDNA4])
def test_special_codes(forms: tuple[torch.dtype, torch.dtype], depth: str) -> None:
    """NaN, infinities and -0, alone in a row: what reads e4m3fn as halves changes their codes."""
    given = operands(36, 40, 96, forms)
    a, b = given[:2]
    special = {FN: (0x7F, 0xFF, 0x80), FN5: (0x7E, 0x7C, 0xFC), UZ: (0x80, 0x80, 0x7F)}[forms[0]]
    for row, code in enumerate(special):
        a.view(torch.uint8)[row, 5 * row] = code
    b.view(torch.uint8)[7, 3] = 0x80
    program = written(Scaled(FLOAT), given, **({depth: True} if depth else {}))
    expected = exact(given)[0].relu()
    _, sizes = exact([t.nan_to_num(0, 0, 0) for t in (x.float() for x in given)])
    for place in EVERYWHERE:
        got = run(program, Scaled(FLOAT), given, **place)[0]
        assert torch.equal(got.isnan(), expected.isnan()) and torch.equal(got.isinf(), expected.isinf())
        good = expected.isfinite()
        assert ((got.double() - expected)[good].abs() <= 2.0**-20 * sizes[good]).all()


@pytest.mark.matrix(keep=3)
@pytest.mark.parametrize("split", [1, 4])
@pytest.mark.parametrize("out", [FLOAT, torch.float16, FN], ids=str)
def test_results_scales_and_parts_of_k(out: torch.dtype, split: int) -> None:
    """Scales of whole tensors; every dtype of the result; the sums of several blocks."""
    given = operands(20, 36, 600, (FN, FN), rows=False)[:4]
    given[2].mul_(1e-4)
    model = Scaled(out)
    program = written(model, given, **{"call:_scaled_mm:split": split})
    native = model(*given)
    for place in ON_MATRIX_UNITS:
        got = run(program, model, given, **place)[0]
        assert got.dtype == out
        if out == FN:  # the nearest code, or its neighbour where sums differ in their last bits
            assert (got.float() - native.float()).abs().le(native.float().abs() / 8 + 2.0**-9).all()
            assert (got.view(torch.uint8) != native.view(torch.uint8)).float().mean() < 0.01
        else:
            near(got, given)


Function = Callable[..., torch.Tensor]
GRAPHS: dict[str, tuple[Function, list[tuple[int, ...]], int]] = {
    "converted": (lambda a, b, s, t: (a.to(BRAIN) @ b.to(BRAIN).t()).relu(), [(1,), (1,)], 1),
    "dequantised": (lambda a, b, s, t: ((a.float() * s) @ (b.float() * t).t()).relu(), [(37, 1), (45, 1)], 1),
    "one side": (lambda a, b, s, t: (a.half() * s.half()) @ b.half().t() + t.half(), [(37, 1), (45,)], 1),
    "whole tensors": (lambda a, b, s, t: nn.functional.linear(a.float() * s, t * b.float()), [(), (1,)], 1),
    "turned": (lambda a, b, s, t: torch.einsum("mk,nk->nm", a.float() * s, b.float() * t), [(37, 1), (45, 1)], 1),
    "columns of k": (lambda a, b, s, t: a.float() @ (b.float() * t).t() * s, [(), (45, 1)], 1),
}


@pytest.mark.matrix(keep=3)
@pytest.mark.parametrize("name", GRAPHS)
def test_products_of_a_graph(name: str) -> None:
    """Conversions and factors that do not depend on k are part of the kernel."""
    function, shapes, kernels = GRAPHS[name]
    scales = [torch.rand(s, generator=torch.Generator().manual_seed(3)) / 16 for s in shapes]
    inputs = [(torch.randn(37, 88) * 2).to(FN), (torch.randn(45, 88) * 2).to(FN), *scales]
    model = Of(function)
    program = written(model, inputs)
    assert kernels_in(program.text) == kernels and "float8_product" in program.text
    native = model(*inputs)
    wide = [t.double() for t in inputs]
    a, b, s, t = wide
    made = {
        "converted": lambda: (a @ b.t()).relu(),
        "one side": lambda: (a * s) @ b.t() + t,
        "turned": lambda: ((a * s) @ (b * t).t()).t(),
        "dequantised": lambda: ((a * s) @ (b * t).t()).relu(),
    }.get(name, lambda: (a @ (b * t).t()) * s)()
    for place in ON_MATRIX_UNITS[::2]:
        compare(run(program, model, inputs, **place)[0], made, native)


def test_factors_that_are_not_finite() -> None:
    """0 times infinity is no number, although the sum of the codes may be any."""
    a, b = (torch.randn(37, 88) * 2).to(FN), (torch.randn(45, 88) * 2).to(FN)
    s, t = torch.rand(37, 1) + 0.5, torch.rand(45, 1) + 0.5
    a[3], b[5], a[4] = torch.ones(88).to(FN), torch.ones(88).to(FN), torch.zeros(88).to(FN)
    s[2:5], t[7] = float("inf"), float("nan")
    model = Of(GRAPHS["dequantised"][0])
    program = written(model, [a, b, s, t])
    native = model(a, b, s, t)
    assert native.isinf().any() and native[4].isnan().all()
    for place in ON_MATRIX_UNITS[::2]:
        got = run(program, model, [a, b, s, t], **place)[0]
        assert torch.equal(got.isnan(), native.isnan()) and torch.equal(got.isinf(), native.isinf())


def test_operands_whose_k_is_not_contiguous() -> None:
    inputs = [codes(FN, 3, 40, 36), codes(FN, 3, 40, 70)]
    model = Of(lambda a, b: torch.bmm(a.float().transpose(1, 2), b.float()))
    program = written(model, inputs)
    expected = torch.bmm(inputs[0].double().transpose(1, 2), inputs[1].double())
    for place in ON_MATRIX_UNITS[::2]:
        compare(run(program, model, inputs, **place)[0], expected, model(*inputs))


def test_codes_that_a_graph_makes_are_stored_once() -> None:
    """Dynamic quantisation: the kernel that finds a row's scale writes the codes."""

    def function(x: torch.Tensor, w: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        s = x.abs().amax(-1, keepdim=True).float() / 448
        return torch._scaled_mm((x.float() / s).to(FN), w.t(), s, t, out_dtype=BRAIN)

    inputs = [torch.randn(33, 96).to(BRAIN), codes(FN, 40, 96), torch.rand(1, 40) / 64]
    program = written(Of(function), inputs)
    assert kernels_in(program.text) == 2 and "float8_e4m3fn)" in program.text
    for place in ON_MATRIX_UNITS[::2]:
        native = function(*inputs)
        compare(run(program, Of(function), inputs, **place)[0], native.double(), native)


def test_an_unaligned_operand() -> None:
    given = operands(20, 24, 64, (FN, FN))
    given[0] = codes(FN, 20 * 64 + 1)[1:].view(20, 64)
    program = written(Scaled(), given)
    for place in ON_MATRIX_UNITS[::2]:
        near(run(program, Scaled(), given, **place)[0], given)
