"""State of short rows that move within themselves: one kernel reads, overwrites and uses each row."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from hipwright.engine import explain, space, write
from hipwright.program import parse
from hipwright.toolchain.cpu.sides import Side
from tests.engine.harness import FLOOR, captured, run
from tests.engine.template_builds import builds

SIZES = (6, 64)
OTHER = ((3, 64), (5, 17), (1, 2), (2, 258))
Step = Callable[..., Any]


class Named(torch.nn.Module):
    """A step as a module whose inputs have names."""

    def __init__(self, step: Step) -> None:
        super().__init__()
        self.step = step

    def forward(self, window: Any, x: Any, weight: Any, bias: Any) -> Any:
        return self.step(window, x, weight, bias)


def _step(window: Any, x: Any, weight: Any, bias: Any) -> Any:
    """A causal convolution's step whose window holds the new element too."""
    window.copy_(torch.cat([window[:, :, 1:], x.unsqueeze(-1)], dim=-1))
    return F.silu((window.float() * weight.float()).sum(dim=-1) + bias.float()).to(x.dtype)


def _before(window: Any, x: Any, weight: Any, bias: Any) -> Any:
    """The same with a window of the elements before alone: one narrower than the filter."""
    whole = torch.cat([window, x.unsqueeze(-1)], dim=-1)
    window.copy_(whole[:, :, 1:])
    return ((whole * weight).sum(dim=-1) + bias).to(x.dtype)


def _turned(window: Any, x: Any, weight: Any, bias: Any) -> Any:
    """Every element of a row is overwritten by one that is overwritten itself."""
    window.copy_(window.flip(-1))
    return window[:, :, 0] * x + weight[:, 0] - bias


def _alone(window: Any, x: Any, weight: Any, bias: Any) -> Any:
    """Nothing but the state."""
    window.copy_(torch.cat([window[:, :, 1:] * 0.5, (x * bias).unsqueeze(-1)], dim=-1))
    return weight[:, 0] + bias


FORMS: dict[str, Step] = {"step": _step, "before": _before, "turned": _turned, "alone": _alone}


def _inputs(form: str, width: int, dtype: torch.dtype, sizes: tuple[int, int]) -> list[torch.Tensor]:
    torch.manual_seed(3)
    rows, channels = sizes
    taps = width + 1 if form == "before" else width
    shapes = [(rows, channels, width), (rows, channels), (channels, taps), (channels,)]
    return [torch.randn(shape).to(dtype) for shape in shapes]


def _check(program: Any, step: Step, inputs: list[torch.Tensor], wave: int = 64, side: Side = "") -> None:
    """The result and the state, both as torch computes them in float64."""
    wide = [tensor.double() for tensor in inputs]
    wanted = step(*wide)
    found, _ = run(program, Named(step), inputs, wave=wave, side=side)
    floor = FLOOR[inputs[0].dtype] * 8
    torch.testing.assert_close(found.double(), wanted, rtol=floor, atol=floor)
    torch.testing.assert_close(inputs[0].double(), wide[0], rtol=floor, atol=floor)


@pytest.mark.matrix(keep=6)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("width", [2, 3, 4, 7])
@pytest.mark.parametrize("form", FORMS)
def test_one_kernel_steps_the_state(form: str, width: int, dtype: torch.dtype) -> None:
    step = FORMS[form]
    program = write(captured(Named(step), _inputs(form, width, dtype, SIZES)))
    touching = [kernel for kernel in re.findall(r'extern "C" [^{]*', program.text) if "window" in kernel]
    assert len(touching) == 1, "one kernel alone touches the state"
    for sizes in (SIZES, *OTHER):
        _check(program, step, _inputs(form, width, dtype, sizes), wave=32 if width == 3 else 64)


