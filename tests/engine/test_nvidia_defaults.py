"""The engine's defaults in runs for NVIDIA GPUs where measurements of an H200 made a difference, by measured shapes."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from hipwright.engine import author
from hipwright.engine.knobs import SPLIT, Value
from tests.engine.harness import Op, captured

CASES: list[tuple[nn.Module, tuple[int, ...], dict[str, Value]]] = [
    (
        nn.ConvTranspose2d(16, 128, 2),
        (16, 16, 112, 112),
        {"call:conv_transpose2d": "split"},
    ),  # estimated: 127 us of 225
    (nn.Conv3d(16, 64, 3, stride=3), (16, 16, 39, 40, 30), {"product:": False, "call:conv3d": "library"}),
    (
        nn.ConvTranspose1d(16, 64, 2).half(),
        (16, 16, 16384),
        {"image:": True, "call:": "library", "channels_last:": True},
    ),
    (
        nn.ConvTranspose1d(16, 16, 5, padding=1).half(),
        (64, 16, 32767),
        {"image:": True, "call:": "library", "channels_last:": True},
    ),
    (nn.Conv1d(32, 64, 3, padding=1).half(), (32, 32, 16384), {"image:": True, "channels_last:": True}),
    (nn.Conv1d(16, 256, 1, stride=3).half(), (8, 16, 32768), {"image:": True, "call:": "library"}),
    (nn.ConvTranspose1d(64, 64, 4).half(), (1, 64, 4096), {"image:": False}),
    (
        nn.Conv2d(32, 16, 1, groups=2),
        (64, 32, 65, 65),
        {"call:conv2d": "stencil", "call:conv2d:tile": "8x2x1", "call:conv2d:grid": "plane"},
    ),
    (nn.Conv2d(256, 64, 1, stride=2, groups=2), (64, 256, 17, 17), {"call:conv2d": "stencil"}),
    (nn.Conv2d(64, 128, 1, groups=4).half(), (64, 64, 32, 32), {"call:conv2d": "stencil"}),
    (nn.Conv2d(512, 64, 1, groups=2), (64, 512, 17, 17), {"call:conv2d": "library"}),
    (
        nn.Sequential(nn.Linear(256, 256), nn.Mish(), nn.Linear(256, 256), nn.Mish()).half(),
        (128, 256),
        {"call:linear": "library", "call:linear_1": "library"},
    ),
    (nn.Sequential(nn.Mish(), nn.Linear(256, 256), nn.Mish()).half(), (128, 256), {"call:linear": "gemm"}),
]
"""Layers with an input of the weights' dtype; the first choice whose key begins so."""


@pytest.mark.parametrize(("layer", "shape", "wanted"), CASES)
def test_defaults_for_nvidia(layer: nn.Module, shape: tuple[int, ...], wanted: dict[str, Value]) -> None:
    dtype = next(layer.parameters()).dtype
    graph = captured(layer.to("meta"), [torch.empty(shape, dtype=dtype, device="meta")])
    found = {key: choice.default for key, choice in author(graph, {SPLIT: True}).space.items()}
    for key, value in wanted.items():
        assert next(v for k, v in found.items() if k.startswith(key)) == value, (key, found)


@pytest.mark.parametrize(
    ("heads", "rows", "shared", "keys", "size", "dtype", "wanted"),
    [
        ((40, 20), 1, 20, 1500, 64, torch.float16, "library"),  # Whisper's beams: 75.5 us of 83
        ((32, 16), 1, 16, 8192, 128, torch.bfloat16, "library"),  # 472 of 480
        ((4, 32), 1, 32, 4096, 128, torch.bfloat16, "split"),
        ((64, 32), 1, 8, 4096, 128, torch.bfloat16, "matrix"),
        ((40, 20), 1, 20, 1500, 64, torch.float32, "split"),
    ],
)
def test_one_query_a_head(
    heads: tuple[int, int], rows: int, shared: int, keys: int, size: int, dtype: torch.dtype, wanted: str
) -> None:
    shapes = ((*heads, rows, size), *[(heads[0], shared, keys, size)] * 2)
    grouped = {"enable_gqa": True} if shared != heads[1] else {}
    graph = captured(
        Op(lambda *x: nn.functional.scaled_dot_product_attention(*x, **grouped)),
        [torch.empty(shape, dtype=dtype, device="meta") for shape in shapes],
    )
    assert author(graph, {SPLIT: True}).space["call:scaled_dot_product_attention"].default == wanted
