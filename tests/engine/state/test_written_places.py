"""Writes into parts of an input: the caller's tensor gets them, and a program writes nothing but what they touch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from hipwright.device.cpu.launcher import CpuLauncher
from hipwright.engine import author, write
from hipwright.engine.partition.places import touched_places
from hipwright.engine.plan.library import library_program
from hipwright.errors import GuardFailed
from hipwright.program import parse
from hipwright.program.lower.closures import lower
from hipwright.task.host.state import build as state_table
from hipwright.toolchain.cpu import build as cpu
from tests.engine.capturing import captured
from tests.engine.harness import CACHE, Op

TOKENS, SLOTS, HEADS, HEAD = 12, 64, 4, 8


def slots() -> torch.Tensor:
    """As many different slots as there are tokens."""
    return torch.randperm(SLOTS)[:TOKENS]


def keys(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """One value for each token, or of a shape."""
    return torch.randn(*(shape or (TOKENS, HEADS, HEAD)), dtype=dtype)


def by_index_copy(cache: Any, slots: Any, k: Any) -> None:
    cache.index_copy_(0, slots, k)


def by_index_put(cache: Any, slots: Any, k: Any) -> None:
    cache[slots] = k


def along_the_middle(cache: Any, slots: Any, k: Any) -> None:
    cache[:, slots] = k


def by_block_and_offset(cache: Any, block: Any, offset: Any, k: Any) -> None:
    cache[block, offset] = k


def through_a_flat_view(cache: Any, slots: Any, k: Any) -> None:
    cache.view(-1, HEADS, HEAD)[slots] = k


def keys_and_values(cache: Any, slots: Any, k: Any, v: Any) -> None:
    cache[0, slots] = k
    cache[1, slots] = v * 2.0


def two_parts_of_a_row(cache: Any, slots: Any, k: Any, v: Any) -> None:
    cache[slots, :, :6] = k
    cache[slots, :, 6:] = v


def by_slot_mapping(cache: Any, other: Any, slots: Any, k: Any, v: Any) -> None:
    cache[slots // 8, slots % 8] = k
    other[slots // 8, slots % 8] = v * 2.0


def parts_of_any_width(cache: Any, slots: Any, k: Any, v: Any) -> None:
    cache[slots, : k.shape[1]] = k
    cache[slots, k.shape[1] :] = v


def parts_that_overlap(cache: Any, slots: Any, k: Any, v: Any) -> None:
    cache[slots, :6] = k
    cache[slots, 2:] = v


def a_slice(cache: Any, k: Any) -> None:
    cache[5:17] = k


def a_slice_of_heads(cache: Any, k: Any) -> None:
    cache[:, 1:3, :].copy_(k)


def one_element_each(cache: Any, index: Any, k: Any) -> None:
    cache.scatter_(1, index, k)


def one_number(cache: Any, slots: Any) -> None:
    cache[slots] = 1.5


def scaled_in_place(cache: Any, slots: Any, k: Any) -> None:
    cache[slots] = cache[slots] * 0.5 + k


def overlapping_slices(cache: Any) -> None:
    cache[1:] = cache[:-1] + 1.0


def turned(cache: Any, k: Any) -> None:
    cache.transpose(0, 1)[2] = k


HALF = torch.bfloat16
FORMS: dict[str, tuple[Callable[..., None], Callable[[], list[torch.Tensor]]]] = {
    "index_copy": (by_index_copy, lambda: [keys(SLOTS, HEADS, HEAD), slots(), keys()]),
    "half": (by_index_copy, lambda: [keys(SLOTS, HEADS, HEAD, dtype=HALF), slots(), keys(dtype=HALF)]),
    "index_put": (by_index_put, lambda: [keys(SLOTS, HEADS, HEAD), slots(), keys()]),
    "broadcast": (by_index_put, lambda: [keys(SLOTS, HEADS, HEAD), slots(), keys(HEAD)]),
    "middle": (along_the_middle, lambda: [keys(HEADS, SLOTS, HEAD), slots(), keys(HEADS, TOKENS, HEAD)]),
    "block": (
        by_block_and_offset,
        lambda: [keys(8, 8, HEADS, HEAD), *(f(slots(), 8) for f in (torch.floor_divide, torch.remainder)), keys()],
    ),
    "view": (through_a_flat_view, lambda: [keys(8, 8, HEADS, HEAD), slots(), keys()]),
    "pair": (keys_and_values, lambda: [keys(2, SLOTS, HEADS, HEAD), slots(), keys(), keys()]),
    "parts": (
        two_parts_of_a_row,
        lambda: [keys(SLOTS, HEADS, HEAD), slots(), keys(TOKENS, HEADS, 6), keys(TOKENS, HEADS, 2)],
    ),
    "mapping": (by_slot_mapping, lambda: [*(keys(8, 8, HEADS, HEAD) for _ in "kv"), slots(), keys(), keys()]),
    "widths": (parts_of_any_width, lambda: [keys(SLOTS, 28), slots(), keys(TOKENS, 16), keys(TOKENS, 12)]),
    "overlap": (parts_that_overlap, lambda: [keys(SLOTS, 8), slots(), keys(TOKENS, 6), keys(TOKENS, 6)]),
    "slice": (a_slice, lambda: [keys(SLOTS, HEADS, HEAD), keys()]),
    "heads": (a_slice_of_heads, lambda: [keys(SLOTS, HEADS, HEAD), keys(SLOTS, 2, HEAD)]),
    "scatter": (one_element_each, lambda: [keys(SLOTS, 9), torch.randn(SLOTS, 9).argsort(1)[:, :3], keys(SLOTS, 3)]),
    "number": (one_number, lambda: [keys(SLOTS, HEADS, HEAD), slots()]),
    "scaled": (scaled_in_place, lambda: [keys(SLOTS, HEADS, HEAD), slots(), keys()]),
    "shifted": (overlapping_slices, lambda: [keys(SLOTS, HEADS, HEAD)]),
}


def run(program: Any, model: torch.nn.Module, inputs: list[torch.Tensor]) -> tuple[Any, int]:
    """(outputs, bytes that its kernels write) of a program that may write its inputs."""
    parsed = parse(program.text)
    build = cpu.build(parsed.hip, parsed.defines(program.knobs), wave=64, checked=True, cache=CACHE, unsafe=True)
    assert build.ok, build.log[:3000] + program.text
    launcher = CpuLauncher(str(CACHE.path(build.blob)), parsed.signatures, wave=64)
    with torch.no_grad():
        outputs = lower(parsed, program.knobs, state_table(model), launcher).forward(*inputs)
    return outputs, sum(entry["write_bytes"] for entry in launcher.stats())


@pytest.mark.parametrize("form", FORMS)
def test_only_the_touched_part_is_written(form: str) -> None:
    function, made = FORMS[form]
    torch.manual_seed(3)
    model, inputs = Op(function), made()
    graph = captured(model, [tensor.clone() for tensor in inputs])
    authored = author(graph)
    assert not authored.explanation["library"], authored.explanation
    wanted = [tensor.clone() for tensor in inputs]
    function(*wanted)
    _, written = run(authored.program, model, inputs)
    for got, want in zip(inputs, wanted, strict=True):
        assert torch.equal(got, want), form
    touched = touched_places(graph, graph.mutations[0])
    assert touched is not None, form
    rest = inputs[0].nbytes - sum(tensor.nbytes for tensor in inputs[1:] if tensor.is_floating_point())
    if form not in ("shifted", "broadcast", "number"):
        assert 0 < written < inputs[0].nbytes - rest // 2, (form, written)


class Attended(torch.nn.Module):
    """Reads the cache that it has just written."""

    def forward(self, cache: torch.Tensor, slots: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
        cache[slots] = k
        return cache.sum(dim=(1, 2))


def test_what_is_read_afterwards_is_read_from_the_written_tensor() -> None:
    torch.manual_seed(4)
    inputs = [keys(SLOTS, HEADS, HEAD), slots(), keys()]
    program = write(captured(Attended(), [tensor.clone() for tensor in inputs]))
    wanted = [tensor.clone() for tensor in inputs]
    expected = Attended()(*wanted)
    got, written = run(program, Attended(), inputs)
    assert torch.equal(inputs[0], wanted[0]) and torch.allclose(got, expected, atol=1e-5)
    assert written == inputs[2].nbytes + got.nbytes


class BeforeAndAfter(torch.nn.Module):
    """Needs what was there before and after: no kernel can read both from one tensor."""

    def forward(self, cache: torch.Tensor, slots: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
        old = cache * 2.0
        cache[slots] = k
        return cache - old


def test_old_and_new_values_together() -> None:
    torch.manual_seed(5)
    inputs = [keys(SLOTS, HEADS, HEAD), slots(), keys()]
    graph = captured(BeforeAndAfter(), [tensor.clone() for tensor in inputs])
    assert touched_places(graph, graph.mutations[0]) is None
    wanted = [tensor.clone() for tensor in inputs]
    expected = BeforeAndAfter()(*wanted)
    got, _ = run(write(graph), BeforeAndAfter(), inputs)
    assert torch.equal(inputs[0], wanted[0]) and torch.allclose(got, expected, atol=1e-5)


def test_a_form_that_is_not_followed_is_written_as_a_whole() -> None:
    torch.manual_seed(7)
    inputs = [keys(SLOTS, HEADS, HEAD), keys(SLOTS, HEAD)]
    wanted = inputs[0].clone()
    turned(wanted, inputs[1])
    run(write(captured(Op(turned), [tensor.clone() for tensor in inputs])), Op(turned), inputs)
    assert torch.equal(inputs[0], wanted)


def test_a_value_that_would_be_repeated_is_not_claimed() -> None:
    program = write(captured(Op(by_index_put), [keys(SLOTS, HEADS, HEAD), slots(), keys()]))
    with pytest.raises(GuardFailed):
        run(program, Op(by_index_put), [keys(SLOTS, HEADS, HEAD), slots(), keys(1, HEADS, HEAD)])


def test_an_input_that_is_not_contiguous_is_written_too() -> None:
    torch.manual_seed(6)
    wide = keys(SLOTS, HEADS, 2 * HEAD)
    inputs, wanted = [wide[..., :HEAD], slots(), keys()], wide.clone()
    program = write(captured(Op(by_index_put), [inputs[0].clone(), *inputs[1:]]))
    wanted[inputs[1], :, :HEAD] = inputs[2]
    run(program, Op(by_index_put), inputs)
    assert torch.equal(wide, wanted)


@pytest.mark.parametrize("form", ["index_copy", "index_put", "block", "pair", "parts", "slice", "heads", "scatter"])
def test_a_plan_of_library_calls_writes_in_place(form: str) -> None:
    function, made = FORMS[form]
    torch.manual_seed(8)
    inputs = made()
    program = library_program(captured(Op(function), [tensor.clone() for tensor in inputs]))
    assert "cache.copy_" not in program.text and "x_0.copy_" not in program.text, "it copies the whole"
    wanted = [tensor.clone() for tensor in inputs]
    function(*wanted)
    run(program, Op(function), inputs)
    assert torch.equal(inputs[0], wanted[0]), program.text


def test_an_8_bit_cache_is_written_by_a_kernel() -> None:
    torch.manual_seed(9)
    cache, k = keys(SLOTS, HEADS, HEAD).to(torch.float8_e4m3fn), keys().to(torch.float8_e4m3fn)
    inputs = [cache, slots(), k]
    program = write(captured(Op(by_index_put), [tensor.clone() for tensor in inputs]))
    assert ".index_put_([" not in program.text and "float8.h" in program.text
    wanted = cache.clone()
    wanted[inputs[1]] = k
    run(program, Op(by_index_put), inputs)
    assert torch.equal(cache.view(torch.uint8), wanted.view(torch.uint8))


ONE_LAUNCH = {"mapping": True, "widths": True, "pair": True, "parts": True, "overlap": False}


@pytest.mark.parametrize("form", ONE_LAUNCH)
def test_writes_that_touch_other_places_are_one_launch(form: str) -> None:
    function, made = FORMS[form]
    torch.manual_seed(10)
    inputs = made()
    program = write(captured(Op(function), [tensor.clone() for tensor in inputs]), {"exact": False})
    assert program.text.count("__global__") == (1 if ONE_LAUNCH[form] else 2), program.text
    wanted = [tensor.clone() for tensor in inputs]
    function(*wanted)
    run(program, Op(function), inputs)
    assert all(torch.equal(got, right) for got, right in zip(inputs, wanted, strict=True)), program.text


@pytest.mark.parametrize("widths", [(16, 12), (5, 7), (16, 0), (8, 3)])
def test_rows_of_every_width_are_written_whole(widths: tuple[int, int]) -> None:
    torch.manual_seed(11)
    program = write(captured(Op(parts_of_any_width), FORMS["widths"][1]()))
    try:
        inputs = [keys(SLOTS, sum(widths)), slots(), *(keys(TOKENS, width) for width in widths)]
        wanted = inputs[0].clone()
        parts_of_any_width(wanted, *inputs[1:])
        run(program, Op(parts_of_any_width), inputs)
    except GuardFailed:
        assert widths[0] != 16, "the width of the first part is the capture's"
        return
    assert torch.equal(inputs[0], wanted)


def test_a_cache_of_bytes_is_written_in_vectors() -> None:
    def function(cache: Any, slots: Any, k: Any) -> None:
        cache[slots] = (k / 2.0).clamp(-448.0, 448.0).to(cache.dtype)

    torch.manual_seed(12)
    inputs = [keys(SLOTS, HEADS, HEAD).to(torch.float8_e4m3fn), slots(), keys()]
    program = write(captured(Op(function), [tensor.clone() for tensor in inputs]))
    assert "store_whole<8>" in program.text
    wanted = inputs[0].clone()
    function(wanted, *inputs[1:])
    run(program, Op(function), inputs)
    assert torch.equal(inputs[0].view(torch.uint8), wanted.view(torch.uint8))
