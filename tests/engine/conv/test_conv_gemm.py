"""Convolutions as implicit products: values over shapes, phases and dtypes; matrix units; the default; builds."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from hipwright.engine import explain, space, write
from tests.engine.conv.test_conv_templates import Then, draw
from tests.engine.gemm.test_gemm import run_on_matrix_units
from tests.engine.harness import captured, check, compare, kernels_in, reference
from tests.engine.template_builds import program_builds

HALF, BRAIN = torch.float16, torch.bfloat16


def normal(model: nn.Module, dtype: torch.dtype = torch.float32) -> nn.Module:
    """Weights large enough that a wrong one shows."""
    torch.manual_seed(1)
    for parameter in model.parameters():
        nn.init.normal_(parameter)
    return model.to(dtype)


def chosen(model: nn.Module, x: torch.Tensor, **more: Any) -> dict[str, Any]:
    """Choices by which every convolution is an implicit product."""
    calls = {k: "implicit" for k, c in space(captured(model, [x])).items() if "implicit" in c.options}
    assert calls
    return {**calls, **more}


def verify(
    model: nn.Module, x: torch.Tensor, *, kernels: int = 1, knobs: dict[str, int] | None = None, **kw: Any
) -> str:
    model = normal(model, x.dtype)
    text = check(model, [x], choices=chosen(model, x, **(knobs or {})), **kw)
    assert kernels_in(text) == kernels, text
    assert "struct " in text and "WindowTap tap_table[" in text
    return text


PLAIN = [
    (nn.Conv2d(4, 40, 3, padding=1), (2, 4, 9, 12)),
    (nn.Conv2d(3, 5, 3), (2, 3, 7, 9)),
    (nn.Conv2d(6, 8, (5, 3), stride=(2, 1), padding=(4, 2), dilation=2, bias=False), (1, 6, 11, 10)),
    (nn.Conv2d(8, 12, 1, stride=2), (3, 8, 9, 8)),
    (nn.Conv2d(6, 66, 3, padding=(1, 0), groups=2), (2, 6, 8, 7)),
    (nn.Conv2d(4, 4, 3, padding=1, groups=4), (2, 4, 6, 7)),
    (nn.Conv2d(2, 3, (4, 1), padding="same"), (1, 2, 9, 9)),
    (nn.Conv2d(3, 4, 3, padding=1), (3, 8, 8)),
    (nn.Conv2d(2, 4, 3, padding=2), (2, 2, 1, 5)),
    (nn.Conv1d(5, 33, 9, stride=4, padding=3), (3, 5, 70)),
    (nn.Conv1d(3, 4, 5), (67, 3, 5)),
    (nn.Conv3d(3, 8, (3, 5, 2), padding=(1, 2, 0), stride=(2, 1, 1)), (2, 3, 5, 6, 8)),
    (nn.Conv3d(4, 6, 3, padding=1, dilation=(1, 2, 1), groups=2), (1, 4, 4, 7, 8)),
]
TRANSPOSED = [
    (nn.ConvTranspose2d(4, 6, 3, stride=2, padding=1, output_padding=1), (2, 4, 7, 8)),
    (nn.ConvTranspose2d(4, 36, 4, stride=2, padding=1, groups=2), (2, 4, 5, 6)),
    (nn.ConvTranspose2d(3, 2, 5, stride=3, padding=2, dilation=2), (1, 3, 5, 6)),
    (nn.ConvTranspose2d(3, 4, 3, stride=2, dilation=2, bias=False), (1, 3, 5, 4)),
    (nn.ConvTranspose2d(4, 4, 2, stride=3, output_padding=1), (1, 4, 4, 4)),
    (nn.ConvTranspose2d(3, 4, 3, padding=1), (1, 3, 6, 7)),
    (nn.ConvTranspose1d(3, 4, 7, stride=2, padding=3, output_padding=1), (2, 3, 19)),
    (nn.ConvTranspose3d(2, 4, (3, 5, 3), stride=(2, 1, 2), padding=(1, 2, 1)), (1, 2, 3, 5, 6)),
]


@pytest.mark.parametrize(("layer", "shape"), [*PLAIN, *TRANSPOSED])
@pytest.mark.matrix(keep=3)
def test_values(layer: nn.Module, shape: tuple[int, ...]) -> None:
    verify(Then(layer), draw(*shape), wave=32)


@pytest.mark.parametrize("dtype", [HALF, BRAIN])
@pytest.mark.parametrize(("layer", "shape"), [PLAIN[0], TRANSPOSED[0]])
@pytest.mark.matrix(keep=2)
def test_dtypes(layer: nn.Module, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    verify(Then(layer), draw(*shape, dtype=dtype))


@pytest.mark.parametrize("dtype", [torch.float32, HALF, BRAIN])
@pytest.mark.parametrize(("layer", "shape"), [PLAIN[4], TRANSPOSED[1], TRANSPOSED[7]])
@pytest.mark.matrix(keep=3)
def test_matrix_units(layer: nn.Module, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    model, x = normal(Then(layer), dtype), draw(*shape, dtype=dtype)
    program = write(captured(model, [x]), chosen(model, x))
    compare(run_on_matrix_units(program, model, [x]), *reference(model, [x])[:2])


@pytest.mark.parametrize("knobs", [{"GEMM_M": 64, "GEMM_K": 16}, {"GEMM_M": 32, "GEMM_N": 64, "GEMM_K": 32}])
@pytest.mark.parametrize(("layer", "shape"), [PLAIN[9], TRANSPOSED[2]])
@pytest.mark.matrix(keep=2)
def test_knobs(layer: nn.Module, shape: tuple[int, ...], knobs: dict[str, int]) -> None:
    verify(Then(layer), draw(*shape), knobs=knobs)


class Block(nn.Module):
    """A residual of the layer's own input, after a prologue."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Conv2d(8, 8, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.silu(self.layer(torch.relu(x)) + x) * 2


