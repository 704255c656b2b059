"""Row kernels: kept values, vectors with tails, values with columns of their own, empty rows; on both wave sizes."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
import torch
import torch.nn.functional as F

from hipwright.engine import explain, space, write
from hipwright.errors import GuardFailed
from tests.engine.harness import Op, captured, compare, reference, run


def draw(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(3)).to(dtype)


def verify(model: torch.nn.Module, inputs: list[torch.Tensor], choices: dict[str, Any], wave: int = 64) -> str:
    """The program for the first inputs is correct; in `choices`, `*` stands for every kernel."""
    graph = captured(model, inputs)
    chosen = {k: choices[f"{k.split(':')[0]}:*"] for k in space(graph) if f"{k.split(':')[0]}:*" in choices}
    program = write(graph, {**chosen, **choices})
    expected, native, _ = reference(model, inputs)
    got, _ = run(program, model, inputs, wave=wave)
    compare(got, expected, native)
    return program.text


class Norm(torch.nn.Module):
    """Rows of a fixed length, in three passes."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = torch.nn.LayerNorm(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(x + 1).softmax(-1)


@pytest.mark.matrix(keep=3)
@pytest.mark.parametrize(
    ("mapping", "wave", "width", "vec"),
    [
        ("block", 32, 300, 1),
        ("block", 64, 1028, 4),
        ("lanes", 32, 130, 4),
        ("lanes", 64, 61, 1),
        ("columns", 32, 40, 1),
    ],
)
def test_registers(mapping: str, wave: int, width: int, vec: int) -> None:
    choices = {"map:*": mapping, "row_cache:*": "registers", "ROW_BLOCK": 128, "ROW_VEC": vec, "LANES": 16, "BLOCK": 64}
    text = verify(Norm(width), [draw(70, width)], choices, wave)
    assert "this thread's tile of the row" in text


