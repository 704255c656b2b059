"""Kernels by rows that overwrite what they read: states that a step decays, sums and updates."""

from __future__ import annotations

import copy

import pytest
import torch

from hipwright.engine import author
from tests.engine.capturing import captured
from tests.engine.harness import Op, compare, kernels_in, run
from tests.engine.template_builds import program_builds


def _delta(state: torch.Tensor, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, decay: torch.Tensor) -> torch.Tensor:
    kept = state * torch.exp(-decay)[..., None, None]
    missing = v - (kept * k.unsqueeze(-1)).sum(dim=-2)
    state.copy_(kept + k.unsqueeze(-1) * missing.unsqueeze(-2))
    return (state * q.unsqueeze(-1)).sum(dim=-2)


def _delta_inputs(batch: int, heads: int, keys: int, values: int) -> list[torch.Tensor]:
    torch.manual_seed(keys)
    vectors = [torch.randn(batch, heads, n) * 0.1 for n in (keys, keys, values)]
    return [torch.randn(batch, heads, keys, values), *vectors, torch.rand(batch, heads)]


def _check(function: object, inputs: list[torch.Tensor], choices: dict[str, object], wave: int = 64) -> str:
    """Outputs and the first input after the call, against float64; returns the program's text."""
    model = Op(function)  # type: ignore[arg-type]
    made = author(captured(model, inputs), choices)
    wide = [copy.deepcopy(i).double() for i in inputs]
    native, mine = copy.deepcopy(inputs), copy.deepcopy(inputs)
    expected, plain = model(*wide), model(*native)
    got, _ = run(made.program, model, mine, wave=wave)
    compare([got, mine[0]], [expected, wide[0]], [plain, native[0]])
    return made.program.text


@pytest.mark.parametrize("shape", [(2, 3, 16, 16), (1, 2, 37, 19), (2, 2, 130, 5), (1, 3, 9, 130)])
def test_a_step_of_the_delta_rule_is_one_kernel_that_stores_no_decayed_state(shape: tuple[int, ...]) -> None:
    text = _check(_delta, _delta_inputs(*shape), {})
    assert kernels_in(text) == 1
    assert text.count("torch.empty") == 1, text  # what is returned


@pytest.mark.parametrize("mapping", ["block", "lanes", "columns"])
def test_every_mapping_reads_before_it_writes(mapping: str) -> None:
    inputs = _delta_inputs(1, 3, 21, 18)
    space = author(captured(Op(_delta), inputs), {}).space
    (key,) = (k for k in space if k.startswith("map:"))
    if mapping in space[key].options:
        assert kernels_in(_check(_delta, inputs, {key: mapping}, wave=32)) == 1


def test_the_choice_keeps_the_update_apart() -> None:
    inputs = _delta_inputs(1, 2, 16, 16)
    space = author(captured(Op(_delta), inputs), {}).space
    (key,) = (k for k in space if k.startswith("overwrite:"))
    assert space[key].default == "fused"
    assert kernels_in(_check(_delta, inputs, {key: "separate"})) == 2


def _normalised(x: torch.Tensor) -> torch.Tensor:
    x.copy_(torch.softmax(x, dim=-1))
    return x * 2


def _again(x: torch.Tensor) -> torch.Tensor:
    first = x.sum(dim=-1, keepdim=True)
    x.copy_(x - first)
    return x.exp().sum(dim=-1) + x.flip(-1).amax(dim=-1)


def _others_need_it(x: torch.Tensor) -> torch.Tensor:
    top = x.sum(dim=-1, keepdim=True)
    old = (x.transpose(0, 1) * 2.0 + top).sum(dim=0)  # reads the old values elsewhere, after the rows' sums
    x.copy_(x - top)
    return old


@pytest.mark.parametrize("function", [_normalised, _again, _others_need_it])
@pytest.mark.parametrize("rows", [5, 33])
def test_old_values_are_what_every_reader_sees(function: object, rows: int) -> None:
    torch.manual_seed(rows)
    _check(function, [torch.randn(rows, rows)], {})
    _check(function, [torch.randn(rows, rows)], {}, wave=32)


def test_rows_longer_than_registers() -> None:
    torch.manual_seed(1)
    _check(_normalised, [torch.randn(3, 20001)], {})
    _check(_delta, _delta_inputs(1, 1, 1500, 7), {})


def test_it_builds_without_scratch() -> None:
    graph = captured(Op(_delta), _delta_inputs(64, 32, 128, 128))
    program_builds(author(graph, {}).program, lambda target: 1)
