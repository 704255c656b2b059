"""The engine's defaults where `python -m benchmarks knobs` or a search measured a difference, by measured shapes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from hipwright.engine import author, space
from hipwright.engine.knobs import SPLIT, Value
from tests.engine.harness import Op, captured

F = nn.functional
HALF = torch.float16


def chosen(model: nn.Module, *shapes: tuple[int, ...], dtype: torch.dtype = torch.float32) -> dict[str, Value]:
    """The defaults of the program for tensors of these shapes, without any values."""
    given = [torch.empty(shape, dtype=dtype, device="meta") for shape in shapes]
    return {key: choice.default for key, choice in space(captured(model.to("meta"), given)).items()}


def of(found: dict[str, Value], start: str) -> list[Value]:
    """Values of the keys that begin so."""
    return [value for key, value in found.items() if key.startswith(start)]


def triplet(a: Any, b: Any, c: Any) -> Any:
    near, far = (F.cosine_similarity(a.float(), x.float(), dim=-1) for x in (b, c))
    return torch.relu(far - near + 0.2).mean()


def upwind(u: Any, speed: Any) -> Any:
    padded = F.pad(u, (1, 1))
    return u - 0.1 * torch.where(speed > 0, speed * (u - padded[..., :-2]), speed * (padded[..., 2:] - u))


def logarithms(x: Any) -> Any:
    """The terms of a divergence, summed by images."""
    return (x * x + x.exp() - 1.0 - x).sum(1)


def both_ways(x: Any) -> Any:
    """The symmetric loss of pairs."""
    return torch.logsumexp(x, 1) + torch.logsumexp(x, 0)


def normalised_channels_last(x: Any, mean: Any, spread: Any, weight: Any, bias: Any) -> Any:
    return torch.relu((x - mean) * torch.rsqrt(spread + 1e-5) * weight + bias)


def grouped_channels_last(x: Any) -> Any:
    """Statistics of ten channels each, of an image that is stored channels last."""
    return torch.var_mean(x.reshape(x.shape[0], -1, 32, 10), (1, 3), correction=0)


def rolled_twice(x: Any) -> Any:
    """A value of which a concatenation alone is made."""
    kept = torch.roll(F.softshrink(x), 1, 1)
    return torch.cat([F.relu6(kept), kept], 1)


class Bell(nn.Module):
    """exp(-x^2)."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.exp(-x.square())


