"""Stencils of shifted slices: where most vectors would be unaligned, elements are loaded one by one."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from hipwright.engine import space, write
from tests.engine.harness import Op, captured, check
from tests.engine.rows.test_half_type_rows import twin
from tests.engine.template_builds import builds, program_builds

SINGLE = "load_whole_vectors<ROW_ITEMS, 1>"


def heat(u: torch.Tensor) -> Any:
    c = u[1:-1, 1:-1, 1:-1]
    x = u[2:, 1:-1, 1:-1] + u[:-2, 1:-1, 1:-1]
    y = u[1:-1, 2:, 1:-1] + u[1:-1, :-2, 1:-1]
    return c + 0.1 * (x + y + u[1:-1, 1:-1, 2:] + u[1:-1, 1:-1, :-2] - 6.0 * c)


def blurred(u: torch.Tensor) -> Any:
    return u[:, :-4] + u[:, 1:-3] + u[:, 2:-2] + u[:, 3:-1] * u[:, 4:]


def apart(u: torch.Tensor) -> Any:
    return u[:, :-4] + u[:, 1:-3] * u[:, 4:]


def text(function: Any, *shape: int) -> str:
    return write(captured(Op(function), [torch.empty(*shape)])).text


@pytest.mark.parametrize("wave", [32, 64])
def test_values(wave: int) -> None:
    u = torch.randn(5, 9, 262, generator=torch.Generator().manual_seed(1))
    for function, x, other in ((heat, u, u[:4, :5, :23]), (blurred, u[0].half(), u[1, :, :100].half())):
        names = [k for k in space(captured(Op(function), [x])) if k.startswith("map:")]
        choices = dict.fromkeys(names, "rows")
        assert SINGLE in check(Op(function), [x], choices=choices, wave=wave, other=[other.contiguous()])


def test_vectors_where_most_are_aligned() -> None:
    assert SINGLE not in text(apart, 4096, 1028)
    assert SINGLE not in text(blurred, 4096, 1028)  # half of the packs lie on their borders
    assert SINGLE in text(heat, 20, 130, 514)
    assert SINGLE not in text(lambda u: u[:, 1:].sum(1), 4096, 1025)


def test_builds() -> None:
    builds(Op(heat), [torch.empty(130, 258, 514)])


def laplace(u: torch.Tensor) -> Any:
    c = u[..., 1:-1, 1:-1]
    return c + 0.2 * (u[..., :-2, 1:-1] + u[..., 2:, 1:-1] + u[..., 1:-1, :-2] + u[..., 1:-1, 2:] - 4.0 * c)


def sobel(u: torch.Tensor) -> Any:
    i = u.float()
    d = i[:, 2:] - i[:, :-2]
    return (d[..., :-2] + 2 * d[..., 1:-1] + d[..., 2:] + i[:, 1:-1, 2:]).half()


@pytest.mark.matrix(keep=3)
@pytest.mark.parametrize("wave", [32, 64])
@pytest.mark.parametrize(
    ("function", "shape", "other"),
    [
        (laplace, (3, 10, 70), (2, 9, 69)),  # odd lengths: element by element
        (laplace, (12, 34), (5, 300)),  # no plane
        (sobel, (2, 11, 36), (1, 4, 3)),
        (heat, (4, 7, 40), (3, 3, 3)),
    ],
)
def test_sliding_rows(function: Any, shape: tuple[int, ...], other: tuple[int, ...], wave: int) -> None:
    dtype = torch.float16 if function is sobel else torch.float32
    x, y = (torch.randn(s, generator=torch.Generator().manual_seed(2)).to(dtype) for s in (shape, other))
    names = [k for k in space(captured(Op(function), [x])) if k.startswith("map:")]
    text = check(Op(function), [x], choices=dict.fromkeys(names, "sliding"), wave=wave, other=[y])
    assert "load_span<" in text


def edges(image: torch.Tensor) -> Any:
    i = image.float()
    d, s = i[:, 2:] - i[:, :-2], i[:, :-2] + 2.0 * i[:, 1:-1] + i[:, 2:]
    down, across = d[..., :-2] + 2.0 * d[..., 1:-1] + d[..., 2:], s[..., 2:] - s[..., :-2]
    return torch.sqrt(down * down + across * across).to(image.dtype)


@pytest.mark.parametrize("wave", [32, 64])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("side", [2, 4])
@pytest.mark.matrix(keep=3)
def test_half_types_slide_by_four(side: int, dtype: torch.dtype, wave: int) -> None:
    """Rows of outputs that are a multiple of four, of two, odd ones; fewer rows than a thread computes."""
    x, *others = (
        torch.randn(s, generator=torch.Generator().manual_seed(4)).to(dtype)
        for s in ((2, 11, 38), (1, 6, 40), (3, 9, 37), (2, 3, 18))
    )
    x[0, 3], x[1, 4, 5], x[1, 8, 9] = 0.0, float("nan"), float("inf")
    (name,) = [k for k in space(captured(Op(edges), [x])) if k.startswith("map:")]
    kernel = name.removeprefix("map:")
    for other in others:
        text = check(
            Op(edges), [x], choices={name: "sliding", f"stencil_width:{kernel}": side}, wave=wave, other=[other]
        )
        assert f"store_vector<{side}>(" in text and "to_floats(" in text


def test_instructions_of_half_type_stencils() -> None:
    """Each input is converted once for the 16 outputs of a thread, and a square root is one instruction."""
    x = torch.empty(8, 1026, 1026).half()
    assert space(captured(Op(edges), [x]))["stencil_width:to_copy_sub_mul"].options == (2, 4)
    program = write(captured(Op(edges), [x]))
    ptx = twin(program)
    assert ptx.count("cvt.f32.f16") == 6 * 6 + 2 * 8  # and what two elements at a border read
    assert ptx.count("sqrt.approx.f32") == 16 + 2 and "sqrt.rn.f32" not in ptx
    assert "sqrt_fast" not in text(lambda u: torch.sqrt(u[1:, 1:] + u[:-1, 1:] + u[1:, :-1] + u[:-1, :-1]), 2050, 2050)
    assert "stencil_width:to_copy_sub_mul" not in space(captured(Op(edges), [x[..., :-2]]))  # 1022 outputs are no fours
    program_builds(program, lambda target: 2)


def test_large_stencils_slide() -> None:
    """A thread that computes four rows loads six, each once."""
    assert text(laplace, 64, 1024, 1024).count("= load_span<") == 6
    builds(Op(laplace), [torch.empty(8, 1024, 1024)])
    builds(Op(sobel), [torch.empty(8, 1026, 1022).half()])


def deep(u: torch.Tensor) -> Any:
    """A stencil over many volumes."""
    c = u[:, 1:-1]
    across = c[..., 1:, :-2] + c[..., :-1, :-2] - c[..., 1:, 1:-1] * c[..., :-1, 2:] + c[..., 1:, 2:]
    return u[:, 2:, 1:, 1:-1] * u[:, :-2, 1:, 1:-1] + across


@pytest.mark.parametrize(("planes", "threads"), [(1, 64), (2, 128), (4, 256), (8, 64)])
@pytest.mark.matrix(keep=2)
def test_a_block_covers_planes(planes: int, threads: int) -> None:
    """Fewer planes than a block covers, more, and a remainder alone; rows longer than its threads."""
    knobs = {"PLANES": planes, "ROW_BLOCK": threads}
    for function, shapes in ((heat, [(7, 8, 70), (3, 5, 262)]), (deep, [(3, 5, 6, 40), (2, 11, 4, 300)])):
        x, y = (torch.randn(s, generator=torch.Generator().manual_seed(5)) for s in shapes)
        (name,) = [k for k in space(captured(Op(function), [x])) if k.startswith("map:")]
        text = check(Op(function), [x], choices={name: "sliding", **knobs}, other=[y])
        assert "/ PLANES" in text


def test_planes_are_a_knob_where_outputs_read_several() -> None:
    choices = space(captured(Op(heat), [torch.empty(258, 258, 258)]))
    assert (choices["PLANES"].default, choices["ROW_BLOCK"].default) == (4, 256)
    assert "PLANES" not in space(captured(Op(laplace), [torch.empty(64, 1024, 1024)]))
    program_builds(write(captured(Op(heat), [torch.empty(514, 514, 514)])), lambda target: 2)