def test_prologue_epilogue_and_other_shapes() -> None:
    text = verify(Block(), draw(2, 8, 8, 8), other=[draw(3, 8, 5, 7)])
    assert "relu(x" in text
    assert "store_wide" in text
    verify(Then(TRANSPOSED[0][0]), draw(2, 4, 5, 5), other=[draw(1, 4, 3, 8)])


def test_an_image_in_another_order_is_read_in_place_without_division() -> None:
    before = [lambda x: x.permute(0, 3, 1, 2), lambda x: x * torch.arange(6.0)]
    for fn, shape in zip(before, [(2, 7, 6, 4), (2, 4, 7, 6)], strict=True):
        text = verify(Then(nn.Conv2d(4, 8, 3, padding=1), before=fn), draw(*shape))
        loop = text[text.index("for (int step = -1") : text.index("if (step >= 0)")]
        gather = loop[loop.index("const WindowTap tap") :]
        assert "next_b[v] =" in gather
        assert "/" not in gather and "%" not in gather, gather


def test_infinities_stay_in_their_windows() -> None:
    x = draw(1, 4, 8, 9)
    x[0, 1, 2, 3], x[0, 2, 7, 8], x[0, 0, 0, 0] = torch.inf, torch.nan, -torch.inf
    verify(Then(nn.Conv2d(4, 8, 3, padding=1)), x)


def test_no_offer_for_large_windows_and_doubles() -> None:
    for layer, x in ((nn.Conv1d(2, 2, 344), draw(1, 2, 400)), (nn.Conv1d(2, 2, 3), draw(1, 2, 9, dtype=torch.float64))):
        options = space(captured(Then(layer.to(x.dtype)), [x]))
        assert not any("implicit" in c.options for c in options.values())


# ---------------------------------------------------------------- the default