CASES: list[tuple[Callable[..., Any], list[tuple[int, ...]], torch.dtype, dict[str, Value]]] = [
    (lambda x: x.mean(0), [(131072, 2048)], torch.float32, {"COOP_BLOCKS": 33}),
    (lambda x: (x * x).sum(1), [(16384, 39, 10)], torch.float32, {"map:": "lanes"}),
    (lambda x: (x * x).sum(1), [(16384, 39, 64)], torch.float32, {"map:": "columns"}),
    (lambda x: (x * x).sum(1), [(16384, 390, 10)], torch.float32, {"map:": "columns"}),
    (nn.Linear(1280, 1280), [(64, 1280)], torch.float32, {"call:linear": "gemm"}),
    (nn.Linear(4096, 1000), [(32, 4096)], torch.float32, {"call:linear": "library"}),
    (lambda x: torch.amax(x, 1), [(256, 512, 1024)], HALF, {"ROW_ITEMS": 4}),
    (lambda x: F.layer_norm(x, (4096,)), [(65536, 4096)], HALF, {"ROW_BLOCK": 128, "ROW_ITEMS": 4}),
    (lambda x: F.layer_norm(x, (4096,)), [(65536, 4096)], torch.float32, {"ROW_BLOCK": 256, "ROW_ITEMS": 4}),
    (lambda x, y: torch.softmax(x * 0.125 + y, -1), [(512, 1024, 1024), (1024, 1024)], HALF, {"map:": "block"}),
    (lambda x: torch.softmax(x, -1), [(512, 1024, 512)], HALF, {"map:": "lanes"}),
    (triplet, [(131072, 768)] * 3, HALF, {"row_cache:": "registers"}),
    (lambda x, y: F.gelu(x + y) * 0.5, [(8192, 8192), (8192,)], torch.float32, {"ROW_BLOCK": 64, "ROW_ITEMS": 4}),
    (lambda x, y: F.gelu(x + y) * 0.5, [(64, 1000), (1000,)], torch.float32, {"BLOCK": 256}),
    (lambda x, y: x.gather(1, y.long()) * 2, [(16384, 8192), (16384, 4096)], torch.float32, {"ROW_BLOCK": 256}),
    (upwind, [(2048, 32768)] * 2, torch.float32, {"ROW_BLOCK": 128, "ROW_ITEMS": 1}),
    (lambda x, y: x * y.sigmoid(), [(8192, 8192)] * 2, torch.float32, {"BLOCK": 128}),
    (
        nn.Conv2d(128, 128, 5, stride=2, padding=2, groups=128, bias=False),
        [(64, 128, 112, 112)],
        torch.float32,
        {"call:conv2d:tile": "1x4x4", "STENCIL_BLOCK": 256},
    ),
    (
        lambda x, i: torch.zeros(8192, 512, device=x.device).index_add(0, i.long(), x),
        [(1 << 18, 512), (1 << 18,)],
        torch.float32,
        {"SEGMENT_ROWS": 128, "SCATTER_BLOCK": 512},
    ),
    (
        nn.Sequential(nn.Conv2d(64, 128, 1), nn.ReLU()).bfloat16(),
        [(64, 64, 112, 112)],
        torch.bfloat16,
        {"call:conv2d": "gemm", "GEMM_M": 64, "GEMM_N": 128, "GEMM_K": 32},
    ),
    (nn.Conv2d(256, 256, 3, padding=1).half(), [(64, 256, 56, 56)], HALF, {"call:conv2d": "library"}),
    (lambda x, y: F.gelu(x @ y), [(16384, 1024), (1024, 2048)], HALF, {"call:": "library"}),
    (lambda x: torch.amax(x, 1), [(64, 4096, 2047)], torch.float32, {"COLUMN_VEC": 4, "ROW_ITEMS": 16}),
    (lambda x, i: x[i.long()].sum(), [(100_000,), (40_000,)], torch.float32, {"cooperative:": True, "COOP_BLOCKS": 32}),
    (lambda x: x / x.norm(), [(4096, 63)], torch.float32, {"cooperative:": True, "COOP_BLOCKS": 64}),
    (lambda x: F.softsign(x).var(1), [(1 << 17, 25)], torch.float32, {"LANES": 4, "ROW_ITEMS": 8}),  # one tile
    (lambda x: F.interpolate(x, scale_factor=3), [(16, 64, 128, 128)], torch.float32, {"map:": "vector"}),
    (
        lambda x, y: F.interpolate(x, scale_factor=2) + y,
        [(2, 4, 64, 64), (2, 4, 128, 128)],
        torch.float32,
        {"map:": "vector"},
    ),
    (logarithms, [(64, 16384)], torch.float32, {"cooperative:": False, "ROW_BLOCK": 512}),
    (logarithms, [(8, 131072)], torch.float32, {"cooperative:": True}),
    (normalised_channels_last, [(2 << 20, 64), *[(64,)] * 4], HALF, {"map:": "columns", "LANES": 8}),
    (grouped_channels_last, [(8, 4096, 320)], HALF, {"map:": "columns"}),
    (lambda x: F.avg_pool1d(x, 9, 1, 4), [(64, 128, 65536)], torch.float32, {"STENCIL_BLOCK": 128}),
    (lambda x: F.avg_pool1d(x.transpose(1, 2), 9, 1, 4), [(256, 336, 321)], torch.float32, {"STENCIL_BLOCK": 256}),
    (lambda x: F.avg_pool1d(x, 2, 3), [(64, 16, 32768)], HALF, {"call:avg_pool1d:apart": 8}),
    (lambda x: F.avg_pool1d(x, 2, 3, 1), [(32, 128, 16384)], torch.float32, {"call:avg_pool1d:apart": 4}),
    (lambda x: F.avg_pool1d(x, 4, 1), [(32, 3, 32767)], torch.float32, {"call:avg_pool1d:apart": 4}),
    (lambda x: F.max_pool1d(x, 2, 1), [(1, 32, 32767)], torch.bfloat16, {"call:max_pool1d:apart": 4}),
    (lambda x: F.avg_pool1d(x, 4, 4), [(64, 64, 32768)], torch.float32, {"call:avg_pool1d:apart": 1}),
    (lambda x: F.avg_pool1d(x, 3, 1, 1), [(64, 64, 32768)], HALF, {"call:avg_pool1d:apart": 1}),
    (
        lambda table, i: F.layer_norm(table[i.long()], (768,)),
        [(30522, 768), (64, 512)],
        torch.float32,
        {"map:": "lanes", "BLOCK": 64},
    ),
    (nn.Conv2d(128, 16, 3, padding=1), [(16, 128, 128, 256)], torch.float32, {"call:conv2d": "stencil"}),
    (nn.Conv2d(16, 16, 3, padding=1), [(32, 16, 32, 32)], torch.float32, {"call:conv2d": "library"}),
    (nn.ConvTranspose2d(32, 16, (5, 3), padding=1), [(8, 32, 256, 32)], torch.float32, {"call:conv_tr": "stencil"}),
    (
        nn.ConvTranspose3d(96, 16, (4, 5, 3), padding=1),
        [(4, 96, 40, 30, 21)],
        torch.float32,
        {"call:conv_transpose3d": "library"},
    ),
    (
        nn.Sequential(nn.Conv3d(32, 16, 3, padding=2, dilation=2), nn.MaxPool3d(2, 2)),
        [(8, 32, 5, 30, 5)],
        torch.float32,
        {"call:conv3d": "stencil", "call:conv3d:grid": "plane"},
    ),
    (
        nn.Sequential(nn.Conv3d(16, 16, 1), nn.LogSoftmax(1)).bfloat16(),
        [(4, 16, 5, 40, 20)],
        torch.bfloat16,
        {"call:conv3d": "library"},
    ),
    (
        nn.Sequential(nn.Conv2d(32, 256, 1, stride=2), nn.LeakyReLU(0.05)).half(),
        [(8, 32, 129, 128)],
        HALF,
        {"call:conv2d": "implicit", "GEMM_M": 128, "GEMM_N": 128, "GEMM_K": 32},
    ),
    (
        nn.Sequential(
            nn.ConvTranspose2d(16, 64, (2, 4), stride=2, padding=1, output_padding=1), nn.MaxPool2d(4)
        ).half(),
        [(32, 16, 129, 32)],
        HALF,
        {"call:conv_transpose2d": "library"},
    ),
    (
        nn.Sequential(nn.Conv2d(256, 16, 5, stride=2, padding=2), nn.LogSigmoid()).bfloat16(),
        [(128, 256, 128, 32)],
        torch.bfloat16,
        {"call:conv2d": "library", "channels_last:conv2d": True},
    ),
    (
        nn.Sequential(nn.ConvTranspose2d(128, 16, 3, padding=1), nn.SiLU()).bfloat16(),
        [(128, 128, 32, 128)],
        torch.bfloat16,
        {"call:conv_transpose2d": "library", "channels_last:conv_transpose2d": True},
    ),
    (
        nn.Sequential(nn.Conv2d(96, 16, 5, padding=4, dilation=2), nn.BatchNorm2d(16), nn.GroupNorm(4, 16)).half(),
        [(32, 96, 192, 128)],
        HALF,
        {"channels_last:conv2d": True, "map:group_norm_rows": "transpose", "map:group_norm_kernel": "block"},
    ),
    (torch.mv, [(32768, 32768), (32768,)], torch.float32, {"GEMV_ROWS": 2, "GEMV_UNROLL": 1}),
    (lambda x: torch.logsumexp(x, 1), [(16384, 4096)], torch.float32, {"row_cache:": "registers", "ROW_BLOCK": 256}),
    (lambda x: (2 - F.gelu(x)).mean(4), [(64, 96, 40, 5, 21)], torch.float32, {"LANES": 4, "ROW_ITEMS": 2}),
    (lambda x: torch.softmax(x, 1), [(64, 3, 32, 129)], torch.bfloat16, {"map:": "columns", "BLOCK": 64}),
    (lambda x: x.sigmoid().log_softmax(1), [(32, 3, 129, 256)], torch.float32, {"map:": "columns", "BLOCK": 64}),
    (lambda x: x.square().var((2, 3)), [(1, 3, 129, 129)], HALF, {"cooperative:": False, "ROW_BLOCK": 512}),
    (
        nn.Sequential(nn.Conv1d(32, 32, 5, padding=2, bias=False), Bell(), nn.GroupNorm(2, 32)).bfloat16(),
        [(1, 32, 65536)],
        torch.bfloat16,
        {"cooperative:": True, "COOP_BLOCKS": 128, "ROW_BLOCK": 512},
    ),
    (nn.ConvTranspose2d(128, 16, (2, 3), padding=1), [(4, 128, 129, 32)], torch.float32, {"channels_last:": True}),
    (nn.Conv2d(3, 16, 7, padding=3).half(), [(32, 3, 128, 128)], HALF, {"channels_last:": True}),
    (nn.Conv1d(32, 32, 7, stride=2, bias=False), [(8, 32, 32769)], torch.float32, {"call:conv1d": "library"}),
    (
        nn.ConvTranspose3d(64, 32, (4, 5, 5), padding=1),
        [(32, 64, 5, 20, 5)],
        torch.float32,
        {"call:conv_transpose3d": "library"},
    ),
    (
        nn.ConvTranspose3d(48, 16, 3, stride=2),
        [(4, 48, 40, 30, 40)],
        torch.float32,
        {"call:conv_transpose3d": "stencil", "call:conv_transpose3d:tile": "4x4x2"},
    ),
    (nn.Linear(1000, 1024), [(128, 1000)], torch.float32, {"call:linear": "library"}),
    (torch.matmul, [(128, 512), (512, 1024)], torch.float32, {"call:matmul": "library"}),
    (rolled_twice, [(128, 64, 8192)], torch.float32, {"intermediate:": "recompute", "ROW_ITEMS": 4}),
    (
        nn.Sequential(nn.Conv2d(64, 64, (3, 7), stride=2, padding=1), nn.AdaptiveAvgPool2d(1)).bfloat16(),
        [(4, 64, 128, 129)],
        torch.bfloat16,
        {"map:adaptive": "columns", "cooperative:": True},
    ),
    (
        nn.Sequential(nn.Conv2d(128, 128, 3), nn.Softsign(), nn.AvgPool2d(3, 2)).half(),
        [(64, 128, 32, 192)],
        HALF,
        {"call:avg_pool2d:grid": "vectors", "call:avg_pool2d:tile": "1x1x4"},
    ),
    (
        nn.Sequential(nn.ConvTranspose2d(64, 32, 5, stride=2, padding=1), nn.AvgPool2d(2, 2)).half(),
        [(1, 64, 256, 129)],
        HALF,
        {"call:avg_pool2d:grid": "vectors", "call:avg_pool2d:tile": "1x1x2"},
    ),
    (nn.AvgPool3d(4, 4), [(1, 96, 21, 40, 5)], torch.float32, {"call:avg_pool3d:lanes": 16}),
    (lambda x: F.max_pool3d(F.glu(x, 1), 4), [(8, 64, 20, 20, 20)], torch.float32, {"call:max_pool3d:lanes": 8}),
    (lambda x: x / x.norm(), [(12, 255, 128)], torch.float32, {"ROW_BLOCK": 256, "ROW_ITEMS": 4}),
    (lambda x: torch.sort(x, dim=-1)[0], [(64000, 768)], HALF, {"call:sort": "library"}),
    (lambda x: torch.sort(x, dim=-1)[0], [(16384, 255)], HALF, {"call:sort": "sort"}),
    (nn.AvgPool3d(4, 4), [(64, 64, 40, 40, 40)], torch.float32, {"call:avg_pool3d:lanes": 1}),
    (torch.matmul, [(2048, 128), (128, 16)], HALF, {"call:matmul": "library"}),
    (torch.matmul, [(768, 255), (255, 16)], HALF, {"call:matmul": "library"}),
    (torch.matmul, [(2048, 128), (128, 8)], HALF, {"call:matmul": "gemv"}),
    (lambda x, y: x.triu() @ y.triu(), [(255, 255)] * 2, HALF, {"call:matmul": "library"}),
    (lambda x, y: x.triu() @ y.triu(), [(128, 128)] * 2, HALF, {"call:matmul": "gemm"}),
    (torch.matmul, [(48, 1020), (1020, 1000)], torch.float32, {"call:matmul": "library"}),
    (torch.matmul, [(512, 48), (48, 256)], torch.float32, {"call:matmul": "gemm"}),
    (nn.Conv2d(96, 96, 3, stride=2).half(), [(1, 96, 168, 224)], HALF, {"channels_last:conv2d": True}),
    (nn.Conv3d(3, 256, 2, stride=3, bias=False), [(1, 3, 40, 30, 40)], torch.float32, {"call:conv3d": "library"}),
    (nn.ConvTranspose3d(3, 32, 2), [(32, 3, 20, 30, 30)], torch.float32, {"call:conv_transpose3d": "stencil"}),
    (nn.ConvTranspose2d(16, 128, 2), [(16, 16, 112, 112)], torch.float32, {"call:conv_transpose2d": "library"}),
]


