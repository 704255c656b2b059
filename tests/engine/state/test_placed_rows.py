"""Rows that a kernel reduces are stored at their places in a cache by that kernel."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch

from hipwright.engine import author
from tests.engine.capturing import captured
from tests.engine.harness import compare, kernels_in, run
from tests.engine.template_builds import program_builds

Tensors = list[torch.Tensor]


def _normed(x: torch.Tensor) -> torch.Tensor:
    wide = x.float()
    return wide * torch.rsqrt(wide.square().mean(dim=-1, keepdim=True) + 1e-6)


def _turned(x: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor) -> torch.Tensor:
    first, second = _normed(x).chunk(2, dim=-1)
    return torch.cat([first * cosine - second * sine, second * cosine + first * sine], dim=-1)


def _rotary(
    cache: torch.Tensor, slots: torch.Tensor, x: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor
) -> None:
    cache[slots] = _turned(x, cosine, sine).to(cache.dtype)


def _plain(cache: torch.Tensor, slots: torch.Tensor, x: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor) -> None:
    cache.index_copy_(0, slots, _normed(x).to(cache.dtype))


def _paged(cache: torch.Tensor, slots: torch.Tensor, x: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor) -> None:
    pages = cache.view(-1, 4, *cache.shape[1:])
    pages[slots // 4, slots % 4] = _normed(x).to(cache.dtype)


def _both(
    cache: torch.Tensor, slots: torch.Tensor, x: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor
) -> torch.Tensor:
    made = _turned(x, cosine, sine)
    cache[slots] = made.to(cache.dtype)
    return made * 2


class Keys(torch.nn.Module):
    """A function of keys whose heads' size is part of the module."""

    def __init__(self, function: Callable[..., object], size: int) -> None:
        super().__init__()
        self.function, self.size = function, size

    def forward(self, *x: torch.Tensor) -> object:
        assert x[0].shape[-1] == x[2].shape[-1] == 2 * x[3].shape[-1] == 2 * x[4].shape[-1] == self.size
        return self.function(*x)


def _inputs(tokens: int, heads: int, size: int, dtype: torch.dtype = torch.bfloat16) -> Tensors:
    torch.manual_seed(tokens + size)
    places = tokens + 4 + -tokens % 4
    cache = torch.randn(places, heads, size).to(dtype)
    slots = torch.randperm(places)[:tokens]
    tables = [torch.randn(tokens, 1, size // 2) for _ in range(2)]
    return [cache, slots, torch.randn(tokens, heads, size, dtype=torch.bfloat16), *tables]


def _check(function: Callable[..., object], inputs: Tensors, choices: dict[str, object], wave: int = 64) -> str:
    """What is returned and the cache after the call, against the module itself; returns the program's text."""
    model = Keys(function, inputs[0].shape[-1])
    made = author(captured(model, inputs), choices)
    native, mine = copy.deepcopy(inputs), copy.deepcopy(inputs)
    wide = [i.double() if i.dtype in (torch.float32, torch.bfloat16) else i.clone() for i in inputs]
    plain = model(*native)
    exact = model(*[native[0].clone().copy_(inputs[0]), *wide[1:]])
    got, _ = run(made.program, model, mine, wave=wave)
    compare([mine[0].float()], [native[0].float()], [native[0].float()])
    if plain is not None:
        compare([got], [exact], [plain])
    return made.program.text


SHAPES = [(5, 3, 16), (33, 2, 128), (7, 1, 10), (9, 4, 66), (3, 1, 4100)]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("function", [_rotary, _plain, _paged])
def test_norms_are_stored_at_their_places_by_one_kernel(function: Callable[..., None], shape: tuple[int, ...]) -> None:
    text = _check(function, _inputs(*shape), {}, wave=32 if shape[0] % 2 else 64)
    assert kernels_in(text) == 1
    assert "torch.empty" not in text


@pytest.mark.parametrize("function", [_rotary, _paged])
def test_8_bit_floats(function: Callable[..., None]) -> None:
    text = _check(function, _inputs(21, 4, 64, torch.float8_e4m3fn), {})
    assert kernels_in(text) == 1


def test_slots_that_count_from_the_end() -> None:
    inputs = _inputs(9, 2, 32)
    inputs[1] = inputs[1] - inputs[0].shape[0]
    assert kernels_in(_check(_rotary, inputs, {})) == 1


def test_a_value_that_is_returned_too() -> None:
    _check(_both, _inputs(9, 2, 32), {})


def test_the_choice_keeps_the_write_apart() -> None:
    inputs = _inputs(9, 2, 32)
    space = author(captured(Keys(_rotary, inputs[0].shape[-1]), inputs), {}).space
    (key,) = (k for k in space if k.startswith("part:"))
    assert space[key].default == "recompute"
    assert kernels_in(_check(_rotary, inputs, {key: "stored"})) == 2


def test_every_mapping_stores_all_rows() -> None:
    inputs = _inputs(13, 3, 24)
    for function in (_rotary, _plain):
        space = author(captured(Keys(function, 24), inputs), {}).space
        (key,) = (k for k in space if k.startswith("map:"))
        for mapping in space[key].options:
            assert kernels_in(_check(function, inputs, {key: mapping}, wave=32)) == 1


def _read_after(
    cache: torch.Tensor, slots: torch.Tensor, x: torch.Tensor, c: torch.Tensor, s: torch.Tensor
) -> torch.Tensor:
    cache[slots] = _normed(x).to(cache.dtype)
    return cache.float().sum(dim=0)


def _read_before(
    cache: torch.Tensor, slots: torch.Tensor, x: torch.Tensor, c: torch.Tensor, s: torch.Tensor
) -> torch.Tensor:
    kept = cache.float().sum(dim=0) + _normed(x).sum(dim=0)
    cache[slots] = _normed(x).to(cache.dtype)
    return kept


@pytest.mark.parametrize("function", [_read_after, _read_before])
def test_readers_of_the_cache_see_the_values_of_their_time(function: Callable[..., torch.Tensor]) -> None:
    _check(function, _inputs(9, 2, 32), {})


def test_it_builds_without_scratch() -> None:
    graph = captured(Keys(_rotary, 128), _inputs(1024, 4, 128, torch.float8_e4m3fn))
    program_builds(author(graph, {}).program, lambda target: 2)
