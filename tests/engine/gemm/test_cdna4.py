"""Options of products for gfx950, on the cpu target and in machine code: 32 of k by one instruction, loads to LDS."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from hipwright.engine import author, space, write
from hipwright.engine.knobs import CDNA4
from hipwright.program import parse
from hipwright.records import Program
from hipwright.toolchain.amd import offline
from tests.engine.harness import CACHE, captured, compare, reference, run

HALF, BRAIN = torch.float16, torch.bfloat16
INSTRUCTIONS = {
    HALF: ("v_mfma_f32_16x16x16_f16", "v_mfma_f32_16x16x16f16", "v_mfma_f32_16x16x32_f16"),
    BRAIN: ("v_mfma_f32_16x16x16_bf16", "v_mfma_f32_16x16x16bf16_1k", "v_mfma_f32_16x16x32_bf16"),
}
"""The narrow instruction by two spellings, and the wide one."""


class Product(nn.Module):
    """A product and what is fused into it."""

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> Any:
        return torch.mm(a, b).relu()


class Linear(nn.Module):
    """A product of float32."""

    def forward(self, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return nn.functional.linear(x, w)


def drawn(dtype: torch.dtype, m: int, n: int, k: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(m + n)
    return [torch.randn(shape, generator=generator).to(dtype) for shape in ((m, k), (k, n))]


def written(inputs: list[torch.Tensor], **knobs: int) -> Program:
    """Captured at these inputs; the program serves other sizes too."""
    graph = captured(Product(), inputs)
    calls = {key: "gemm" for key, one in space(graph).items() if key.startswith("call:") and "gemm" in one.options}
    assert calls
    return write(graph, {**calls, CDNA4: True, **knobs})


SIZES = [
    (130, 70, 72, {"GEMM_M": 128, "GEMM_N": 64, "GEMM_K": 32}),
    (130, 132, 40, {"GEMM_M": 128, "GEMM_N": 128, "GEMM_K": 16}),  # tiles are less deep than the instruction
    (33, 40, 200, {"GEMM_M": 32, "GEMM_N": 32, "GEMM_K": 64, "slices": 0}),
    (13, 40, 72, {"GEMM_M": 16, "GEMM_N": 32, "GEMM_K": 32, "slices": 0}),  # two waves at most
]


@pytest.mark.matrix(keep=3)
@pytest.mark.parametrize("dtype", [HALF, BRAIN], ids=str)
@pytest.mark.parametrize(("m", "n", "k", "knobs"), SIZES, ids=["tiles", "shallow", "slices", "narrow"])
@pytest.mark.parametrize("depth", [16, 32])
def test_values(m: int, n: int, k: int, knobs: dict[str, int], depth: int, dtype: torch.dtype) -> None:
    """The machine code of both kinds of GPU, and the cpu target as CDNA."""
    inputs = drawn(dtype, m, n, k)
    large = [torch.empty(2048, k, dtype=dtype), torch.empty(k, 2048, dtype=dtype)]
    program = written(inputs if "slices" in knobs else large, GEMM_MFMA_K=depth, **knobs)
    assert ("SLICES" in program.text) == ("slices" in knobs)
    expected, native, _ = reference(Product(), inputs)
    compare(run(program, Product(), inputs, side="amd")[0], expected, native)
    for target in ("gfx942", "gfx950"):
        compare(run(program, Product(), inputs, simulated=target)[0], expected, native)


@pytest.mark.parametrize("dtype", [HALF, BRAIN], ids=str)
def test_the_instructions(dtype: torch.dtype) -> None:
    """gfx950 has the wide one where 32 of k are asked for; every other target the narrow one."""
    inputs = drawn(dtype, 256, 256, 128)
    *narrow, wide = INSTRUCTIONS[dtype]
    for depth in (16, 32):
        program = written(inputs, GEMM_MFMA_K=depth)
        parsed = parse(program.text)
        for target in ("gfx90a", "gfx942", "gfx950"):
            build = offline.build(parsed.hip, target, parsed.defines(program.knobs), cache=CACHE, unsafe=True)
            assert build.ok, build.log
            text = CACHE.get(build.isa_blob).decode()
            assert (wide in text) == (target == "gfx950" and depth == 32), target
            assert any(name in text for name in narrow) != (wide in text)


def test_the_default() -> None:
    """32 in runs for gfx950 alone; without the choice the text has no such knob."""
    inputs = drawn(HALF, 256, 256, 128)
    graph = captured(Product(), inputs)
    calls = {key: "gemm" for key, one in space(graph).items() if key.startswith("call:") and "gemm" in one.options}
    assert author(graph, {**calls, CDNA4: True}).space["GEMM_MFMA_K"].default == 32
    assert "GEMM_MFMA_K" not in write(graph, calls).text and "MFMA_K" in written(inputs).text
    wide = [torch.randn(256, 128), torch.randn(128, 256)]
    assert "MFMA_K" not in written(wide).text  # float32 has no wider instruction


# ---------------------------------------------------------------- products in two parts, loaded straight to LDS


def split(model: nn.Module, like: list[torch.Tensor], direct: int) -> Program:
    graph = captured(model, like)
    calls = {key: "split" for key, one in space(graph).items() if key.startswith("call:") and "split" in one.options}
    program = write(graph, {**calls, CDNA4: True, "SPLIT_N": 64, "SPLIT_DIRECT": direct})
    assert "SPLIT_DIRECT" in program.text
    return program


@pytest.mark.parametrize("direct", [0, 1])
@pytest.mark.parametrize("target", ["gfx942", "gfx950", ""])
def test_split_products(target: str, direct: int) -> None:
    """Fewer chunks than buffers, and more; rows beyond the last."""
    model = Linear()
    program = split(model, [torch.empty(2048, 1024), torch.empty(2048, 1024)], direct)
    for k in (20, 100):
        inputs = [torch.randn(130, k), torch.randn(70, k)]
        expected, native, _ = reference(model, inputs)
        got, _ = run(program, model, inputs, side="amd", simulated=target)
        compare(got, expected, native)


@pytest.mark.parametrize("target", ["gfx950", ""])
def test_split_convolutions(target: str) -> None:
    """What is outside of an image becomes zeros, which no load writes."""
    model, x = nn.Conv2d(12, 24, 3, padding=1, stride=2), torch.randn(2, 12, 9, 11)
    program = split(model, [x], 1)
    expected, native, _ = reference(model, [x])
    got, _ = run(program, model, [x], side="amd", simulated=target)
    compare(got, expected, native)


def test_loads_to_lds_are_in_the_code_of_gfx950_alone() -> None:
    program = split(Linear(), [torch.empty(2048, 1024), torch.empty(2048, 1024)], 1)
    parsed = parse(program.text)
    for target in ("gfx942", "gfx950"):
        build = offline.build(parsed.hip, target, parsed.defines(program.knobs), cache=CACHE, unsafe=True)
        assert build.ok, build.log
        text = CACHE.get(build.isa_blob).decode()
        assert ("global_load_lds_dwordx4" in text) == (target == "gfx950")
        assert ("v_mfma_f32_16x16x32_f16" in text) == (target == "gfx950")
