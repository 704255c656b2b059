"""Float32 products in two half parts: any sizes and layouts, every matrix unit, and an error below float32's own."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from hipwright.engine import author, write
from hipwright.engine.templates.gemm.split_precision import STAGES_LDS
from hipwright.program import parse
from hipwright.toolchain.cpu.sides import Side
from hipwright.toolchain.nvidia import nvrtc
from tests import warm
from tests.engine.gemm.test_gemm import Of, chosen, draw
from tests.engine.harness import captured, compare, reference, run
from tests.engine.template_builds import program_builds

LIKE = [torch.empty(2048, 1024), torch.empty(2048, 1024)]
UNITS: list[tuple[int, Side]] = [(64, "amd"), (32, "amd"), (32, "nvidia"), (64, "")]


def product(
    model: nn.Module, given: list[torch.Tensor], like: list[torch.Tensor], side: Side, wave: int
) -> torch.Tensor:
    written = write(captured(model, like), chosen(model, like, "split", SPLIT_N=64))
    assert "SplitTile" in written.text
    got, _ = run(written, model, given, wave=wave, side=side)
    return got


@pytest.mark.matrix(keep=4)
@pytest.mark.parametrize(("wave", "side"), UNITS)
@pytest.mark.parametrize(("m", "n", "k"), [(130, 70, 40), (1, 64, 33), (128, 129, 7)])
def test_products_of_any_size(m: int, n: int, k: int, wave: int, side: Side) -> None:
    model = Of(lambda x, w: F.gelu(F.linear(x, w)) + 1)
    inputs = [draw(m, k), draw(n, k)]
    expected, native, _ = reference(model, inputs)
    compare(product(model, inputs, LIKE, side, wave), expected, native)


@pytest.mark.parametrize("stages", [3, 4])
@pytest.mark.parametrize("k", [7, 70, 200])
def test_more_stages_in_lds(stages: int, k: int) -> None:
    """Fewer chunks than stages, and more."""
    model, inputs = Of(F.linear), [draw(20, k), draw(70, k)]
    knobs = {"SPLIT_N": 64, "SPLIT_STAGES": stages}
    written = write(captured(model, LIKE), chosen(model, LIKE, "split", **knobs))
    got, _ = run(written, model, inputs, wave=32, side="nvidia", lds_limit=STAGES_LDS[stages])
    expected, native, _ = reference(model, inputs)
    compare(got, expected, native)


@pytest.mark.parametrize(("wave", "side"), UNITS)
def test_slices_of_k_add_up(wave: int, side: Side) -> None:
    """Blocks that share a tile, with uneven slices, several tiles and an epilogue, in batches."""
    model = Of(lambda x, w: F.gelu(x @ w.transpose(1, 2)) + 1)
    like = [torch.empty(2, 256, 4096), torch.empty(2, 256, 4096)]
    inputs = [draw(2, 130, 230), draw(2, 70, 230)]
    graph = captured(model, like)
    choices = chosen(model, like, "split", SPLIT_N=64)
    (key,) = (name for name in author(graph, choices).space.items() if name[0].endswith(":slices"))
    written = write(graph, {**choices, key[0]: 4})
    assert "product.combine" in written.text
    got, _ = run(written, model, inputs, wave=wave, side=side)
    expected, native, _ = reference(model, inputs)
    compare(got, expected, native)


@pytest.mark.parametrize("k", [300, 1030, 9000])
def test_rows_that_a_block_splits(k: int) -> None:
    """Rows of one wave, of a block that holds them, and of one that reads them twice."""
    model, inputs = Of(F.linear), [draw(20, k), draw(70, k)]
    written = write(captured(model, inputs), chosen(model, [torch.empty(256, k), torch.empty(256, k)], "split"))
    got, _ = run(written, model, inputs, wave=32, side="nvidia")
    expected, native, _ = reference(model, inputs)
    compare(got, expected, native)


@pytest.mark.parametrize("side", ["amd", "nvidia"])
def test_operands_whose_k_is_not_contiguous(side: Side) -> None:
    """Rows are contiguous, in batches, with a prologue."""
    model = Of(lambda a, b: torch.relu(a).transpose(1, 2) @ b)
    like = [torch.empty(2, 1024, 2048), torch.empty(2, 1024, 2048)]
    inputs = [draw(2, 40, 37), draw(2, 40, 66)]
    expected, native, _ = reference(model, inputs)
    got = product(model, inputs, like, side, 64 if side == "amd" else 32)
    compare(got, expected, native)


@pytest.mark.parametrize(("wave", "side"), UNITS)
def test_error_is_below_that_of_float32(wave: int, side: Side) -> None:
    """Rows of very different sizes, and numbers of very different sizes within a row."""
    generator = torch.Generator().manual_seed(3)
    spread = lambda *shape: torch.exp2(torch.randint(-9, 9, shape, generator=generator).float())  # noqa: E731
    x, w = (torch.randn(n, 256, generator=generator) * spread(n, 256) for n in (33, 40))
    x, w = x * spread(33, 1) ** 6, w * spread(40, 1) ** 5
    got = product(Of(F.linear), [x, w], LIKE, side, wave)
    exact = F.linear(x.double(), w.double())
    size = F.linear(x.double().abs(), w.double().abs())
    native = ((F.linear(x, w) - exact).abs() / size).max()
    assert ((got - exact).abs() / size).max() <= max(2 * native, 2.0**-22)


@given(st.lists(st.sampled_from([0.0, -0.0, 1.5, 3e38, -3e38, 1e-38, 1e-44, 7e4, -1e20]), min_size=4, max_size=4))
def test_numbers_at_the_ends_of_float32(values: list[float]) -> None:
    """Zeros, the largest, the smallest and subnormal numbers, next to ordinary ones."""
    x = torch.cat([torch.tensor([values]), torch.tensor([values[::-1]])]).repeat(1, 2)
    w = torch.eye(8)[:, :8].contiguous()
    got = product(Of(F.linear), [x, w], LIKE, "nvidia", 32)
    largest = x.abs().max(dim=1, keepdim=True).values
    assert ((got - x).abs() <= x.abs() * 2.0**-22 + largest.clamp(min=1e-30) * 2.0**-48 + 1e-44).all()


@pytest.mark.parametrize("side", ["amd", "nvidia"])
def test_infinities_and_nans_are_those_of_float32(side: Side) -> None:
    x, w = draw(5, 40), draw(6, 40)
    x[1, 3], x[2, 4], x[3, 5], w[2, 0] = float("inf"), float("nan"), -float("inf"), float("inf")
    x[4] *= 1e37
    got = product(Of(F.linear), [x, w], LIKE, side, 64 if side == "amd" else 32)
    torch.testing.assert_close(got, F.linear(x.double(), w.double()).float(), equal_nan=True)


def test_every_gpu_compiles_it() -> None:
    model = Of(lambda x, w: F.relu(F.linear(x, w)))
    written = write(captured(model, LIKE), chosen(model, LIKE, "split"))
    program_builds(written, lambda target: 1)  # of 256 threads and 64 KiB of LDS


def test_the_warpgroup_instructions_compile() -> None:
    model = Of(lambda x, w: F.relu(F.linear(x, w)))
    for columns in (64, 128):
        parsed = parse(write(captured(model, LIKE), chosen(model, LIKE, "split", SPLIT_N=columns)).text)
        ok, log, ptx = nvrtc.listing(
            parsed.hip, f"#define SPLIT_N {columns}\n#define SPLIT_STAGES 3\n", "sm_90", warm.compilers()
        )
        assert ok, log
        assert f"wgmma.mma_async.sync.aligned.m64n{columns}k16.f32.f16.f16" in ptx
