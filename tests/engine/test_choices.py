"""Every structural choice gives a program that is right: mappings, vectors, no fusion, both wave sizes, any knob."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

from hipwright.engine import space, write
from tests.engine.harness import captured, compare, reference, run


class Mixed(torch.nn.Module):
    """A norm, a strided softmax, an argmax, a row sum and a pointwise tail."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(24, 40)
        self.norm = torch.nn.LayerNorm(40)

    def forward(self, x: torch.Tensor) -> Any:
        y = self.norm(F.gelu(self.linear(x)) + 0.5)
        return y.softmax(1), y.argmax(-1), y.sum((0, 1)), y.var(0), torch.tanh(y) * 2


MODEL, INPUT = Mixed(), torch.randn(3, 37, 24, generator=torch.Generator().manual_seed(1))


def verify(choices: dict[str, Any], wave: int = 64) -> str:
    program = write(captured(MODEL, [INPUT]), choices)
    expected, native, _ = reference(MODEL, [INPUT])
    got, _ = run(program, MODEL, [INPUT], wave=wave)
    compare(got, expected, native)
    return program.text


@pytest.mark.parametrize(
    ("mapping", "cache"), [("block", "reload"), ("block", "registers"), ("lanes", "registers"), ("columns", "reload")]
)
def test_row_mappings(mapping: str, cache: str) -> None:
    choices = dict.fromkeys((k for k in space(captured(MODEL, [INPUT])) if k.startswith("map:")), mapping)
    keep = dict.fromkeys((k for k in space(captured(MODEL, [INPUT])) if k.startswith("row_cache:")), cache)
    verify({**choices, **keep}, wave=32 if cache == "reload" else 64)


@pytest.mark.slow
@pytest.mark.parametrize(
    "choices",
    [
        {"fuse": False},
        {"fuse_bias": False},
        {"BLOCK": 1024, "ROW_BLOCK": 64, "LANES": 8},
        {"BLOCK": 64, "COLUMNS": 64, "ROW_BLOCK": 1024},
    ],
)
def test_other_choices(choices: dict[str, Any]) -> None:
    verify(choices)


def test_unknown_and_invalid_choices_are_ignored() -> None:
    graph = captured(MODEL, [INPUT])
    assert write(graph, {"BLOCK": 77, "map:nothing": "block", "nonsense": 3}) == write(graph, {})


def test_write_is_deterministic() -> None:
    graph = captured(MODEL, [INPUT])
    assert write(graph).text == write(graph).text
    assert list(space(graph)) == list(space(graph))


@pytest.mark.parametrize("vec", [1, 4, 8])
def test_vector_tails(vec: int) -> None:
    class Scale(torch.nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> Any:
            return F.silu(x) * y + torch.arange(x.shape[0])

    model = Scale()
    graph = captured(model, [torch.randn(64), torch.randn(64)])
    key = next(k for k in space(graph) if k.startswith("map:"))
    program = write(graph, {key: "vector", "VEC": vec})
    for size in [1, 7, 4096, 5003]:
        storage = torch.randn(2 * size + 2)
        inputs = [storage[1 : size + 1], storage[1 + size : 2 * size + 1]]  # a storage offset of one element
        expected, native, _ = reference(model, inputs)
        got, _ = run(program, model, inputs)
        compare(got, expected, native)


class Handed(torch.nn.Module):
    """Scans and a window in bfloat16: values that one kernel hands to the next, one of them returned as well."""

    def forward(self, x: torch.Tensor, w: torch.Tensor) -> Any:
        total = x.cumsum(-1)
        gap = total.amax(-1, keepdim=True) - total.cumsum(-1)
        pooled = F.max_pool1d(torch.tanh(gap) * torch.sin(gap), 3, 2)
        return total, F.linear(gap, w), pooled.softmax(-1), gap


HANDED = [torch.randn(3, 5, 24, dtype=torch.bfloat16), torch.randn(7, 24, dtype=torch.bfloat16)]


@pytest.mark.parametrize("choices", [{"wide": True}, {"wide": True, "fuse": False}, {"library": True}])
def test_what_kernels_hand_each_other_may_be_kept_wide(choices: dict[str, Any]) -> None:
    model = Handed()
    graph = captured(model, HANDED)
    assert "wide" in space(graph) and "library" not in space(graph) and "wide" not in space(captured(MODEL, [INPUT]))
    program = write(graph, choices)
    expected, native, _ = reference(model, HANDED)
    got, _ = run(program, model, HANDED)
    compare(got, expected, native)
    assert ("float* __restrict__ cumsum" in program.text) == ("wide" in choices)
    assert ("__global__" in program.text) == ("wide" in choices)