DEFAULTS = [
    (nn.Conv3d(32, 64, (3, 5, 7)), (2, 32, 16, 32, 32), "implicit"),
    (nn.Conv3d(16, 32, 3, padding=1), (4, 16, 32, 64, 64), "stencil"),
    (nn.Conv3d(16, 128, 3, padding=1), (4, 16, 32, 64, 64), "library"),
    (nn.Conv1d(32, 32, 1), (16, 32, 16384), "library"),
    (nn.Conv3d(16, 32, 3, padding=1, dtype=HALF), (4, 16, 32, 64, 64), "library"),
    (nn.Conv1d(32, 32, 31, padding=15), (16, 32, 16384), "stencil"),
    (nn.Conv1d(64, 64, 31, padding=15), (16, 64, 16384), "library"),
    (nn.Conv3d(64, 64, 3, padding=1), (4, 64, 16, 32, 32), "library"),
    (nn.Conv3d(32, 64, (3, 5, 7), dtype=HALF), (2, 32, 16, 32, 32), "library"),
    (nn.Conv3d(32, 8, (3, 5, 7)), (2, 32, 16, 32, 32), "library"),
    (nn.Conv3d(32, 64, (3, 5, 7)), (1, 32, 4, 8, 8), "library"),
    (nn.Conv2d(32, 48, (5, 3), padding=(4, 2), dilation=2), (16, 32, 96, 96), "library"),
    (nn.Conv2d(64, 64, 3, padding=2, dilation=2), (16, 64, 56, 56), "library"),
    (nn.Conv2d(64, 64, (1, 7), padding=(0, 3)), (16, 64, 56, 56), "library"),
    (nn.ConvTranspose3d(32, 16, 3, stride=2, padding=1, output_padding=1), (4, 32, 16, 32, 32), "stencil"),
    (nn.ConvTranspose3d(32, 32, (3, 5, 7), stride=2), (4, 32, 8, 16, 16), "implicit"),
    (nn.ConvTranspose2d(64, 64, 4, stride=2, padding=1), (16, 64, 32, 32), "library"),
    (nn.ConvTranspose2d(64, 64, 5, stride=2, padding=2), (16, 64, 32, 32), "implicit"),
]


@pytest.mark.parametrize(("layer", "shape", "default"), DEFAULTS)
def test_default_rule(layer: nn.Module, shape: tuple[int, ...], default: str) -> None:
    graph = captured(Then(layer, None), [torch.empty(shape, dtype=layer.weight.dtype)])
    (choice,) = [c for k, c in space(graph).items() if k.startswith("call:") and k.count(":") == 1]
    assert choice.default == default
    assert bool(explain(graph)["library"]) == (default == "library")


def test_the_rule_counts_the_epilogue() -> None:
    layer = nn.Conv2d(32, 48, (5, 3), padding=(4, 2), dilation=2)
    graph = captured(Then(layer), [torch.empty(16, 32, 96, 96)])
    assert not explain(graph)["library"]


# ---------------------------------------------------------------- compilers

BIG = [
    (nn.Conv2d(32, 48, (5, 3), padding=(4, 2), dilation=2), (16, 32, 96, 96)),
    (nn.Conv2d(64, 128, 3, padding=1, stride=2, dtype=HALF), (32, 64, 56, 56)),
    (nn.ConvTranspose3d(32, 64, 3, stride=2, padding=1, output_padding=1), (4, 32, 16, 32, 32)),
    (nn.Conv3d(32, 256, 7), (1, 32, 16, 30, 30)),
    (nn.ConvTranspose3d(32, 128, 7, stride=2, dtype=BRAIN), (2, 32, 12, 30, 30)),
    (nn.Conv1d(32, 32, 31, padding=15), (16, 32, 4096)),
]


@pytest.mark.parametrize(("layer", "shape"), BIG)
@pytest.mark.matrix(keep=3)
def test_builds(layer: nn.Module, shape: tuple[int, ...]) -> None:
    """At default knobs for AMD with no scratch, and the same source by NVRTC."""
    model, x = Then(layer), torch.empty(shape, dtype=layer.weight.dtype)
    program = write(captured(model, [x]), chosen(model, x))
    build = program_builds(program, lambda target: 4 if target == "gfx1100" else 1)
    assert all(k.scratch_bytes == 0 for k in build.kernels), build.kernels
