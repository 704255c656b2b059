"""The product of 8-bit floats as a choice: what it is offered for, its defaults, and the code that compilers make."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from hipwright.engine import author, space
from hipwright.engine.knobs import CDNA4, FLOAT8_UNITS
from hipwright.program import parse
from hipwright.toolchain.amd import offline
from hipwright.toolchain.nvidia import nvrtc
from tests import warm
from tests.engine.gemm.test_float8_product import BRAIN, FN, FN5, UZ, Function, Scaled, codes, like, operands, written
from tests.engine.gemm.test_gemm import Of
from tests.engine.harness import CACHE, captured
from tests.engine.rows.test_half_type_rows import twin
from tests.engine.template_builds import program_builds

# ---------------------------------------------------------------- what is offered


def options_of(model: nn.Module, given: list[Any], **choices: Any) -> tuple[tuple[Any, ...], Any]:
    """The ways of the one product, and the default."""
    graph = captured(model, given)
    made = author(graph, choices)
    ((_, choice),) = ((k, c) for k, c in made.space.items() if k.startswith("call:") and k.count(":") == 1)
    assert bool(made.explanation["library"]) == (choice.default == "library")
    return choice.options, choice.default


def large(forms: tuple[torch.dtype, torch.dtype], m: int = 64) -> list[Any]:
    return like(operands(40, 40, 4096, forms), 4096)[:4] if m == 4096 else operands(m, 4096, 4096, forms)[:4]


@pytest.mark.parametrize(
    ("forms", "units", "default"),
    [
        ((FN, FN), "", "library"),  # NVIDIA's, the processor's, and mixed runs
        ((FN, FN), "gfx950", "library"),
        ((UZ, UZ), "gfx942", "library"),
        ((FN, FN), "gfx942", "float8"),  # the library has no such kernel
        ((FN, FN5), "gfx942,gfx950", "float8"),
        ((UZ, UZ), "gfx950", "float8"),
    ],
)
def test_the_default_of_scaled_products(forms: tuple[torch.dtype, torch.dtype], units: str, default: str) -> None:
    options, found = options_of(Scaled(), large(forms), **({FLOAT8_UNITS: units} if units else {}))
    assert set(options) >= {"library", "float8", "gemm"} and found == default


@pytest.mark.parametrize(("m", "units", "default"), [(64, "gfx942", "float8"), (4096, "gfx942", "library")])
def test_the_default_of_converted_products(m: int, units: str, default: str) -> None:
    """The library needs both operands as a wider type first, which costs less the larger the product is."""
    model = Of(lambda a, b: a.to(BRAIN) @ b.to(BRAIN).t())
    assert options_of(model, large((FN, FN), m)[:2], **{FLOAT8_UNITS: units})[1] == default
    assert options_of(model, large((FN, FN), m)[:2])[1] != "float8"


def test_few_vectors_stay_with_the_vector_template() -> None:
    model = Of(lambda a, b: a.to(BRAIN) @ b.to(BRAIN).t())
    assert options_of(model, large((FN, FN), 4)[:2], **{FLOAT8_UNITS: "gfx942"})[1] == "gemv"


@pytest.mark.parametrize(
    "function",
    [
        lambda a, b, s: torch._scaled_mm(a, b.t(), s[0, 0], s[0, 0], scale_result=s[0, 0], out_dtype=FN),
        lambda a, b, s: (a.float() * s[:1]) @ b.float().t(),  # a factor for each k
        lambda a, b, s: s @ b.float().t(),  # one operand of 8 bits
        lambda a, b, s: (a.float() + 1) @ b.float().t(),
    ],
    ids=["scale of the result", "scales along k", "one side", "a sum"],
)
def test_other_products_are_not_offered(function: Function) -> None:
    inputs = [codes(FN, 32, 64), codes(FN, 48, 64), torch.rand(32, 64)]
    assert not any("float8" in c.options for c in space(captured(Of(function), inputs)).values())


# ---------------------------------------------------------------- compilers

INSTRUCTIONS = {
    ("gfx90a", "fn"): "v_mfma_f32_16x16x16bf16_1k",
    ("gfx942", "fn"): "v_mfma_f32_16x16x32_fp8_fp8",  # as halves
    ("gfx950", "fn"): "v_mfma_f32_16x16x32_fp8_fp8",
    ("gfx942", "fn, fn5"): "v_mfma_f32_16x16x16_bf16",
    ("gfx950", "fn, fn5"): "v_mfma_f32_16x16x32_fp8_bf8",
    ("gfx942", "uz"): "v_mfma_f32_16x16x32_fp8_fp8",
    ("gfx950", "uz"): "v_mfma_f32_16x16x32_bf16",
    ("gfx942", "fn, deep"): "v_mfma_f32_16x16x32_fp8_fp8",
    ("gfx950", "fn, deep"): "v_mfma_f32_16x16x128_f8f6f4",
}
FORMS = {"fn": (FN, FN), "fn, fn5": (FN, FN5), "uz": (UZ, UZ), "fn, deep": (FN, FN)}


@pytest.mark.matrix(keep=5)
@pytest.mark.parametrize("side", [64, 2048], ids=["small", "large"])
@pytest.mark.parametrize("name", FORMS)
def test_the_instructions(name: str, side: int) -> None:
    """What an architecture multiplies, and nothing else; no scratch and no spills."""
    given = operands(64, 64, 1024, FORMS[name])
    tile = {"GEMM_M": 32, "GEMM_N": 64}
    program = written(Scaled(), like(given, side), **tile, **({CDNA4: True} if "deep" in name else {}))
    parsed = parse(program.text)
    for target in [target for target, one in INSTRUCTIONS if one == name]:
        build = offline.build(parsed.hip, target, parsed.defines(program.knobs), cache=CACHE, unsafe=True)
        assert build.ok, build.log
        assert all(k.scratch_bytes == 0 and k.spills == 0 for k in build.kernels)
        text = CACHE.get(build.isa_blob).decode()
        used = {word.strip() for word in text.split() if word.startswith("v_mfma")}
        assert used == {INSTRUCTIONS[target, name]}, (target, used)


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_nvrtc_code(arch: str) -> None:
    """One instruction from 8.9, two of half numbers before it."""
    program = written(Scaled(), like(operands(64, 64, 1024, (FN, FN5)), 4096), GEMM_M=128, GEMM_N=128)
    parsed = parse(program.text)
    build = nvrtc.build(parsed.hip, parsed.defines(program.knobs), arch=arch, pool=warm.compilers(), cache=CACHE)
    assert build.ok, build.log
    assert all(k.lds_bytes <= 49152 and k.instructions["mfma"] > 0 for k in build.kernels)
    if arch == "sm_90":
        assert all(k.spills == 0 and k.scratch_bytes == 0 for k in build.kernels)
        assert twin(program).count("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e5m2.f32") == 2 * 16


@pytest.mark.parametrize("side", [64, 2048], ids=["small", "large"])
def test_builds(side: int) -> None:
    """As every template: for AMD without scratch, and the same source by NVRTC."""
    program = written(Scaled(), like(operands(64, 64, 1024, (FN, FN)), side))
    build = program_builds(program, lambda target: 1)
    assert all(k.scratch_bytes == 0 for k in build.kernels)
