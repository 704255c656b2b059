"""Memory-bound templates: correct on the cpu target, and laid out as the roofline demands at large sizes: one read and
one write of memory, 16-byte accesses, no scratch on any AMD target; the same source compiles for NVIDIA.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F

from hipwright.engine import explain, space, write
from hipwright.program import parse
from hipwright.records import Build
from hipwright.toolchain.amd import offline as amdgpu
from hipwright.toolchain.cache import BuildCache
from hipwright.toolchain.nvidia import nvrtc
from hipwright.toolchain.pool import CompilePool
from tests.engine.harness import CACHE, captured, compare, reference, run

TARGETS = ("gfx90a", "gfx942", "gfx950", "gfx1100")


class Call(torch.nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: torch.Tensor) -> Any:
        return self.function(*inputs)


class ChannelNorm(torch.nn.Module):
    """RMSNorm over dimension 1."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(draw(channels, 1, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * torch.rsqrt(x.pow(2).mean(1, keepdim=True) + 1e-5) * self.weight


def draw(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(5)).to(dtype)


def classes(count: int, rows: int) -> torch.Tensor:
    return torch.randint(0, count, (rows,), generator=torch.Generator().manual_seed(5))


def like(x: torch.Tensor, *shape: int) -> torch.Tensor:
    """A large input, of which only the shape is used."""
    return torch.empty(shape, dtype=x.dtype)


HALF = torch.float16
TASKS: dict[str, tuple[nn.Module, list[torch.Tensor], list[tuple[int, ...]]]] = {
    "softmax of long rows": (Call(lambda x: x.softmax(-1)), [draw(3, 70000)], [(256, 393216)]),
    "softmax": (Call(lambda x: x.softmax(-1)), [draw(9, 1111)], [(4096, 8192)]),
    "softmax in half": (Call(lambda x: x.softmax(-1)), [draw(9, 2048, dtype=HALF)], [(16384, 4096)]),
    "log softmax over channels": (Call(lambda x: x.log_softmax(1)), [draw(3, 40, 50)], [(64, 256, 16384)]),
    "layer norm": (nn.LayerNorm(1028), [draw(7, 1028) + 30], []),
    "layer norm over several axes": (nn.LayerNorm((3, 70, 90)), [draw(4, 3, 70, 90)], []),
    "group norm": (nn.GroupNorm(2, 6), [draw(3, 6, 40, 70)], [(32, 6, 256, 256)]),
    "instance norm": (nn.InstanceNorm2d(5), [draw(2, 5, 90, 100)], [(32, 5, 512, 512)]),
    "batch norm in training": (nn.BatchNorm2d(5).train(), [draw(6, 5, 40, 44)], [(64, 5, 256, 256)]),
    "rms norm over channels": (ChannelNorm(24), [draw(3, 24, 15, 20)], [(32, 24, 256, 256)]),
    "cumulative sum": (Call(lambda x: x.cumsum(-1)), [draw(300, 777)], [(4096, 16384)]),
    "cumulative sum of few rows": (Call(lambda x: x.cumsum(-1)), [draw(2, 30001)], [(4, 1 << 24)]),
    "cumulative sum down columns": (Call(lambda x: x.cumsum(1)), [draw(3, 50, 41)], [(64, 1024, 1024)]),
    "cross entropy": (Call(F.cross_entropy), [draw(70, 501), classes(501, 70)], [(8192, 32768), (8192,)]),
    "column sums": (Call(lambda x: x.sum(0)), [draw(6000, 40)], [(1 << 17, 512)]),
    "sum over the middle": (Call(lambda x: x.sum(1)), [draw(5, 60, 70)], [(64, 4096, 1024)]),
    "total": (Call(lambda x: x.mean()), [draw((1 << 18) + 5)], [(1 << 26,)]),
    "bias": (Call(lambda x, b: F.gelu(x + b)), [draw(1200, 130), draw(130)], [(8192, 8192), (8192,)]),
    "bias of channels": (
        Call(lambda x, b: torch.relu(x * b[:, None, None])),
        [draw(9, 11, 40, 41), draw(11)],
        [(32, 11, 256, 256), (11,)],
    ),
    "pointwise in half": (Call(lambda x, y: x + 2 * y), [draw(400, 1001, dtype=HALF)] * 2, [(8192, 8192)] * 2),
    "transpose": (Call(lambda x: x.transpose(1, 2) + 1), [draw(3, 190, 270)], [(16, 2048, 2048)]),
    "channels last in half": (
        Call(lambda x: x.permute(0, 2, 3, 1).contiguous()),
        [draw(2, 66, 30, 50, dtype=HALF)],
        [(16, 64, 256, 256)],
    ),
}


