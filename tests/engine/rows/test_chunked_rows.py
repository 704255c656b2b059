"""Long rows that stay in registers: half types unconverted, other operands a few vectors at a time."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from hipwright.engine import explain, write
from hipwright.program import parse
from hipwright.toolchain.amd import offline as amdgpu
from tests.engine.harness import CACHE, Op, captured, compare, reference, run
from tests.engine.template_builds import program_builds

IMAGES = Op(lambda x: F.instance_norm(x, eps=1e-4))
CHANNELS = Op(lambda x: torch.relu(F.batch_norm(x, None, None, training=True)))


def draw(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(7), dtype=torch.float64).to(dtype)


def verify(model: nn.Module, large: torch.Tensor, cases: list[torch.Tensor], wave: int, **knobs: Any) -> None:
    """The program for a large input, run at other sizes."""
    program = write(captured(model, [large]), knobs)
    for x in cases:
        expected, native, _ = reference(model, [x])
        got, _ = run(program, model, [x], wave=wave)
        compare(got, expected, native)


@pytest.mark.matrix(keep=3)
@pytest.mark.parametrize(("dtype", "wave"), [(torch.float16, 32), (torch.bfloat16, 64)])
@pytest.mark.parametrize("knobs", [{"ROW_BLOCK": 64}, {"ROW_BLOCK": 128, "ROW_ITEMS": 1}, {"ROW_VEC": 2}])
def test_halves_of_any_length(dtype: torch.dtype, wave: int, knobs: dict[str, Any]) -> None:
    """Rows that exceed registers, cut vectors, rows of one value, distant means, NaN."""
    far = draw(2, 3, 90, 50, dtype=dtype) + 40
    far[1, 2, 3, 4] = float("nan")
    cases = [far, draw(1, 4, 37, 41, dtype=dtype), draw(2, 2, 5, 3, dtype=dtype)]
    verify(IMAGES, torch.empty(32, 64, 256, 256, dtype=dtype), cases, wave, **knobs)


@pytest.mark.parametrize("wave", [32, 64])
def test_cooperative_blocks_with_a_cut_tile(wave: int) -> None:
    """Channels of 56 x 56 images: the last tile of a row is half a tile."""
    cases = [draw(5, 3, 24, 24) + 9, draw(3, 2, 7, 9), draw(2, 3, 30, 45)]
    verify(CHANNELS, torch.empty(64, 256, 56, 56), cases, wave, ROW_BLOCK=64, ROW_ITEMS=4, COOP_BLOCKS=4)


@pytest.mark.parametrize("wave", [32, 64])
def test_cooperative_blocks_of_half_types(wave: int) -> None:
    """Rows of half types that exceed the registers of one block."""
    cases = [draw(2, 3, 90, 50, dtype=torch.float16), draw(1, 4, 37, 41, dtype=torch.float16)]
    large = torch.empty(8, 64, 512, 512, dtype=torch.float16)
    assert "block, cooperative" in {k["mapping"] for k in explain(captured(IMAGES, [large]))["kernels"]}
    verify(IMAGES, large, cases, wave, ROW_BLOCK=64, COOP_BLOCKS=4)


def test_a_thread_keeps_64_half_type_values() -> None:
    """A row of 128 KiB has one block: each element is loaded once, no block waits, no register is spilled."""
    program = write(captured(IMAGES, [torch.empty(32, 64, 256, 256, dtype=torch.float16)]))
    assert "ROW_BLOCK = knob(1024" in program.text and "ROW_ITEMS = knob(8" in program.text
    assert "block_rank" not in program.text
    assert re.search(r"__half \w+_row\[ROW_ITEMS \* ROW_VEC\]", program.text)
    assert not re.search(r"hipwright/(?:row_cache|async_copy)\.h", program.text), "rows that registers hold need no LDS"
    _exact_fits(program, loads=8)


def test_weights_are_loaded_in_chunks() -> None:
    """LayerNorm over several axes: 32 values per thread stay, weights and bias are loaded two vectors at a time."""
    program = write(captured(nn.LayerNorm((64, 64, 64)), [torch.empty(192, 64, 64, 64)]))
    assert "ROW_ITEMS = knob(8" in program.text and "COOP_BLOCKS = knob(32" in program.text
    assert "load_tile<chunk_items, ROW_VEC>(weight" in program.text
    _exact_fits(program)


def test_channels_keep_32_values_per_thread() -> None:
    program = write(captured(CHANNELS, [torch.empty(64, 256, 56, 56)]))
    assert "ROW_ITEMS = knob(8" in program.text and "COOP_BLOCKS = knob(32" in program.text
    _exact_fits(program)


def test_row_operands_are_prefetched_before_the_wait() -> None:
    text = write(captured(nn.BatchNorm2d(256), [torch.empty(64, 256, 56, 56)]), {"exact": False}).text
    assert text.index("weight_value = ") < text.index("combine_published_partials<ROW_BLOCK>(batch_norm")


def test_guarded_loads_are_prefetched_before_the_reductions() -> None:
    """Cross entropy's gradient: a row's class is loaded with the row itself."""

    def gradient(x: torch.Tensor, classes: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x, -1) - torch.zeros_like(x).scatter(1, classes[:, None], 1.0)

    model, classes = Op(gradient), torch.tensor([3, 0, 699, 77, 12])
    program = write(captured(model, [torch.empty(8192, 32000), torch.zeros(8192, dtype=torch.int64)]))
    body = program.text[program.text.index("_body(") :]
    asked = re.search(r"_value = \w+\[row\];", body)
    assert asked and asked.start() < body.index("block_reduce<")
    for x in (draw(5, 700), draw(5, 701)):
        expected, native, _ = reference(model, [x, classes])
        got, _ = run(program, model, [x, classes])
        compare(got, expected, native)


def test_loads_at_a_found_index_follow_the_reduction() -> None:
    """A load at an index that the row's own reduction found waits for the reduction."""
    model = Op(lambda x, table: x * table[x.argmax(1)][:, None])
    text = write(captured(model, [draw(40, 600), draw(600)])).text
    x, table = draw(9, 600), draw(600)
    expected, native, _ = reference(model, [x, table])
    got, _ = run(write(captured(model, [draw(40, 600), draw(600)])), model, [x, table])
    compare(got, expected, native)
    assert "reduce<" in text


def _exact_fits(program: Any, loads: int = 0) -> None:
    """No scratch on AMD; at sm_90 the static-shape variant has 64 registers, so that 1024 threads fit."""
    build = program_builds(program, lambda target: 2)
    main = [k for k in build.kernels if k.name.endswith("_exact")] or build.kernels
    assert all(k.vgpr is not None and k.vgpr <= 64 and k.spills == 0 for k in main), main
    if loads:
        parsed = parse(program.text)
        build = amdgpu.build(parsed.hip, "gfx942", parsed.defines({}), cache=CACHE, unsafe=True)
        (exact,) = (k for k in build.kernels if k.name.endswith("_exact"))
        assert exact.instructions["vmem_load"] == loads
        assert exact.occupancy == 8, "two blocks of 16 waves on a compute unit"
