"""Cooperative blocks: partials exchanged without fences, and the row cache in LDS."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from hipwright.engine import space, write
from hipwright.engine.fuse import schedule
from hipwright.records import Program
from hipwright.toolchain.cpu.sides import Side
from hipwright.toolchain.device_headers import inlined
from tests.engine.harness import Op, captured, check, compare, reference, run
from tests.engine.rows.test_half_type_rows import twin
from tests.engine.template_builds import program_builds

INFINITY = float("inf")
SMALL = {"ROW_BLOCK": 64, "ROW_ITEMS": 2, "COOP_BLOCKS": 4}
"""A block has a tile of 512 floats, the blocks of a row keep four times that."""
SIDES: tuple[Side, ...] = ("", "amd")
"""The row cache in LDS, and in registers."""
LENGTHS = (1, 5, 511, 2048, 2600, 4096, 5003)
"""Lengths: blocks without an element, a cut tile, full blocks, rows that exceed registers and LDS."""


def softmax(x: torch.Tensor) -> Any:
    return x.softmax(-1)


def standard(x: torch.Tensor) -> Any:
    return F.layer_norm(x, (x.shape[-1],), eps=1e-3)


def scaled(x: torch.Tensor) -> Any:
    """Two states of one pass, and one of the next."""
    shifted = x - x.mean(-1, keepdim=True)
    return shifted / (shifted.abs().amax(-1, keepdim=True) + x.amin(-1, keepdim=True).abs() + 1)


def largest_first(x: torch.Tensor) -> Any:
    """A state that is not of floats."""
    return x - x.argmax(-1, keepdim=True).float()


def whole(x: torch.Tensor) -> Any:
    """Sums of integers."""
    return x - x.sum(-1, keepdim=True)


def draw(rows: int, length: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    x = torch.randn(rows, length, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    return (x * 9).to(dtype)


def programmed(function: Callable[..., Any], dtype: torch.dtype, **choices: Any) -> Program:
    """The program of long rows whose blocks wait; few blocks, which the cpu target runs at once."""
    graph = captured(Op(function), [torch.empty(300, 1 << 17, dtype=dtype)])
    names = {
        key: choices.pop("lds_cache") for key in space(graph) if key.startswith("lds_cache:") and "lds_cache" in choices
    }
    return write(graph, {**SMALL, **choices, **names})


@pytest.mark.parametrize("lds_cache", [False, True])
@pytest.mark.parametrize("wave", [32, 64])
@pytest.mark.parametrize(
    ("function", "dtype"),
    [
        (softmax, torch.float32),
        (softmax, torch.float16),
        (standard, torch.float32),
        (standard, torch.bfloat16),
        (scaled, torch.float32),
    ],
)
@pytest.mark.matrix(keep=3)
def test_values(function: Callable[..., Any], dtype: torch.dtype, wave: int, lds_cache: bool) -> None:
    model, written = Op(function), programmed(function, dtype, lds_cache=lds_cache)
    assert "publish_partial(" in written.text and "cooperative_barrier" not in written.text
    assert ("cp_async_wait_all" in written.text) == lds_cache
    for length in LENGTHS:
        x = draw(5, length, dtype)
        if function is softmax:
            x[1], x[2, length // 2], x[3, length - 1] = -INFINITY, INFINITY, float("nan")
        expected, native, _ = reference(model, [x])
        got, _ = run(written, model, [x], wave=wave)
        compare(got, expected, native)


@pytest.mark.parametrize("amd", [False, True])
@pytest.mark.parametrize("lds_cache", [1, 2, 3])
@pytest.mark.parametrize(
    "knobs",
    [{"ROW_VEC": 1}, {"ROW_ITEMS": 1}, {"ROW_BLOCK": 128, "COOP_BLOCKS": 2}, {"ROW_BLOCK": 1024, "ROW_ITEMS": 4}, {}],
)
@pytest.mark.matrix(keep=5)
def test_cached_tiles(knobs: dict[str, int], lds_cache: int, amd: bool) -> None:
    """Any number and shape of cached tiles, also none that fits; in LDS, and in registers as on AMD."""
    model, written = Op(softmax), programmed(softmax, torch.float32, lds_cache=True, LDS_TILES=lds_cache, **knobs)
    assert "ROW_CACHE(" in written.text and written.text.count("UNROLL_ROW_CACHE") > 1
    for length in (1000, 5003):
        x = draw(3, length)
        expected, native, _ = reference(model, [x])
        got, _ = run(written, model, [x], side="amd" if amd else "")
        compare(got, expected, native)


def test_several_axes_and_weights() -> None:
    """Strided rows of images, and operands that are not kept."""
    images, channels = draw(6, 4000).view(6, 4, 10, 100) + 9, torch.nn.BatchNorm2d(4)
    norm = torch.nn.LayerNorm((4, 10, 100))
    torch.nn.init.normal_(norm.weight)
    for model, like in (
        (Op(lambda x: torch.relu(F.batch_norm(x, None, None, training=True))), torch.empty(64, 256, 64, 64)),
        (channels, torch.empty(64, 4, 512, 512)),
    ):
        graph = captured(model, [like])
        names = {key: True for key in space(graph) if key.startswith("lds_cache:")}
        assert names
        expected, native, _ = reference(model, [images])
        got, _ = run(write(graph, {**SMALL, **names}), model, [images])
        compare(got, expected, native)
    written = programmed(standard, torch.float32, lds_cache=True)
    assert "cp_async_tile<" in written.text
    expected, native, _ = reference(norm, [images])
    names = {"lds_cache:layer_norm_kernel": True, "cooperative:layer_norm_kernel": True}
    got, _ = run(write(captured(norm, [images]), {**SMALL, **names}), norm, [images])
    compare(got, expected, native)


@pytest.mark.parametrize(
    ("function", "dtype"), [(largest_first, torch.float32), (whole, torch.int64), (softmax, torch.float64)]
)
def test_other_states_count_arrivals(function: Callable[..., Any], dtype: torch.dtype) -> None:
    """Indices, integers and doubles do not fit the published words: arrivals are counted between fences."""
    model, written = Op(function), programmed(function, dtype)
    assert "cooperative_barrier(" in written.text and "publish_partial" not in written.text
    x = draw(4, 3001, torch.float64).to(dtype)
    expected, native, _ = reference(model, [x])
    got, _ = run(written, model, [x])
    compare(got, expected, native)


def test_a_nan_of_all_ones_is_published() -> None:
    """Inverted it would be zero, which means "not published yet", and the blocks would wait forever."""
    model, written = Op(softmax), programmed(softmax, torch.float32)
    x = draw(3, 3000)
    x.view(torch.int32)[1] = -1
    got, _ = run(written, model, [x])
    assert got[1].isnan().all() and torch.allclose(got[0], x[0].softmax(-1)) and not got[2].isnan().any()


def test_partials_and_ticket_share_a_buffer() -> None:
    """One launch zeroes it; the words of each state follow those of the one before."""
    text = programmed(scaled, torch.float32).text
    (zeroed,) = re.findall(r"torch\.zeros\((.*)\)", text)
    assert "dtype=torch.int64" in zeroed
    offsets = re.findall(r"_partials \+ 1( \+ \S+ \* blocks \* \d+)? \+ row \* blocks", text)
    assert len(offsets) == len(set(offsets)) == 3
    assert f"* {len(offsets)} + 1," in zeroed


def test_resources_of_waiting_blocks() -> None:
    """Four blocks on a multiprocessor: 64 registers, none spilled, LDS for four. No fence, no atomic but the ticket."""
    for lds_cache in (False, True):
        graph = captured(Op(softmax), [torch.empty(128, 1 << 20)])
        program = write(graph, {"lds_cache:softmax_kernel": lds_cache})
        kernel = next(k for k in program_builds(program, lambda target: 2).kernels if k.name.endswith("_exact"))
        assert kernel.vgpr <= 64 and kernel.spills == 0 and kernel.lds_bytes <= 49152
        ptx = twin(program)
        assert len(re.findall(r"\batom\.|\bred\.", ptx)) == 1 and not re.search(r"\bfence|\bmembar", ptx)
        assert ptx.count("cp.async.cg") == (8 if lds_cache else 0)


def test_lanes_synchronise_after_waiting() -> None:
    """Lanes leave a waiting loop at different times on NVIDIA, and would shuffle without the others: without a barrier
    four programs were wrong on an H200, and the cpu target cannot show it.
    """
    text = programmed(softmax, torch.float32).text
    assert "combine_published_partials<" in text
    gather = inlined(text).split("T combine_published_partials(")[1].split("\n}")[0]
    loop, rest = gather.split("await_partial<T>", 1)
    assert "__syncthreads" not in loop and rest.index("__syncthreads()") < rest.index("block_reduce")


@pytest.mark.parametrize("shape", [(64, 256, 56, 56), (64, 256, 57, 55)])
def test_strided_rows_in_lds(shape: tuple[int, int, int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    """A channel of many images: tiles of several runs, of whole vectors or not."""
    monkeypatch.setattr(schedule, "ODD_TOTAL", 1 << 40)
    model = Op(lambda x: torch.relu(F.batch_norm(x, None, None, training=True)))
    written = write(captured(model, [torch.empty(shape)]), SMALL)
    assert "cp_async_strided_row<" in written.text
    for small in ((9, 3, *shape[2:]), (2, 5, 3, 8)):
        x = draw(small[0] * small[1], small[2] * small[3]).view(small) + 5
        expected, native, _ = reference(model, [x])
        for side in SIDES:
            got, _ = run(written, model, [x], side=side)
            compare(got, expected, native)


@pytest.mark.parametrize("shape", [(8, 1025, 1), (3, 1025, 1, 1), (2, 2, 5000, 1), (1, 4097, 1)])
def test_rows_before_dimensions_of_one_element(shape: tuple[int, ...]) -> None:
    """One reduced dimension that is not the last, as the dimensions behind it have one element."""
    at = next(k for k, n in enumerate(shape) if n > 8)
    check(Op(lambda x: x.softmax(at)), [torch.randn(shape)])
    check(Op(lambda x: x - x.mean(at, keepdim=True)), [torch.randn(shape)])


def greedy(x: torch.Tensor) -> Any:
    """A maximum with its place, and the logarithm of the sum that the same maximum shifts."""
    best, token = x.max(-1)
    return token, best - x.logsumexp(-1)


def placed(x: torch.Tensor) -> Any:
    return x.argmax(-1), x.logsumexp(-1)


@pytest.mark.parametrize("function", [greedy, placed, lambda x: (*x.max(-1), x.softmax(-1))])
@pytest.mark.parametrize("length", [300, 5003])
@pytest.mark.parametrize("cooperative", [True, False])
def test_a_maximum_that_is_placed_and_shifts_exponentials(
    function: Callable[..., Any], length: int, cooperative: bool
) -> None:
    knobs: dict[str, Any] = {"ROW_ITEMS": 1, "ROW_BLOCK": 64, "COOP_BLOCKS": 4}
    check(Op(function), [draw(3, length)], choices=knobs | {"default:cooperative": cooperative})