@pytest.mark.parametrize(("function", "shapes", "dtype", "wanted"), CASES)
def test_defaults(
    function: Callable[..., Any], shapes: list[tuple[int, ...]], dtype: torch.dtype, wanted: dict[str, Value]
) -> None:
    found = chosen(Op(function), *shapes, dtype=dtype)
    for key, value in wanted.items():
        assert of(found, key)[:1] == [value], (key, found)


def test_large_windows_of_volumes_are_products_of_parts() -> None:
    """They take an H200 239 us, the library 463."""
    model, x = nn.ConvTranspose3d(64, 32, (4, 5, 5), padding=1).to("meta"), torch.empty(32, 64, 5, 20, 5, device="meta")
    found = author(captured(model, [x]), {SPLIT: True}).space
    assert found["call:conv_transpose3d"].default == "split"


def test_packs_pass_the_caches_where_a_product_is_written_over_and_only_there() -> None:
    layer = nn.Sequential(nn.Linear(4096, 4096), nn.SiLU()).half()
    assert chosen(layer, (8192, 4096), dtype=HALF)["stream"] == "both"
    beside = Op(lambda x, y: (F.silu(x @ x), y.relu()))
    assert chosen(beside, (4096, 4096), (4096, 4096), dtype=HALF)["stream"] == "no", (
        "another kernel streams from memory"
    )
    assert chosen(Op(lambda x: x.relu()), (4096, 4096))["stream"] == "no"
    assert chosen(Op(lambda x: x.relu()), (8192, 4096))["stream"] == "keep"


