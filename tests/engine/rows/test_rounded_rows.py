"""Differences of products and a statistic of them: both are rounded, so the largest element's exponential is 1."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from hipwright.engine import space, write
from hipwright.llm.compact import expand, shorten
from hipwright.program import parse
from hipwright.toolchain import device_headers
from hipwright.toolchain.amd import offline as amdgpu
from hipwright.toolchain.nvidia import nvrtc
from tests import warm
from tests.engine.harness import CACHE, Op, captured, run

Function = Callable[..., torch.Tensor]


def shifted(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(7)) + 30


def outliers(*shape: int) -> torch.Tensor:
    x = torch.randn(*shape, generator=torch.Generator().manual_seed(8))
    x[:, ::7] *= 30
    return x


def _product_softmax(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return (x * y).softmax(-1)


def _activated_softmax(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return F.hardswish(x * x).softmax(-1)


def _log_softmax(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return (x * y).log_softmax(-1)


def _cross_entropy(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(x * y, (x * y).argmax(-1), reduction="none")


def _norm(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return F.layer_norm(x * y, x.shape[-1:])


def _centred(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    z = x * y
    return z - z.amax(-1, keepdim=True)


def _negated(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    z = x * y
    return (-z.amax(-1, keepdim=True)) + z


def _before(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    z = x * y
    return (z.cumsum(-1) - z)[:, :1]


LAYOUTS: list[tuple[str, str]] = [("block", "registers"), ("block", "again"), ("lanes", "again"), ("columns", "again")]


def got(function: Function, inputs: list[torch.Tensor], chosen: dict[str, Any] | None = None) -> tuple[Any, str]:
    """(outputs of the engine's program on the cpu target, its text)."""
    model = Op(function)
    program = write(captured(model, inputs), chosen or {})
    return run(program, model, inputs)[0], program.text


def drawn(function: Function, inputs: list[torch.Tensor], mapping: str, cache: str) -> dict[str, Any]:
    """The choices of one layout."""
    keys = space(captured(Op(function), inputs))
    mine = {"map": mapping, "row_cache": cache, "cooperative": False}
    return {k: mine[k.partition(":")[0]] for k in keys if k.partition(":")[0] in mine}


@pytest.mark.matrix(keep=3)
@pytest.mark.parametrize(("mapping", "cache"), LAYOUTS)
@pytest.mark.parametrize(("function", "make"), [(_product_softmax, shifted), (_activated_softmax, outliers)])
def test_softmax(function: Function, make: Callable[..., torch.Tensor], mapping: str, cache: str) -> None:
    """Rounding as PyTorch does gives results as close to the softmax of the rounded values."""
    x, y = make(5, 70), make(5, 70).flip(0)
    out, text = got(function, [x, y], drawn(function, [x, y], mapping, cache))
    values = x * y if function is _product_softmax else F.hardswish(x * x)
    assert torch.allclose(out.double(), values.double().softmax(-1), rtol=2e-6, atol=1e-9), text


@pytest.mark.matrix(keep=3)
@pytest.mark.parametrize("function", [_norm, _centred, _negated])
@pytest.mark.parametrize("rows", [1, 9])
def test_a_single_column_is_its_own_statistic(function: Function, rows: int) -> None:
    x, y = shifted(rows, 1), shifted(rows, 1).flip(0)
    out, text = got(function, [x, y])
    assert (out == 0).all(), text


@pytest.mark.matrix(keep=3)
@pytest.mark.parametrize(("mapping", "cache"), LAYOUTS)
@pytest.mark.parametrize("function", [_norm, _centred, _negated])
def test_equal_products(function: Function, mapping: str, cache: str) -> None:
    x, y = shifted(6, 1).repeat(1, 64), shifted(6, 1).flip(0).repeat(1, 64)
    out, text = got(function, [x, y], drawn(function, [x, y], mapping, cache))
    assert (out == 0).all(), text


def test_the_loss_of_the_only_large_logit_is_zero() -> None:
    x = torch.cat([shifted(40, 1), shifted(40, 1).flip(0) / 2], 1)
    for function in (_log_softmax, _cross_entropy):
        out, text = got(function, [x, x])
        assert (out.amax(-1) == 0).all() if function is _log_softmax else (out == 0).all(), text


def test_an_exclusive_sum_begins_with_zero() -> None:
    x = shifted(9, 33)
    out, text = got(_before, [x, x.flip(0)])
    assert (out == 0).all(), text


def test_plain_operands_are_subtracted_in_place() -> None:
    x = shifted(9, 300)
    for function in (lambda x: x.softmax(-1), lambda x: F.layer_norm(x, x.shape[-1:]), lambda x: x - x.mean(-1, True)):
        text = write(captured(Op(function), [x])).text
        assert "sub_rn(" not in text


def test_the_short_form_restores_the_helpers() -> None:
    x = shifted(9, 300)
    for function in (_product_softmax, _norm):
        text = write(captured(Op(function), [x, x])).text
        short = shorten(text)
        assert (
            "__fsub_rn" not in short
            and "add_products_to_moments(Moments" not in short
            and "add_products_to_softmax(S" not in short
        )
        back = expand(short)
        assert {"arithmetic", "moments" if function is _norm else "softmax"} <= set(device_headers.included(back))


def _activated(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    z = F.hardswish(x)
    return z - z.amax(-1, keepdim=True)


def assembly(function: Function, inputs: list[torch.Tensor], chosen: dict[str, Any]) -> tuple[str, str]:
    """The engine's program compiled: (gfx942's assembly, sm_90's PTX)."""
    program = write(captured(Op(function), inputs), chosen)
    parsed = parse(program.text)
    defines = parsed.defines(program.knobs)
    build = amdgpu.build(parsed.hip, "gfx942", defines, cache=CACHE, unsafe=True)
    assert build.ok, build.log
    knobs = "".join(f"#define {name} {value}\n" for name, value in sorted(defines.items()))
    done, log, ptx = nvrtc.listing(parsed.hip, knobs, "sm_90", warm.compilers())
    assert done, log
    return CACHE.path(build.isa_blob).read_text(), ptx


@pytest.mark.parametrize(("mapping", "cache"), LAYOUTS)
@pytest.mark.parametrize("function", [_centred, _negated, _activated])
@pytest.mark.matrix(keep=3)
def test_no_target_contracts(function: Function, mapping: str, cache: str) -> None:
    """These compute products and differences alone: none is contracted, and ptxas may contract none (.rn)."""
    inputs = [shifted(9, 300), shifted(9, 300)]
    amd, nvidia = assembly(function, inputs, drawn(function, inputs, mapping, cache))
    assert re.search(r"\bv_(pk_)?mul_f32", amd) and re.search(r"\bmul\.(rn\.)?f32", nvidia)
    assert not re.search(r"\bv_(pk_)?(fma|fmac|mad|mac)\w*_f32", amd)
    assert not re.search(r"\b(fma\.rn|sub)\.f32", nvidia) and re.search(r"\bsub\.rn\.f32", nvidia)


def _determinants(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x[:, 0] * x[:, 3] - x[:, 1] * x[:, 2]


def _added(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return -(x[:, 1] * x[:, 2]) + x[:, 0] * x[:, 3]


@pytest.mark.parametrize("function", [_determinants, _added])
def test_the_determinant_of_a_singular_matrix_is_0(function: Function) -> None:
    """One product that is contracted into the difference leaves the other's rounding error."""
    draw = torch.Generator().manual_seed(9)
    rows = torch.randn(64, 2, generator=draw)
    singular = torch.cat([rows, rows * 2.0 ** torch.randint(-3, 3, (64, 1), generator=draw)], 1)[:, [0, 1, 2, 3]]
    found, text = got(function, [singular, singular])
    assert (torch.as_tensor(found) == 0).all() and "sub_rn(" in text


def _variances(x: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    """Of the rows of each group, as torch_geometric has it."""
    sums, squares = (x.new_zeros(8, x.shape[1]).index_add(0, places, one) for one in (x, x * x))
    counts = x.new_zeros(8).index_add(0, places, torch.ones_like(x[:, 0])).clamp(min=1)[:, None]
    mean = sums / counts
    return squares / counts - mean * mean


def _of_means(mean: torch.Tensor, squares: torch.Tensor) -> torch.Tensor:
    return -mean.square() + squares


def test_the_variance_of_one_element_is_0() -> None:
    """A square that is contracted into the difference leaves the rounding error of the other."""
    x = shifted(8, 16)
    for function, other in ((_variances, torch.arange(8).flip(0)), (_of_means, x * x)):
        found, text = got(function, [x, other])
        assert (torch.as_tensor(found) == 0).all() and "sub_rn(" in text


@pytest.mark.parametrize("eps", [1e-8, 0.0])
def test_a_cosine_lies_between_minus_1_and_1(eps: float) -> None:
    draw = torch.Generator().manual_seed(10)
    for width in (1, 3, 40):
        x = torch.randn(65, width, generator=draw)
        scaled = x * torch.randn(65, 1, generator=draw)
        found, _ = got(lambda a, b: F.cosine_similarity(a, b, dim=-1, eps=eps), [x, scaled])
        cosines = torch.as_tensor(found)
        assert (cosines.abs() <= 1).all() and cosines.acos().isfinite().all()
        if width == 1 and eps:
            assert (cosines.abs() == 1).all()
