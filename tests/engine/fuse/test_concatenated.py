"""Rows joined from equal parts: a thread computes the same columns of all of them, in packs and without a condition."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from hipwright.engine import space, write
from tests.engine.harness import Op, captured, check, compare, reference, run
from tests.engine.template_builds import program_builds


def rotary(q: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> Any:
    first, second = q.chunk(2, dim=-1)
    return torch.cat([first * cos - second * sin, first * sin + second * cos], dim=-1)


def rotated(q: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> Any:
    """As transformers write it: the condition lies within the arithmetic."""
    first, second = q.chunk(2, dim=-1)
    cos, sin = torch.cat([cos, cos], -1), torch.cat([sin, sin], -1)
    return q * cos + torch.cat([-second, first], dim=-1) * sin


def thirds(q: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> Any:
    part = q[..., : cos.shape[-1]]
    return torch.cat([part * cos, part + sin, cos - part], dim=-1)


def pair(q: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> Any:
    """Two results, of which one is joined otherwise: no parts of one width."""
    both = torch.cat([cos, sin], -1)
    return q * both, torch.cat([cos[:, :8], sin, cos[:, 8:]], -1)


FUNCTIONS = {f.__name__: f for f in (rotary, rotated, thirds, pair)}


def inputs(heads: int, length: int, half: int, dtype: torch.dtype) -> list[torch.Tensor]:
    drawn = torch.Generator().manual_seed(heads + half)
    shapes = [(heads, length, 2 * half), (length, half), (length, half)]
    return [torch.randn(*shape, generator=drawn).to(dtype) for shape in shapes]


@pytest.mark.parametrize("wave", [32, 64])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.matrix(keep=3)
def test_values(name: str, dtype: torch.dtype, wave: int) -> None:
    """At a half of whole packs, at one that is none, at one that is odd, at one longer than its lanes.

    The program captured at the first runs all, where tracing leaves its sizes free.
    """
    model, large = Op(FUNCTIONS[name]), inputs(2, 520, 64, dtype)
    free = write(captured(model, large))
    for case in (large, inputs(3, 5, 12, dtype), inputs(2, 3, 33, dtype), inputs(1, 2, 1000, dtype)):
        program = free
        if name in ("rotated", "pair"):
            graph = captured(model, case)
            program = write(graph, {key: "parts" for key in space(graph) if key.startswith("concat:")})
        expected, native, _ = reference(model, case)
        got, _ = run(program, model, case, wave=wave)
        compare(got, expected, native)


@pytest.mark.parametrize("name", ["rotary", "rotated"])
def test_each_input_is_read_once_in_packs(name: str) -> None:
    """Of 1 << 17 elements and more; fewer wait for their launch, not for memory."""
    large, small = inputs(2, 520, 64, torch.bfloat16), inputs(2, 20, 64, torch.bfloat16)
    text = write(captured(Op(FUNCTIONS[name]), large)).text
    body = text[text.index("if (has_whole_vectors") :].partition("} else {")[0]
    assert body.count(" = load_whole_vectors<") == 4  # both halves of q, cos and sin
    assert body.count("store_whole_vectors<") == 2
    assert " ? " not in body and "continue" not in body
    assert "load_whole_vectors<" not in write(captured(Op(FUNCTIONS[name]), small)).text


def test_rows_may_stay_whole() -> None:
    graph = captured(Op(rotary), inputs(2, 520, 64, torch.float32))
    (key,) = (k for k in space(graph) if k.startswith("concat:"))
    check(Op(rotary), inputs(2, 520, 64, torch.float32), choices={key: "whole"})


@pytest.mark.parametrize("make", [rotary, rotated])
def test_builds(make: Callable[..., Any]) -> None:
    """Two stores of 16 bytes for each four loads of them."""
    shapes = [(4, 32, 4096, 128), (4096, 64), (4096, 64)]
    program = write(captured(Op(make), [torch.empty(*s, dtype=torch.bfloat16) for s in shapes]))
    build = program_builds(program, lambda target: 4)
    sized = min(build.kernels, key=lambda k: k.vgpr)  # the twin that knows the sizes, or the only kernel
    assert sized.vgpr <= 48 and sized.scratch_bytes == 0 and sized.widest_vmem_bytes == 16


class NormedHeads(torch.nn.Module):
    def __init__(self, size: int, dtype: torch.dtype) -> None:
        super().__init__()
        self.norm = torch.nn.RMSNorm(size, eps=1e-6, dtype=dtype)

    def forward(self, q: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> Any:
        return rotated(self.norm(q).transpose(1, 2), cos, sin)


class Thirds(torch.nn.Module):
    """Thirds of a row, below its largest element."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(size, generator=torch.Generator().manual_seed(5)))

    def forward(self, q: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> Any:
        wide = q * self.weight
        first, second, third = (wide - wide.amax(-1, keepdim=True)).chunk(3, dim=-1)
        return first * cos + second * sin - third


@pytest.mark.parametrize("early", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("half", [64, 20, 33])
def test_reductions_go_by_the_parts_of_their_rows(half: int, dtype: torch.dtype, early: bool) -> None:
    """A norm in front of a rotation reads its row once; operands may be loaded before the sum is known."""
    drawn = torch.Generator().manual_seed(half)
    q = torch.randn(1, 7, 3, 2 * half, generator=drawn).to(dtype)
    angles = [torch.randn(7, half, generator=drawn).to(dtype) for _ in range(2)]
    model = NormedHeads(2 * half, dtype)
    graph = captured(model, [q, *angles])
    folds = [key for key in space(graph) if key.startswith(("fold_parts:", "early_operands:"))]
    assert len(folds) == 2
    text = check(model, [q, *angles], choices={key: early for key in folds if "early" in key})
    assert text.count("auto q_tile") == 2, "each part is loaded once"
    assert text.count("this thread's tile of the row") == 2
    check(model, [q, *angles], choices=dict.fromkeys(folds, False))


def test_a_maximum_goes_by_thirds() -> None:
    drawn = torch.Generator().manual_seed(3)
    q, cos, sin = (torch.randn(40, width, generator=drawn) for width in (3 * 24, 24, 24))
    q[3, 60], q[4] = float("nan"), float("-inf")
    assert "nan_max(nan_max(" in check(Thirds(72), [q, cos, sin])


def test_normed_heads_build() -> None:
    inputs = [torch.empty(1, 512, 32, 128).bfloat16(), *(torch.empty(512, 64).bfloat16() for _ in range(2))]
    program_builds(write(captured(NormedHeads(128, torch.bfloat16), inputs)), lambda target: 4)