class Gated(torch.nn.Module):
    """A norm whose halves are multiplied: one kernel, though its output has another width."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(draw(width))

    def forward(self, x: torch.Tensor) -> Any:
        y = F.rms_norm(x, x.shape[-1:]) * self.weight
        gate, up = y.chunk(2, dim=-1)
        return F.silu(gate) * up


@pytest.mark.parametrize(
    ("mapping", "wave", "width"), [("block", 64, 2048), ("block", 32, 70), ("lanes", 32, 256), ("columns", 64, 48)]
)
def test_values_with_columns_of_their_own(mapping: str, wave: int, width: int) -> None:
    model, x = Gated(width), draw(3, 23, width)
    verify(model, [x], {"map:*": mapping, "ROW_BLOCK": 64, "BLOCK": 128}, wave)
    graph = captured(model, [x])
    assert len(explain(graph)["kernels"]) == 1
    (key,) = (k for k in space(graph) if k.startswith("part:"))
    assert len(explain(graph, {key: "stored"})["kernels"]) == 2


class Parts(torch.nn.Module):
    """Values of several widths, one read by another, a row stored whole, and an uneven slice."""

    def forward(self, x: torch.Tensor) -> Any:
        y = x.softmax(-1)
        a, b = y.chunk(2, -1)
        c = torch.exp(a) - b
        return y, c, torch.tanh(c) * a, torch.sigmoid(y[..., 3:20]) + y[..., 1:18], y.flip(-1)[..., :5] * 2


@pytest.mark.parametrize("mapping", ["block", "lanes"])
def test_several_widths(mapping: str) -> None:
    verify(Parts(), [draw(9, 64)], {"map:*": mapping, "ROW_BLOCK": 64})


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_rows_are_loaded_in_vectors_with_tails(dtype: torch.dtype) -> None:
    class Soft(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return (x * 2).softmax(-1)

    model = Soft()
    graph = captured(model, [draw(8, 2048, dtype=dtype)])
    program = write(graph)
    wide = 4 if dtype == torch.float32 else 8
    assert f"ROW_VEC = knob({wide}," in program.text
    for shape in [(3, 2048), (2, 5), (4, 1027)]:
        x = draw(*shape, dtype=dtype)
        expected, native, _ = reference(model, [x])
        got, _ = run(program, model, [x])
        compare(got, expected, native)


class Allocator(torch.nn.Module):
    """Reductions, scans and pointwise values of possibly empty tensors."""

    def forward(self, x: torch.Tensor) -> Any:
        return (
            x.sum(),
            x.mean(),
            x.sum(1),
            x.mean(1),
            x.sum(0),
            x.mean(0),
            x.prod(1),
            x * 2,
            x.softmax(-1),
            x.cumsum(0),
            x.var(1),
            (x > 0).any(1),
            (x > 0).all(0),
            x.norm(dim=1),
            x.t() + 1,
        )


@pytest.mark.filterwarnings("ignore:var..")
def test_empty_inputs_of_a_program_for_any_size() -> None:
    model = Allocator()
    program = write(captured(model, [draw(6, 5)]))
    for shape in [(0, 5), (6, 0), (0, 0), (2, 3)]:
        x = draw(*shape)
        expected, native, _ = reference(model, [x])
        got, _ = run(program, model, [x])
        compare(got, expected, native)


@pytest.mark.filterwarnings("ignore:var..")
@pytest.mark.parametrize("shape", [(0, 5), (6, 0)])
def test_captured_empty_inputs(shape: tuple[int, int]) -> None:
    model, x = Allocator(), draw(*shape)
    program = write(captured(model, [x]))
    expected, native, _ = reference(model, [x])
    got, _ = run(program, model, [x])
    compare(got, expected, native)


class Twice(torch.nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> Any:
        return x * 2 + 1, (y + x.sum()).softmax(-1)


def test_int_indices_are_guarded() -> None:
    graph = captured(Twice(), [draw(4, 6), draw(7)])
    text = write(graph).text
    assert text.count("< 2**30") == 1 and "int y_0" in text
    run(write(graph), Twice(), [draw(5, 9), draw(3)])
    large = msgspec.structs.replace(
        graph, symbols=tuple(msgspec.structs.replace(s, hint=1 << 20) for s in graph.symbols)
    )
    assert "long x_0" in write(large).text
    with pytest.raises(GuardFailed, match="count in int"):
        run(write(graph), Twice(), [torch.empty(1).expand(1 << 16, 1 << 16), draw(3)], checked=False)


class Joined(torch.nn.Module):
    """The first pass reads memory, later ones only registers."""

    def forward(self, x: torch.Tensor, other: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        joined = torch.cat([x, other], dim=-1)
        gap = joined.max(dim=-1, keepdim=True).values - joined
        return F.cross_entropy(gap, labels % gap.shape[1], reduction="none")


class Hot(torch.nn.Module):
    """Instances normalised, one-hot values of another input subtracted, and rows normalised."""

    def forward(self, x: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
        normal = F.instance_norm(x) - F.one_hot(places, x.shape[-1]).to(x.dtype)
        return F.rms_norm(normal, (x.shape[-1],))


@pytest.mark.parametrize("wave", [32, 64])
def test_kept_values_are_read_in_vectors(wave: int) -> None:
    brain = torch.bfloat16
    labels = torch.randint(0, 256, (12,), generator=torch.Generator().manual_seed(5))
    verify(Joined(), [draw(12, 128, dtype=brain), draw(12, 128, dtype=brain), labels], {}, wave)
    places = torch.randint(0, 45, (3, 8, 2), generator=torch.Generator().manual_seed(5))
    verify(Hot(), [draw(3, 8, 2, 45, dtype=torch.float16), places], {}, wave)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64], ids=str)
def test_the_default_epsilon_is_that_of_the_type_computed_in(dtype: torch.dtype) -> None:
    x = (torch.randn(9, 33, generator=torch.Generator().manual_seed(2)) * 0.01).to(dtype)
    model = Op(lambda x: F.rms_norm(x, (33,)))
    got, _ = run(write(captured(model, [x])), model, [x])
    assert torch.allclose(got.double(), F.rms_norm(x, (33,)).double(), rtol=2e-2, atol=1e-3)