def test_attention_of_narrow_heads_in_float32_is_one_kernel() -> None:
    def written(q: Any, k: Any, v: Any) -> Any:
        return torch.softmax(q @ k.transpose(-1, -2) * 0.17, -1) @ v

    for size, usual in ((32, "fused"), (64, "separate")):
        found = chosen(Op(written), *[(4, 8, 1024, size)] * 3)
        assert of(found, "attention:") == [usual]


def test_norms_read_an_activation_of_a_channels_last_convolution_in_their_order() -> None:
    def gated_norms(x: Any, weight: Any) -> Any:
        a, b = torch.tanh(F.conv2d(x, weight, padding=1)).chunk(2, 1)
        return F.instance_norm(F.layer_norm(F.silu(a) + b, (32, 128, 256)))

    found = chosen(Op(gated_norms), (16, 128, 128, 256), (64, 128, 3, 3), dtype=torch.bfloat16)
    assert found["channels_last:conv2d"] and found["intermediate:tanh"] == "stored"


@pytest.mark.parametrize(("heads", "threads"), [(32, 128), (8, 256)])
def test_blocks_of_several_queries_of_a_decoded_token_are_small(heads: int, threads: int) -> None:
    def decode(q: Any, k: Any, v: Any) -> Any:
        return F.scaled_dot_product_attention(q, k, v, enable_gqa=True)

    shapes = [(16, heads, 1, 128), (16, 8, 8192, 128), (16, 8, 8192, 128)]
    found = chosen(Op(decode), *shapes, dtype=torch.bfloat16)
    assert of(found, "call:scaled_dot_product_attention")[:1] == ["split"] and found["DECODE_BLOCK"] == threads


