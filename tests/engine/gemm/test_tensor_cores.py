"""NVIDIA's tensor cores: fragments and products computed with shuffles on a processor, and the code that NVRTC
makes.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from hipwright.engine import write
from hipwright.records import Program
from tests.engine.gemm.test_gemm import BRAIN, HALF, Dense, Of, chosen, draw
from tests.engine.harness import captured, compare, reference, run
from tests.engine.rows.test_half_type_rows import twin
from tests.engine.template_builds import program_builds


def with_tensor_cores(model: nn.Module, like: list[torch.Tensor], way: str, **choices: Any) -> Program:
    """A program that uses tensor cores where there are any, traced at sizes whose tiles have a side of 128."""
    written = write(captured(model, like), chosen(model, like, way, **choices))
    assert "#include <hipwright/tensor_cores.h>" in written.text and "mma_" in written.text
    return written


def verify(model: nn.Module, like: list[torch.Tensor], inputs: list[torch.Tensor], way: str, **choices: Any) -> None:
    expected, native, _ = reference(model, inputs)
    got, _ = run(with_tensor_cores(model, like, way, **choices), model, inputs, wave=32, side="nvidia")
    compare(got, expected, native)


@pytest.mark.matrix(keep=3)
@pytest.mark.parametrize("dtype", [HALF, BRAIN])
@pytest.mark.parametrize(
    ("m", "n", "k", "tiles"),
    [
        (130, 129, 40, (128, 128, 32)),
        (64, 200, 33, (32, 128, 16)),
        (96, 64, 64, (128, 64, 32)),
        (1, 70, 8, (64, 64, 16)),
    ],
)
def test_products_of_any_size(m: int, n: int, k: int, tiles: tuple[int, int, int], dtype: torch.dtype) -> None:
    """Partial tiles of rows, columns and depth; operands with contiguous k."""
    knobs = dict(zip(("GEMM_M", "GEMM_N", "GEMM_K"), tiles, strict=True))
    model = Of(lambda x, w: F.gelu(F.linear(x, w)))
    like = [torch.empty(8192, 1024, dtype=dtype), torch.empty(2048, 1024, dtype=dtype)]
    verify(model, like, [draw(m, k, dtype=dtype), draw(n, k, dtype=dtype)], "gemm", **knobs)


@pytest.mark.parametrize("dtype", [HALF, BRAIN])
def test_operands_whose_k_is_not_contiguous(dtype: torch.dtype) -> None:
    model = Of(lambda a, b: F.silu(a.t() @ b) + 1)
    like = [torch.empty(1024, 8192, dtype=dtype), torch.empty(1024, 2048, dtype=dtype)]
    given = [draw(40, 136, dtype=dtype), draw(40, 144, dtype=dtype)]
    verify(model, like, given, "gemm", GEMM_M=64, GEMM_N=128)


@pytest.mark.matrix(keep=3)
@pytest.mark.parametrize("dtype", [HALF, BRAIN])
@pytest.mark.parametrize(
    "layer",
    [
        nn.Conv2d(24, 70, 1),
        nn.Conv2d(16, 64, 3, stride=2, padding=1),
        nn.ConvTranspose2d(16, 64, 4, stride=2, padding=1),
    ],
    ids=["1x1", "strided", "transposed"],
)
def test_convolutions(layer: nn.Module, dtype: torch.dtype) -> None:
    model = nn.Sequential(layer, nn.ReLU()).to(dtype)
    x = draw(3, layer.weight.shape[int(not isinstance(layer, nn.ConvTranspose2d))], 9, 11, dtype=dtype)
    verify(model, [x], [x], "implicit", GEMM_M=64, GEMM_N=64, GEMM_K=32)


@pytest.mark.parametrize("size", [(8, 16), (7, 9)], ids=["whole packs", "odd"])
@pytest.mark.parametrize("layer", [nn.Conv2d(40, 130, 1), nn.Conv2d(64, 128, 1, bias=False)], ids=["bias", "plain"])
def test_one_by_one_windows(layer: nn.Conv2d, size: tuple[int, int]) -> None:
    """Inputs whose k is not contiguous; images are a batch."""
    model = nn.Sequential(layer, nn.ReLU()).to(HALF)
    like = torch.empty(64, layer.in_channels, 112, 112, dtype=HALF)
    verify(model, [like], [draw(3, layer.in_channels, *size, dtype=HALF)], "gemm", GEMM_M=64, GEMM_N=64)


def test_computed_operands_are_loaded_through_registers() -> None:
    model = Of(lambda x, w: torch.relu(F.linear(x * 2, w)))
    like = [torch.empty(8192, 1024, dtype=HALF), torch.empty(2048, 1024, dtype=HALF)]
    choices = chosen(model, like, "gemm", GEMM_M=64, GEMM_N=64)
    given = [draw(70, 72, dtype=HALF), draw(66, 72, dtype=HALF)]
    text = with_tensor_cores(model, like, "gemm").text
    assert (text.count("cp_async_16(destination"), text.count("store_lds_vector(destination")) == (
        1,
        1,
    )  # the weights', and the inputs'
    verify(model, like, given, "gemm", **{k: v for k, v in choices.items() if k.startswith("GEMM")})


def test_nvrtc_code() -> None:
    """A step of 128 x 128 x 32: 16 products and 6 fragment loads for each 16 of k, four asynchronous copies, and 128
    registers, so that two blocks fit a multiprocessor.
    """
    x = torch.empty(8192, 1024, dtype=HALF)
    model = Dense(1024, 1024, HALF, then=torch.relu)
    program = write(captured(model, [x]), chosen(model, [x], "gemm", GEMM_M=128, GEMM_N=128))
    ptx = twin(program)
    assert ptx.count("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32") == 2 * 16
    assert ptx.count("ldmatrix.sync.aligned.m8n8.x4.shared.b16") == 2 * (4 + 2)
    assert ptx.count("cp.async.cg.shared.global") == 2 * 4
    kernels = program_builds(program, lambda target: 1).kernels
    assert all(k.vgpr <= 128 and k.spills == 0 and k.lds_bytes <= 49152 for k in kernels)