def large(name: str) -> tuple[nn.Module, list[torch.Tensor]]:
    """The task at a size that fills a GPU, or as it is where parameters fix the size."""
    model, inputs, shapes = TASKS[name]
    return model, [like(x, *shape) for x, shape in zip(inputs, shapes, strict=True)] if shapes else inputs


def text_of(name: str, choices: dict[str, Any] | None = None) -> str:
    model, inputs = large(name)
    return write(captured(model, inputs), choices or {}).text


@pytest.mark.matrix(keep=16)
@pytest.mark.parametrize("wave", [32, 64])
@pytest.mark.parametrize("name", list(TASKS))
def test_values(name: str, wave: int) -> None:
    model, inputs, _ = TASKS[name]
    if (len(name) + wave // 32) % 2:
        pytest.skip("each task at one wave size")
    expected, native, buffers = reference(model, inputs)
    got, after = run(write(captured(model, inputs)), model, inputs, wave=wave)
    compare(got, expected, native)
    for key, value in buffers.items():
        if value.is_floating_point():
            torch.testing.assert_close(after[key].double(), value, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", list(TASKS))
@pytest.mark.matrix(keep=9)
def test_no_scratch_on_amd(name: str, target: str) -> None:
    model, inputs = large(name)
    program = parse(write(captured(model, inputs)).text)
    build = amdgpu.build(program.hip, target, program.defines({}), cache=CACHE, unsafe=True)
    assert build.ok, build.log[:2000]
    assert [k.name for k in build.kernels if k.scratch_bytes] == []
    twins = {k.name for k in build.kernels if k.name.endswith("_exact")}  # others may keep scalars in vector registers
    assert [k.name for k in build.kernels if k.spills and f"{k.name}_exact" not in twins] == []
    turned = {"transpose", "channels last in half", "cumulative sum down columns"}
    if name not in turned:
        assert max(k.widest_vmem_bytes for k in build.kernels) == 16


@pytest.fixture(scope="module")
def compilers() -> Iterator[CompilePool]:
    with nvrtc.zygote() as zygote, CompilePool(zygote, 1) as made:
        yield made


@pytest.mark.parametrize("name", list(TASKS))
@pytest.mark.matrix(keep=3)
def test_nvrtc(name: str, compilers: CompilePool, tmp_path: Path) -> None:
    model, inputs = large(name)
    program = parse(write(captured(model, inputs)).text)
    build: Build = nvrtc.build(
        program.hip, program.defines({}), arch="sm_90", pool=compilers, cache=BuildCache(tmp_path)
    )
    assert build.ok, build.log[:2000]


# ---------------------------------------------------------------- what the texts must show


def kernels(name: str) -> list[tuple[str, str]]:
    model, inputs = large(name)
    return [(k["name"], k["mapping"]) for k in explain(captured(model, inputs))["kernels"]]


@pytest.mark.parametrize(
    ("name", "mapping"),
    [
        ("softmax of long rows", "block, cooperative"),
        ("softmax", "block"),
        ("group norm", "block, cooperative"),
        ("instance norm", "block, cooperative"),
        ("rms norm over channels", "columns"),
        ("log softmax over channels", "columns"),
        ("column sums", "columns, cooperative"),
        ("total", "block, cooperative"),
        ("bias", "rows"),
        ("bias of channels", "rows"),
        ("pointwise in half", "vector"),
        ("transpose", "transpose"),
        ("channels last in half", "transpose"),
    ],
)
def test_mapping_of_the_one_kernel(name: str, mapping: str) -> None:
    assert [m for _, m in kernels(name)] == [mapping]


def test_cross_entropy_is_one_pass_and_a_small_kernel() -> None:
    assert len(kernels("cross entropy")) == 2
    text = text_of("cross entropy")
    assert "SoftmaxState<float>" in text
    assert len(re.findall(r"load_tile<[^;]*\(inputs_0 \+", text)) == 1


@pytest.mark.parametrize("name", ["softmax of long rows", "softmax", "group norm", "batch norm in training"])
def test_values_of_later_passes_are_kept(name: str) -> None:
    """A row's first tile is loaded once; only loops over what exceeds registers load again."""
    body = text_of(name, {"exact": False}).split('extern "C"')[1]
    loads = [line for line in body.splitlines() if re.search(r"= load_tile<.*(inputs_0|input)( |,)", line)]
    assert len(loads) == 3
    assert "this thread's tile of the row" in body


def test_a_row_of_fixed_length_is_loaded_once() -> None:
    body = text_of("layer norm").split('extern "C"')[1]
    assert len(re.findall(r"= load_tile<", body)) == 3  # the input, the weight, the bias
    assert "for (int start" not in body


def test_no_division_along_a_row() -> None:
    """Broadcast operands: indices are split once per block, not once per element."""
    for name in ("bias", "bias of channels"):
        body = text_of(name, {"exact": False}).split('extern "C"')[1]
        loop = body[body.index("#pragma unroll") :]
        assert not re.search(r"[/%] \(?inputs_[01]_", loop), loop


def test_cooperative_mappings_are_choices() -> None:
    model, inputs = large("softmax of long rows")
    graph = captured(model, inputs)
    (key,) = (k for k in space(graph) if k.startswith("cooperative:"))
    assert space(graph)[key].default is True
    assert "take_block_ticket" not in write(graph, {key: False}).text
    model, inputs = large("cumulative sum of few rows")
    graph = captured(model, inputs)
    (key,) = (k for k in space(graph) if k.startswith("map:"))
    assert space(graph)[key].default == "chunks"
    assert "await_tile_prefix" not in write(graph, {key: "rows"}).text


# ---------------------------------------------------------------- choices, tails and hard values


@pytest.mark.matrix(keep=3)
@pytest.mark.parametrize(
    "choices",
    [
        {"COOP_BLOCKS": 4, "ROW_BLOCK": 64, "ROW_ITEMS": 1},
        {"COOP_BLOCKS": 2, "ROW_VEC": 8, "ROW_ITEMS": 2, "ROW_BLOCK": 128},
        {"cooperative": False, "ROW_BLOCK": 64},
    ],
)
@pytest.mark.parametrize("name", ["softmax of long rows", "layer norm over several axes", "batch norm in training"])
def test_cooperative_blocks_of_other_sizes(name: str, choices: dict[str, Any]) -> None:
    model, inputs, _ = TASKS[name]
    graph = captured(model, inputs)
    cooperative = {k: choices.get("cooperative", True) for k in space(graph) if k.startswith("cooperative:")}
    expected, native, _ = reference(model, inputs)
    got, _ = run(write(graph, {**choices, **cooperative}), model, inputs)
    compare(got, expected, native)


def test_online_softmax_of_hard_rows() -> None:
    """Infinities, a constant row, a large spread; every length, with another tail."""
    model = Call(lambda x: (x.softmax(-1), x.logsumexp(-1), x.log_softmax(-1)))
    x = draw(6, 9001)
    x[0] = -torch.inf
    x[1, 5000] = torch.inf
    x[2, :] = 3.0
    x[3, :4000] = -torch.inf
    x[4] *= 1e4
    program = write(captured(model, [draw(6, 9001)]))
    for case in (x, x[:, :77].contiguous(), x[:, :9000].contiguous()):
        expected, native, _ = reference(model, [case])
        got, _ = run(program, model, [case])
        compare(got, expected, native)


def test_moments_of_a_large_mean() -> None:
    model = Call(lambda x: (x.var(-1), F.layer_norm(x, x.shape[1:]), x.var(0)))
    x = draw(40, 3000) + 3000.0
    expected, native, _ = reference(model, [x])
    got, _ = run(write(captured(model, [x])), model, [x])
    compare(got, expected, native)


def test_unaligned_rows_and_tensors() -> None:
    """A program for rows of 16-byte vectors, run with odd rows and with a tensor at an odd address."""
    model = Call(lambda x: (x.softmax(-1), x * 2, x.sum(-1), x.t() + 1))
    program = write(captured(model, [draw(40, 512)]))
    for case in (draw(33, 511), draw(40 * 512 + 1)[1:].view(40, 512)):
        expected, native, _ = reference(model, [case])
        got, _ = run(program, model, [case])
        compare(got, expected, native)