@pytest.mark.parametrize(
    ("rows", "columns", "wanted"),
    [
        (16384, 4096, {"COLUMN_VEC": 8, "COLUMNS": 32, "COOP_BLOCKS": 33}),
        (4096, 1000, {"COLUMN_VEC": 8, "COLUMNS": 16, "COOP_BLOCKS": 32}),
        (1000, 1024, {"COLUMN_VEC": 1, "COLUMNS": 8, "BLOCK": 512, "cooperative:var_mean_kernel": False}),
        (64, 512, {"COLUMN_VEC": 1, "COLUMNS": 32}),
        (786432, 16, {"COLUMN_VEC": 8, "COLUMNS": 2}),
    ],
)
def test_statistics_of_columns_fill_the_device(rows: int, columns: int, wanted: dict[str, Value]) -> None:
    """By blocks that share columns, narrower where there are few; short columns by narrow vectors."""
    found = chosen(Op(lambda x: torch.var_mean(x, 0)), (rows, columns), dtype=HALF)
    assert {key: found.get(key) for key in wanted} == wanted, found


@pytest.mark.parametrize(("side", "mappings"), [(8192, ["block", "columns"]), (1024, ["block"])])
def test_a_matrix_is_reduced_along_its_rows_and_along_its_columns_apart(side: int, mappings: list[str]) -> None:
    assert of(chosen(Op(both_ways), (side, side)), "map:") == mappings


@pytest.mark.parametrize(
    ("rows", "columns", "wanted"),
    [
        (16384, 4096, {"COLUMN_VEC": 8, "COOP_BLOCKS": 33}),
        (1024, 256, {"COLUMN_VEC": 1, "COLUMNS": 8, "ROW_ITEMS": 8}),
        (512, 4096, {"COLUMN_VEC": 1}),
        (128, 1024, {"COLUMN_VEC": 1}),
    ],
)
def test_batch_norms_of_few_columns_fill_the_device(rows: int, columns: int, wanted: dict[str, Value]) -> None:
    """By blocks that share columns, in a kernel of their own, where columns are long; else by narrow vectors."""
    found = chosen(nn.BatchNorm1d(columns).to(HALF), (rows, columns), dtype=HALF)
    assert {key: found.get(key) for key in wanted} == wanted, found
    assert len(of(found, "cooperative:")) == (rows > 1024)
