"""Products of awkward shapes: small tiles with sliced k, split-k, and the rule for both."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from hipwright.engine import write
from hipwright.engine.templates.gemm import tiling
from hipwright.engine.templates.gemm.tiling import ProductShape, Tiling, choose, seconds
from hipwright.program import parse
from hipwright.records import Build, Program
from hipwright.toolchain.amd import offline as amdgpu
from hipwright.toolchain.device_headers import inlined
from hipwright.toolchain.nvidia import nvrtc
from hipwright.toolchain.pool import CompilePool
from tests.engine.gemm.test_gemm import (
    BRAIN,
    HALF,
    MM,
    TARGETS,
    Dense,
    Of,
    Quantised,
    chosen,
    draw,
    run_on_matrix_units,
)
from tests.engine.harness import CACHE, captured, check, compare, kernels_in, reference, run

LINEAR = Of(lambda a, w, r: F.silu(F.linear(a, w)) + r)
ROW_MAJOR = Of(lambda a, b, r: F.silu(a @ b) + r)
TRANSPOSED = Of(lambda a, b, r: F.silu(a.t() @ b) + r)


def operands(m: int, n: int, k: int, form: str, dtype: torch.dtype) -> list[torch.Tensor]:
    """nt: k is contiguous in both; nn and tn: in a only, or in neither."""
    a = draw(k, m, dtype=dtype) if form == "tn" else draw(m, k, dtype=dtype)
    b = draw(n, k, dtype=dtype) if form == "nt" else draw(k, n, dtype=dtype)
    return [a, b, draw(n, dtype=dtype, seed=5)]


def program(form: str, dtype: torch.dtype, sizes: tuple[int, int, int] = (17, 45, 100), **more: Any) -> Any:
    model = {"nt": LINEAR, "nn": ROW_MAJOR, "tn": TRANSPOSED}[form]
    inputs = operands(*sizes, form, dtype)
    return model, inputs, write(captured(model, inputs), chosen(model, inputs, "gemm", **more))


# ---------------------------------------------------------------- values

TILES = [{"GEMM_M": m, "GEMM_N": n, "GEMM_K": k} for m, n, k in product((16, 32, 64), (32, 64), (0, 1))]


@pytest.mark.parametrize("matrix_units", [False, True])
@pytest.mark.parametrize("tile", TILES, ids=lambda t: "-".join(map(str, t.values())))
@pytest.mark.parametrize("dtype", [torch.float32, HALF])
@pytest.mark.parametrize("form", ["nt", "nn", "tn"])
@pytest.mark.matrix(keep=3)
def test_every_small_tile(form: str, dtype: torch.dtype, tile: dict[str, int], matrix_units: bool) -> None:
    knobs = tile | {"GEMM_K": tiling.DEPTH[str(dtype)[6:]] << tile["GEMM_K"]}
    model, _, made = program(form, dtype, (64, 2048, 512), **{"call:linear:split": 1, "call:matmul:split": 1})
    assert parse(made.text).knobs["GEMM_M"].choices == (16, 32, 64)
    made, inputs = Program(text=made.text, knobs=knobs), operands(17, 45, 100, form, dtype)
    wave = 64 if tile["GEMM_M"] == 32 else 32
    got = run_on_matrix_units(made, model, inputs) if matrix_units else run(made, model, inputs, wave=wave)[0]
    compare(got, *reference(model, inputs)[:2])


@pytest.mark.matrix(keep=3)
@pytest.mark.parametrize("matrix_units", [False, True])
@pytest.mark.parametrize("knobs", [{"GEMM_M": 64}, {"GEMM_M": 32, "GEMM_N": 32}, {"GEMM_M": 64, "GEMM_K": 32}])
def test_few_columns(knobs: dict[str, int], matrix_units: bool) -> None:
    model, inputs, made = program("nt", HALF, (70, 13, 77), **knobs)
    assert parse(made.text).knobs["GEMM_N"].choices == (16, 32)
    got = run_on_matrix_units(made, model, inputs) if matrix_units else run(made, model, inputs)[0]
    compare(got, *reference(model, inputs)[:2])


@pytest.mark.parametrize("m", [1, 9, 33])
@pytest.mark.parametrize("wave", [32, 64])
def test_unaligned_rows_and_lengths(m: int, wave: int) -> None:
    model = Dense(131, 37, BRAIN)
    inputs = [draw(m, 131, dtype=BRAIN)]
    check(
        model,
        inputs,
        choices=chosen(model, inputs, "gemm"),
        wave=wave,
        other=[draw(m + 40, 131, dtype=BRAIN)] if m > 1 else None,
    )


# ---------------------------------------------------------------- blocks that share k


@pytest.mark.parametrize("split", [2, 4, 32])
@pytest.mark.matrix(keep=3)
@pytest.mark.parametrize(("sizes", "dtype"), [((33, 65, 301), torch.float32), ((17, 30, 90), HALF)])
def test_blocks_share_k(sizes: tuple[int, int, int], dtype: torch.dtype, split: int) -> None:
    """With 32 blocks and a k of 90 most blocks have nothing to sum."""
    model, inputs, made = program("nt", dtype, sizes, **{"call:linear:split": split})
    assert kernels_in(made.text) == 2
    assert "atomic" not in inlined(made.text)
    expected = reference(model, inputs)[:2]
    for got in (run(made, model, inputs, wave=32)[0], run_on_matrix_units(made, model, inputs)):
        compare(got, *expected)


def test_large_tiles_share_k_too() -> None:
    model, inputs = MM, [torch.empty(2048, 512), torch.empty(512, 2048)]
    text = write(captured(model, inputs), {"call:mm": "gemm", "call:mm:split": 4}).text
    small = [draw(150, 90), draw(90, 131)]
    for knobs in ({}, {"GEMM_M": 32, "GEMM_K": 8}):
        got, _ = run(Program(text=text, knobs=knobs), model, small)
        compare(got, *reference(model, small)[:2])


def test_split_k_of_batches_transposes_and_empty_sums() -> None:
    turned = Of(lambda a, b: torch.einsum("bik,bjk->jbi", a, b).relu())
    inputs = [draw(3, 19, 70), draw(3, 21, 70)]
    choices = chosen(turned, inputs, "gemm", **{"call:einsum:split": 4})
    text = check(turned, inputs, choices=choices, other=[draw(3, 19, 70), draw(3, 21, 70)])
    assert kernels_in(text) == 3  # what turns the result is one more
    nothing = Of(lambda a, b: a @ b + 1)
    inputs = [draw(5, 0), draw(0, 6)]
    text = check(nothing, inputs, choices=chosen(nothing, inputs, "gemm", **{"call:matmul:split": 4}))
    assert kernels_in(text) == 2


# ---------------------------------------------------------------- the rule


@pytest.mark.parametrize(
    ("shape", "small", "split"),
    [
        (ProductShape(1, 64, 1024, 8192, "float32"), None, True),
        (ProductShape(1, 128, 512, 16384, "float16"), None, True),
        (ProductShape(1, 16, 2048, 4096, "float32"), True, True),
        (ProductShape(1, 20, 48, 64, "float32"), True, False),
        (ProductShape(4096, 32, 32, 32, "float32"), True, False),
        (ProductShape(1, 4096, 4096, 4096, "float16"), False, False),
    ],
)
def test_the_tiling(shape: ProductShape, small: bool | None, split: bool) -> None:
    found = choose(shape)
    assert small is None or found.small == small
    assert (found.split > 1) == split
    assert not split or found.blocks(shape) >= tiling.COMPUTE_UNITS / 2
    assert seconds(shape, found) <= seconds(shape, Tiling(64, 64, tiling.DEPTH[shape.dtype]))


def test_tiles_are_no_larger_than_the_product() -> None:
    assert choose(ProductShape(1, 12, 4096, 4096, "float32")).rows == 16
    assert choose(ProductShape(1, 4096, 12, 4096, "float32")).columns == 16
    assert choose(ProductShape(1, 1, 1, 1, "float32")).small


def test_the_tail_of_one_more_block() -> None:
    tile = Tiling(128, 128, 16)
    full, more = (
        ProductShape(n, 128, 128, 4096, "float32") for n in (3 * tiling.COMPUTE_UNITS, 3 * tiling.COMPUTE_UNITS + 1)
    )
    assert seconds(more, tile) > 1.3 * seconds(full, tile)
    assert seconds(ProductShape(4 * tiling.COMPUTE_UNITS, 128, 128, 4096, "float32"), tile) == pytest.approx(
        seconds(more, tile)
    )


def test_split_k_counts_its_second_kernel() -> None:
    shape = ProductShape(256, 64, 128, 512, "float32")
    once, twice = (seconds(shape, Tiling(64, 64, 16, split)) for split in (1, 2))
    assert twice > once
    assert choose(shape).split == 1


# ---------------------------------------------------------------- compilers


@pytest.fixture(scope="module")
def compilers() -> Iterator[Callable[[str, dict[str, int]], Build]]:
    """NVRTC for an H200."""
    with nvrtc.zygote() as zygote, CompilePool(zygote, 1) as pool:
        yield lambda hip, defines: nvrtc.build(hip, defines, arch="sm_90", pool=pool, cache=CACHE)


BUILT = [
    (Dense(8192, 1024), [torch.empty(64, 8192)]),
    (Dense(4096, 2048, HALF), [torch.empty(16, 4096, dtype=HALF)]),
    (Dense(4096, 512, BRAIN), [torch.empty(100, 4096, dtype=BRAIN)]),
    (MM, [torch.empty(33, 4096), torch.empty(4096, 1000)]),
    (MM, [torch.empty(4096, 1000, dtype=HALF), torch.empty(1000, 12, dtype=HALF)]),
    (Quantised(4096, 1024, HALF), [torch.empty(24, 4096, dtype=HALF)]),
]


@pytest.mark.parametrize(("model", "inputs"), BUILT)
@pytest.mark.matrix(keep=3)
def test_builds(model: Any, inputs: list[torch.Tensor], compilers: Any) -> None:
    """No scratch on AMD, no spills on NVIDIA."""
    made = write(captured(model, inputs), chosen(model, inputs, "gemm"))
    parsed = parse(made.text)
    defines = parsed.defines(made.knobs)
    builds = [amdgpu.build(parsed.hip, target, defines, cache=CACHE, unsafe=True) for target in TARGETS]
    builds.append(compilers(parsed.hip, defines))
    for build in builds:
        assert build.ok, build.log
        assert all(k.scratch_bytes == 0 and k.spills == 0 for k in build.kernels), build.kernels


@pytest.mark.exhaustive
@pytest.mark.parametrize("form", ["nt", "nn"])
@pytest.mark.parametrize("dtype", [torch.float32, HALF])
@pytest.mark.parametrize("sizes", [(64, 256, 512), (2048, 2048, 512)])
def test_no_knobs_spill(sizes: tuple[int, int, int], dtype: torch.dtype, form: str, compilers: Any) -> None:
    """Every combination, by NVRTC and for gfx1100, whose vector units need the most registers."""
    _, _, made = program(form, dtype, sizes)
    parsed = parse(made.text)
    names = [n for n in parsed.knobs if n.startswith("GEMM")]
    for values in product(*(parsed.knobs[n].choices for n in names)):
        defines = parsed.defines(dict(zip(names, values, strict=True)))
        amd = amdgpu.build(parsed.hip, "gfx1100", defines, cache=CACHE, unsafe=True)
        for build in (amd, compilers(parsed.hip, defines)):
            assert build.ok, build.log
            assert all(k.scratch_bytes == 0 for k in build.kernels), (values, build.kernels)
