"""Honest ways to quantise: the same task with sums in other orders and scales rounded otherwise.

A task is a body of operators, written once as users write it; a way is a choice at each place where implementations
differ: how a norm's squares are added, how a root, a largest size, a step and a quotient are formed. All ways round to
nearest even, saturate, and use the step that they return up to its last bits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

EPS, LEAST = 1e-6, 1e-10
SUMS = ("whole", "halves", "lanes", "reversed", "by column", "float64")
ROOTS = ("rsqrt", "one over sqrt")
LARGEST = ("absolute", "both ends", "parts")
STEPS = ("quotient", "product")
QUOTIENTS = ("division", "reciprocal", "inverse step")
ORDERS = ("clamp first", "clamp last")
SIGMOIDS = ("function", "quotient")


class Way(NamedTuple):
    """One choice at each place. `plain` is the task as it is written."""

    sums: str = SUMS[0]
    root: str = ROOTS[0]
    largest: str = LARGEST[0]
    step: str = STEPS[0]
    quotient: str = QUOTIENTS[0]
    order: str = ORDERS[0]
    sigmoid: str = SIGMOIDS[0]

    def mean_square(self, x: Tensor) -> Tensor:
        """The mean of squares of rows, kept as a column."""
        squares, width = x.square(), x.shape[-1]
        if self.sums == "halves":
            half = width // 2
            total = squares[..., :half].sum(-1, keepdim=True) + squares[..., half:].sum(-1, keepdim=True)
        elif self.sums == "lanes":
            total = sum(squares[..., lane::8].sum(-1, keepdim=True) for lane in range(min(8, width)))
        elif self.sums == "reversed":
            total = squares.flip(-1).cumsum(-1)[..., -1:]
        elif self.sums == "by column":
            total = torch.zeros_like(squares[..., :1])
            for part in squares.split(16, dim=-1):
                total = total + part.sum(-1, keepdim=True)
        elif self.sums == "float64":
            total = squares.double().sum(-1, keepdim=True).to(x.dtype)
        else:
            return squares.mean(-1, keepdim=True)
        return total / width

    def normed(self, x: Tensor, weight: Tensor) -> Tensor:
        """RMSNorm of rows."""
        square = self.mean_square(x) + EPS
        return x * (square.rsqrt() if self.root == "rsqrt" else 1.0 / square.sqrt()) * weight

    def size(self, x: Tensor) -> Tensor:
        """The largest size of rows, kept as a column."""
        if self.largest == "both ends":
            return torch.maximum(x.amax(-1, keepdim=True), -x.amin(-1, keepdim=True))
        if self.largest == "parts":
            return torch.cat([part.abs().amax(-1, keepdim=True) for part in x.split(24, dim=-1)], -1).amax(-1, True)
        return x.abs().amax(-1, keepdim=True)

    def stepped(self, size: Tensor, most: float) -> Tensor:
        """The step of which `most` reach the size."""
        if self.order == "clamp first":
            size = size.clamp(min=LEAST)
            return size / most if self.step == "quotient" else size * (1.0 / most)
        step = size / most if self.step == "quotient" else size * (1.0 / most)
        return step.clamp(min=LEAST / most)

    def divided(self, x: Tensor, step: Tensor, size: Tensor, most: float) -> Tensor:
        """x in steps."""
        if self.quotient == "division":
            return x / step
        if self.quotient == "reciprocal":
            return x * (1.0 / step)
        return x * (most / size.clamp(min=LEAST))

    def silu(self, x: Tensor) -> Tensor:
        """x times its sigmoid."""
        return torch.nn.functional.silu(x) if self.sigmoid == "function" else x / (1.0 + torch.exp(-x))

    def symmetric(self, x: Tensor, most: float) -> tuple[Tensor, Tensor]:
        """(x in steps, within -most to most; the steps)."""
        size = self.size(x)
        step = self.stepped(size, most)
        return self.divided(x, step, size, most).clamp(-most, most), step


def int8_rows(way: Way, x: Tensor, weight: Tensor) -> tuple[Tensor, ...]:
    """Rows as int8."""
    steps, step = way.symmetric(x.float(), 127.0)
    return torch.round(steps).to(torch.int8), step


def e4m3_rows(way: Way, x: Tensor, weight: Tensor) -> tuple[Tensor, ...]:
    """Rows as float8_e4m3fn."""
    steps, step = way.symmetric(x.float(), 448.0)
    return steps.to(torch.float8_e4m3fn), step


def e5m2_rows(way: Way, x: Tensor, weight: Tensor) -> tuple[Tensor, ...]:
    """Rows as float8_e5m2."""
    steps, step = way.symmetric(x.float(), 57344.0)
    return steps.to(torch.float8_e5m2), step


def e4m3_blocks(way: Way, x: Tensor, weight: Tensor) -> tuple[Tensor, ...]:
    """Blocks of 32 of rows as float8_e4m3fn."""
    steps, step = way.symmetric(x.float().unflatten(-1, (-1, 32)), 448.0)
    return steps.to(torch.float8_e4m3fn).flatten(-2), step.squeeze(-1)


def norm_int8_rows(way: Way, x: Tensor, weight: Tensor) -> tuple[Tensor, ...]:
    """RMSNorm, then rows as int8."""
    return int8_rows(way, way.normed(x.float(), weight), weight)


def norm_e4m3_rows(way: Way, x: Tensor, weight: Tensor) -> tuple[Tensor, ...]:
    """RMSNorm, then rows as float8_e4m3fn."""
    return e4m3_rows(way, way.normed(x.float(), weight), weight)


def norm_e4m3_blocks(way: Way, x: Tensor, weight: Tensor) -> tuple[Tensor, ...]:
    """RMSNorm, then blocks of 32 as float8_e4m3fn."""
    return e4m3_blocks(way, way.normed(x.float(), weight), weight)


def norm_uint8_rows(way: Way, x: Tensor, weight: Tensor) -> tuple[Tensor, ...]:
    """RMSNorm, then rows as uint8 with a zero point."""
    x = way.normed(x.float(), weight)
    low, high = x.amin(-1, keepdim=True).clamp(max=0.0), x.amax(-1, keepdim=True).clamp(min=0.0)
    step = way.stepped(high - low, 255.0)
    zero = torch.round(-low / step)
    return (torch.round(way.divided(x, step, high - low, 255.0)) + zero).clamp(0, 255).to(torch.uint8), step, zero


def silu_e4m3_blocks(way: Way, x: Tensor, weight: Tensor) -> tuple[Tensor, ...]:
    """SiLU times a weight, then blocks of 32 as float8_e4m3fn."""
    return e4m3_blocks(way, way.silu(x.float()) * weight, weight)


Body = Callable[[Way, Tensor, Tensor], tuple[Tensor, ...]]
PLAIN: tuple[Body, ...] = (int8_rows, e4m3_rows, e5m2_rows, e4m3_blocks)
NORMS: tuple[Body, ...] = (norm_int8_rows, norm_e4m3_rows, norm_e4m3_blocks, norm_uint8_rows)


def variants() -> Iterator[tuple[Body, list[Way]]]:
    """Every body with its ways; the first is the task itself."""
    scales = list(product(STEPS, QUOTIENTS, ORDERS))
    for body in PLAIN:
        ways = [Way(largest=a, step=s, quotient=q, order=o) for a in LARGEST for s, q, o in scales]
        yield body, ways
    for body in NORMS:
        yield body, [Way(m, r, step=s, quotient=q, order=o) for m in SUMS for r in ROOTS for s, q, o in scales]
    ways = [Way(sigmoid=g, step=s, quotient=q, order=o) for g in SIGMOIDS for s, q, o in scales]
    yield silu_e4m3_blocks, ways


def task_text(body: Body) -> str:
    """The task file of a body as it is written: this file and a module, as a task's process has no other of ours."""
    return (
        f"{Path(__file__).read_text(encoding='utf-8')}\n\nclass Model(torch.nn.Module):\n"
        "    def __init__(self):\n        super().__init__()\n"
        "        self.weight = torch.nn.Parameter(torch.rand(96) + 0.5)\n\n"
        f"    def forward(self, x):\n        return {body.__name__}(Way(), x, self.weight)\n\n\n"
        "def get_inputs():\n    return [torch.randn(48, 96, dtype=torch.bfloat16)]\n"
    )