@pytest.mark.matrix(keep=3)
@pytest.mark.parametrize("vec", [1, 2, 4, 8])
@pytest.mark.parametrize("width", [3, 4])
def test_every_vector_has_whole_rows(width: int, vec: int) -> None:
    program = write(
        captured(Named(_step), _inputs("step", width, torch.bfloat16, SIZES)), {"ROW_VEC": vec, "ROW_ITEMS": 2}
    )
    for sizes in (SIZES, *OTHER):
        _check(program, _step, _inputs("step", width, torch.bfloat16, sizes))


@pytest.mark.parametrize("side", ["", "amd", "nvidia"])
def test_a_state_off_a_vector_s_boundary(side: Side) -> None:
    program = write(captured(Named(_step), _inputs("step", 4, torch.bfloat16, SIZES)))
    inputs = _inputs("step", 4, torch.bfloat16, SIZES)
    for number, tensor in enumerate(inputs):
        memory = torch.zeros(tensor.numel() + 1, dtype=tensor.dtype)
        inputs[number] = memory[1:].view(tensor.shape).copy_(tensor)
    _check(program, _step, inputs, side=side)


def test_copies_keep_their_bits() -> None:
    """A NaN of the window moves as it is."""
    inputs = _inputs("step", 4, torch.bfloat16, SIZES)
    program = write(captured(Named(_step), inputs))
    bits = torch.randint(-(1 << 15), 1 << 15, inputs[0].shape, dtype=torch.int16)
    inputs[0] = bits.clone().view(torch.bfloat16)
    run(program, Named(_step), inputs)
    assert torch.equal(inputs[0].view(torch.int16)[:, :, :3], bits[:, :, 1:])


def _other_rows(window: Any, x: Any, weight: Any, bias: Any) -> Any:
    """The rows change places: a thread would read what another overwrites."""
    window.copy_(window.roll(1, 1))
    return window[:, :, 0] * x + weight[:, 0] - bias


def _read_before(window: Any, x: Any, weight: Any, bias: Any) -> Any:
    """The old rows go to a reduction over them."""
    scale = window.amax(dim=1)[:, None]
    window.copy_(torch.cat([window[:, :, 1:], x.unsqueeze(-1)], dim=-1) * scale)
    return window[:, :, 0] * x + weight[:, 0] - bias


def _summed(window: Any, x: Any, weight: Any, bias: Any) -> Any:
    """The new rows are read by a reduction too."""
    window.copy_(torch.cat([window[:, :, 1:], x.unsqueeze(-1)], dim=-1))
    return (window * weight).sum(dim=-1) + bias + window.sum(dim=1)[:, :1]


@pytest.mark.parametrize("step", [_other_rows, _read_before, _summed])
def test_what_other_threads_read_is_not_overwritten(step: Step) -> None:
    program = write(captured(Named(step), _inputs("step", 4, torch.float32, SIZES)))
    for sizes in (SIZES, *OTHER):
        _check(program, step, _inputs("step", 4, torch.float32, sizes))


def test_the_choice_keeps_the_copy() -> None:
    graph = captured(Named(_step), _inputs("step", 4, torch.bfloat16, SIZES))
    assert space(graph)["overwrite:window"].options == ("fused", "separate")
    program = write(graph, {"overwrite:window": "separate"})
    _check(program, _step, _inputs("step", 4, torch.bfloat16, SIZES))
    assert len(explain(graph, {"overwrite:window": "separate"})["kernels"]) > len(explain(graph)["kernels"]) == 1


def test_rows_are_loaded_as_vectors() -> None:
    text = builds(Named(_step), _inputs("step", 4, torch.bfloat16, (32, 256)))
    fast = text[text.index("if (has_whole_vectors") : text.index("} else {")]
    assert "load_short_rows<ROW_ITEMS, ROW_VEC, 4>(window" in fast
    assert "load_short_rows<ROW_ITEMS, ROW_VEC, 4>(weight" in fast
    assert "store_short_rows<ROW_ITEMS, ROW_VEC, 4>(window" in fast
    assert not re.search(r"\b(window|weight|x|bias)\[", fast), "no single element is loaded"
    assert parse(text).knobs["ROW_VEC"].default == 2, "two rows of four half numbers are 16 bytes"
