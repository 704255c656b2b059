"""Matrix products: operators, dtypes, layouts and partial tiles; matrix units; the static rule."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from hipwright.engine import explain, space, write
from hipwright.engine.templates.gemm.tiling import DEPTH
from hipwright.program import parse
from hipwright.records import Program
from tests.engine.harness import captured, check, compare, kernels_in, reference, run
from tests.engine.template_builds import program_builds

TARGETS = ("gfx90a", "gfx942", "gfx950", "gfx1100")
HALF, BRAIN = torch.float16, torch.bfloat16


def draw(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed + sum(shape))).to(dtype)


class Of(nn.Module):
    """A function as a module."""

    def __init__(self, fn: Callable[..., Any]) -> None:
        super().__init__()
        self.fn = fn

    def forward(self, *inputs: torch.Tensor) -> Any:
        return self.fn(*inputs)


class Dense(nn.Module):
    """A linear layer and a function of its output."""

    def __init__(self, k: int, n: int, dtype: torch.dtype = torch.float32, then: Callable[..., Any] = F.gelu) -> None:
        super().__init__()
        self.linear = nn.Linear(k, n).to(dtype)
        self.then = then

    def forward(self, x: torch.Tensor, *rest: torch.Tensor) -> Any:
        return self.then(self.linear(x), *rest)


class Quantised(nn.Module):
    """A linear layer of int8 weights with a scale per output."""

    def __init__(self, k: int, n: int, dtype: torch.dtype) -> None:
        super().__init__()
        g = torch.Generator().manual_seed(3)
        self.register_buffer("weight", torch.randint(-127, 128, (n, k), generator=g, dtype=torch.int8))
        self.register_buffer("scale", torch.rand(n, 1, generator=g).to(dtype) / 64)

    def forward(self, x: torch.Tensor) -> Any:
        return F.silu(F.linear(x, self.weight.to(x.dtype) * self.scale))


def chosen(model: nn.Module, inputs: list[torch.Tensor], way: str, **more: Any) -> dict[str, Any]:
    """Choices by which every product of a module is written in one way."""
    options = space(captured(model, inputs))
    calls = {k: way for k, c in options.items() if k.startswith("call:") and way in c.options}
    assert calls, options
    return {**calls, **more}


def run_on_matrix_units(program: Program, model: nn.Module, inputs: list[torch.Tensor]) -> Any:
    """The outputs of the program as CDNA compiles it; the cpu target emulates MFMA instructions."""
    assert "#if GEMM_MFMA" in program.text and "__builtin_amdgcn_mfma" in program.text
    return run(program, model, inputs, wave=64, side="amd")[0]


def verify(model: nn.Module, inputs: list[torch.Tensor], way: str, *, wave: int = 64, **more: Any) -> str:
    return check(model, inputs, choices=chosen(model, inputs, way, **more), wave=wave)


# ---------------------------------------------------------------- tiles

MM = Of(lambda a, b: torch.mm(a, b).relu())


@pytest.mark.parametrize("dtype", [torch.float32, HALF, BRAIN])
@pytest.mark.parametrize(("m", "n", "k"), [(33, 65, 17), (64, 32, 64), (1, 1, 1), (130, 7, 40)])
@pytest.mark.matrix(keep=3)
def test_sizes_and_dtypes(m: int, n: int, k: int, dtype: torch.dtype) -> None:
    verify(MM, [draw(m, k, dtype=dtype), draw(k, n, dtype=dtype)], "gemm")


@pytest.mark.parametrize("forms", ["nn", "nt", "tn", "tt"])
def test_transposed_operands_are_read_in_place(forms: str) -> None:
    a, b = (draw(40, 36), draw(36, 44))
    model = Of(lambda a, b: (a.t() if forms[0] == "t" else a) @ (b.t() if forms[1] == "t" else b))
    inputs = [a.t().contiguous() if forms[0] == "t" else a, b.t().contiguous() if forms[1] == "t" else b]
    text = verify(model, inputs, "gemm")
    assert kernels_in(text) == 1
    assert ".t()" not in text


@pytest.mark.parametrize("knobs", [{"GEMM_M": 64, "GEMM_K": 16}, {"GEMM_M": 32, "GEMM_N": 64, "GEMM_K": 32}])
def test_knobs(knobs: dict[str, int]) -> None:
    verify(MM, [draw(70, 50), draw(50, 132)], "gemm", wave=32, **knobs)


def test_large_tiles() -> None:
    model, inputs = MM, [torch.empty(2048, 40), torch.empty(40, 2048)]
    program = write(captured(model, inputs), {"call:mm": "gemm"})
    assert parse(program.text).knobs["GEMM_M"].choices == (32, 64, 128)
    small = [draw(150, 40), draw(40, 130)]
    for knobs in ({}, {"GEMM_K": 8, "GEMM_N": 32}):
        got, _ = run(Program(text=program.text, knobs=knobs), model, small)
        compare(got, *reference(model, small)[:2])


def test_residual_and_bias_are_fused_as_epilogue() -> None:
    model = Dense(36, 20, then=lambda y, r: F.silu(y) * r + 1)
    text = verify(model, [draw(2, 9, 36), draw(2, 9, 20)], "gemm")
    assert kernels_in(text) == 1
    assert "store_wide" in text


def test_a_prologue_is_fused() -> None:
    model = Of(lambda a, s, b: ((a * s[:, None]).relu() @ b.to(a.dtype)).tanh())
    text = verify(model, [draw(34, 24), draw(34), draw(24, 40, dtype=HALF)], "gemm")
    assert kernels_in(text) == 1


PRODUCTS: dict[str, tuple[Callable[..., Any], list[tuple[int, ...]]]] = {
    "bmm": (torch.bmm, [(3, 17, 12), (3, 12, 20)]),
    "broadcast": (torch.matmul, [(2, 1, 9, 12), (4, 12, 10)]),
    "one matrix": (torch.matmul, [(2, 3, 9, 12), (12, 10)]),
    "one matrix before": (torch.matmul, [(9, 12), (4, 12, 10)]),
    "heads": (
        lambda x, y: x.view(2, 9, 4, 8).transpose(1, 2) @ y.view(2, 7, 4, 8).permute(0, 2, 3, 1),
        [(2, 9, 32), (2, 7, 32)],
    ),
    "addmm": (lambda c, a, b: torch.addmm(c, a, b, beta=0.5, alpha=2).relu(), [(10,), (9, 12), (12, 10)]),
    "baddbmm": (lambda c, a, b: torch.baddbmm(c, a, b, beta=0, alpha=0.25), [(3, 9, 10), (3, 9, 12), (3, 12, 10)]),
    "einsum": (lambda a, b: torch.einsum("bqhd,bkhd->bhqk", a, b), [(2, 9, 3, 8), (2, 7, 3, 8)]),
    "einsum that turns": (lambda a, b: torch.einsum("bik,bjk->jbi", a, b).relu(), [(2, 9, 8), (2, 7, 8)]),
    "experts": (lambda x, w: torch.einsum("ged,gdf->gef", x, w).relu(), [(4, 11, 24), (4, 24, 18)]),
    "view": (lambda a, b: (a.reshape(6, 10, 4).flatten(1) @ b)[:, 1:], [(30, 8), (40, 10)]),
}


@pytest.mark.matrix(keep=6)
@pytest.mark.parametrize("name", PRODUCTS)
def test_operators(name: str) -> None:
    fn, shapes = PRODUCTS[name]
    verify(Of(fn), [draw(*s, seed=k) for k, s in enumerate(shapes)], "gemm")


def test_other_sizes_than_captured() -> None:
    model, first = Dense(40, 24), [draw(4, 9, 40)]
    check(model, first, choices=chosen(model, first, "gemm"), other=[draw(2, 50, 40)])
    check(model, first, choices=chosen(Dense(40, 24), [draw(2, 3, 40)], "gemv"), other=[draw(1, 1, 40)])


def test_a_product_over_nothing_is_zero() -> None:
    verify(Of(lambda a, b: a @ b + 1), [draw(5, 0), draw(0, 6)], "gemm")


# ---------------------------------------------------------------- the matrix units


@pytest.mark.matrix(keep=3)
@pytest.mark.parametrize("dtype", [torch.float32, HALF, BRAIN])
@pytest.mark.parametrize("tile", [32, 64])
def test_matrix_units(dtype: torch.dtype, tile: int) -> None:
    model = Of(lambda a, b, r: F.gelu(a @ b.transpose(-1, -2)) + r)
    inputs = [draw(2, 45, 38, dtype=dtype), draw(2, 67, 38, dtype=dtype), draw(67, dtype=dtype)]
    program = write(captured(model, inputs), chosen(model, inputs, "gemm", GEMM_M=tile))
    compare(run_on_matrix_units(program, model, inputs), *reference(model, inputs)[:2])


# ---------------------------------------------------------------- few rows


@pytest.mark.parametrize("dtype", [torch.float32, HALF, BRAIN])
@pytest.mark.parametrize(("m", "k", "n"), [(1, 264, 33), (3, 131, 20), (8, 64, 16), (19, 72, 40)])
@pytest.mark.matrix(keep=3)
def test_gemv_along_k(m: int, k: int, n: int, dtype: torch.dtype) -> None:
    text = verify(Dense(k, n, dtype), [draw(m, k, dtype=dtype)], "gemv")
    assert "lane_reduce<32>" in text


@pytest.mark.parametrize("split", [1, 4])
@pytest.mark.parametrize(("m", "k", "n"), [(1, 100, 64), (5, 37, 41)])
def test_gemv_across_rows(m: int, k: int, n: int, split: int) -> None:
    inputs = [draw(m, k), draw(k, n)]
    text = verify(MM, inputs, "gemv", **{"call:mm:split": split})
    assert kernels_in(text) == (2 if split > 1 else 1)


def test_few_columns_too() -> None:
    verify(MM, [draw(70, 96), draw(96, 2)], "gemv", wave=32)
    verify(Of(lambda a, v: torch.mv(a, v).exp()), [draw(70, 96) / 10, draw(96)], "gemv")
    verify(Of(lambda a, v: torch.dot(a, v)), [draw(5000), draw(5000, seed=1)], "gemv", **{"call:dot:split": 4})


def test_batches_of_vectors() -> None:
    verify(
        Of(lambda q, k: (q[:, :, None] @ k.transpose(-1, -2)).sigmoid()), [draw(2, 3, 32), draw(2, 3, 50, 32)], "gemv"
    )
    verify(Of(lambda p, v: p[:, :, None] @ v), [draw(2, 3, 50), draw(2, 3, 50, 32)], "gemv")


def test_experts_are_gathered_in_place() -> None:
    model = Of(lambda x, w, which: torch.einsum("bk,bkn->bn", x, w[which]).relu())
    text = verify(model, [draw(5, 24), draw(3, 24, 40), torch.tensor([2, 0, 0, 1, 2])], "gemv")
    assert kernels_in(text) == 1
    assert "load_aligned" in text
    model = Of(lambda x, w, which: torch.bmm(x, w[which]).relu())
    text = verify(model, [draw(5, 9, 24), draw(3, 24, 40), torch.tensor([2, 0, 0, 1, 2])], "gemm")
    assert kernels_in(text) == 1
    assert "load_aligned" in text


def test_unaligned_operands_are_read_by_elements() -> None:
    model = Dense(64, 24)
    x = draw(2 * 64 + 1)[1:].view(2, 64)
    assert x.data_ptr() % 16
    verify(model, [x], "gemv")
    verify(model, [x], "gemm")


@pytest.mark.parametrize("dtype", [torch.float32, HALF])
@pytest.mark.parametrize("way", ["gemv", "gemm"])
def test_int8_weights_are_scaled_in_the_prologue(dtype: torch.dtype, way: str) -> None:
    text = verify(Quantised(80, 24, dtype), [draw(2, 80, dtype=dtype)], way)
    assert kernels_in(text) == 1


@pytest.mark.parametrize(
    "knobs", [{"GEMV_ROWS": 4, "GEMV_WAVES": 8}, {"GEMV_ROWS": 1, "GEMV_WAVES": 1, "GEMV_BLOCK": 512}]
)
def test_gemv_knobs(knobs: dict[str, int]) -> None:
    verify(Dense(300, 37), [draw(2, 300)], "gemv", **knobs)


# ---------------------------------------------------------------- the default


@pytest.mark.parametrize(
    ("model", "inputs", "default"),
    [
        (Dense(4096, 4096, HALF), [torch.empty(1, 4096, dtype=HALF)], "gemv"),
        (Quantised(1024, 1024, HALF), [torch.empty(4, 1024, dtype=HALF)], "gemv"),
        (Dense(1024, 1024), [torch.empty(4096, 1024)], "library"),
        (Dense(1024, 1024, HALF), [torch.empty(2048, 1024, dtype=HALF)], "library"),
        (Dense(8, 4096), [torch.empty(8192, 8)], "gemm"),
        (Dense(512, 10), [torch.empty(64, 512)], "gemv"),
        (Of(lambda a, b: (a @ b).tanh()), [torch.empty(4096, 32, 32), torch.empty(4096, 32, 32)], "gemm"),
    ],
)
def test_the_static_rule(model: nn.Module, inputs: list[torch.Tensor], default: str) -> None:
    graph = captured(model, inputs)
    (choice,) = (c for k, c in space(graph).items() if k.startswith("call:") and k.count(":") == 1)
    assert choice.default == default
    assert bool(explain(graph)["library"]) == (default == "library")


def test_doubles_and_integers_stay_with_the_library() -> None:
    graph = captured(MM, [draw(4, 4).double(), draw(4, 4).double()])
    assert explain(graph)["library"]


# ---------------------------------------------------------------- compilers

BUILT: list[tuple[str, nn.Module, list[torch.Tensor]]] = [
    ("gemm", Dense(512, 512), [torch.empty(2048, 512)]),
    ("gemm", Dense(512, 512, HALF), [torch.empty(2048, 512, dtype=HALF)]),
    ("gemm", Dense(512, 500, BRAIN), [torch.empty(2, 1024, 512, dtype=BRAIN)]),
    ("gemm", Of(torch.bmm), [torch.empty(512, 31, 33), torch.empty(512, 33, 30)]),
    ("gemm", Quantised(512, 512, HALF), [torch.empty(64, 512, dtype=HALF)]),
    ("gemv", Dense(4096, 4096, HALF), [torch.empty(1, 4096, dtype=HALF)]),
    ("gemv", Dense(4096, 40000, BRAIN), [torch.empty(8, 4096, dtype=BRAIN)]),
    ("gemv", Dense(1000, 1001), [torch.empty(8, 1000)]),
    ("gemv", Quantised(4096, 4096, HALF), [torch.empty(8, 4096, dtype=HALF)]),
    ("gemv", MM, [torch.empty(8, 4096, dtype=HALF), torch.empty(4096, 1024, dtype=HALF)]),
]


@pytest.mark.parametrize(("way", "model", "inputs"), BUILT)
@pytest.mark.matrix(keep=3)
def test_builds(way: str, model: nn.Module, inputs: list[torch.Tensor]) -> None:
    """For AMD without scratch and with room for two blocks a unit (one where tiles are twice as deep, since a large GPU
    has no two), and the same source by NVRTC.
    """
    program = write(captured(model, inputs), chosen(model, inputs, way))
    depth = parse(program.text).defines(program.knobs).get("GEMM_K", 0)
    deep = depth > DEPTH[str(inputs[0].dtype).removeprefix("torch.")]
    build = program_builds(program, lambda target: 4 if target == "gfx1100" else 1 if deep else 2)
    assert all(k.scratch_bytes == 0 for k in build.kernels), build.kernels
