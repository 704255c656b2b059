"""Calls that are not the program's: everything that a trace took for granted, changed one by one."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch

from hipwright.api.live.exported import live_task
from hipwright.api.live.module import FallbackWarning, OptimizedModule
from tests.api.live import modules
from tests.api.live.modules import Convolved, Recalled, same

X = torch.randn(2, 3, 8, 8)


@pytest.fixture
def made() -> OptimizedModule:
    module = Convolved().eval()
    return OptimizedModule(module, live := live_task(module, (X,), {"scale": 3.0}, "convolved"), Recalled(live))


def replaced_head(module: Any) -> None:
    module.head[1] = torch.nn.ReLU()


def hooked(module: Any) -> None:
    module.norm.register_forward_hook(lambda *_: None)


def wider(module: Any) -> None:
    module.head[0].weight = torch.nn.Parameter(torch.randn(4, 8).double())


CHANGES: dict[str, Callable[[Any], Any]] = {
    "shift has changed": lambda module: setattr(module, "shift", 1.0),
    "training has changed": lambda module: module.train(),
    "norm.eps has changed": lambda module: setattr(module.norm, "eps", 0.1),
    "parameters and buffers has changed": lambda module: module.head[0].register_buffer("more", torch.ones(1)),
    "parts has changed": replaced_head,
    "hooks has changed": hooked,
    "float64": wider,
}


@pytest.mark.parametrize("why", CHANGES)
def test_a_changed_module(made: OptimizedModule, why: str) -> None:
    with torch.no_grad():
        assert same(made(X, scale=3.0), made.original(X, scale=3.0)) and not made.fallbacks
        CHANGES[why](made.original)
        before = copy.deepcopy(made.original)
        if why == "float64":
            with pytest.warns(FallbackWarning), pytest.raises(RuntimeError):
                made(X, scale=3.0)
        else:
            with pytest.warns(FallbackWarning, match=why):
                assert same(made(X, scale=3.0), before(X, scale=3.0))
    assert made.program_calls == 1


def test_other_arguments(made: OptimizedModule) -> None:
    calls: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {
        "another structure": ((X,), {}),
        "an argument is 2.0": ((X,), {"scale": 2.0}),
        "torch.float64 of rank 4": ((X.double(),), {"scale": 3.0}),
        "declines these sizes": ((torch.randn(2, 4, 8, 8),), {"scale": 3.0}),
        "a Parameterized": ((X.as_subclass(Parameterized),), {"scale": 3.0}),
    }
    with warnings.catch_warnings(record=True) as heard, torch.no_grad():
        warnings.simplefilter("always")
        for why, (args, kwargs) in calls.items():
            try:
                made(*args, **kwargs)
            except RuntimeError:
                assert "float64" in why or "sizes" in why
            assert any(why in reason for reason in made.fallbacks), why
    assert len(heard) == 1, "said once"
    assert made.program_calls == 0 and sum(made.fallbacks.values()) == len(calls)


class Parameterized(torch.Tensor):
    pass


def test_gradients_and_modes_of_torch_are_the_originals(made: OptimizedModule) -> None:
    with pytest.warns(FallbackWarning, match="gradients are wanted"):
        made(X, scale=3.0)["grid"].sum().backward()
    assert made.original.conv.weight.grad is not None
    with torch.no_grad():
        with torch.autocast("cpu", torch.bfloat16):
            made(X, scale=3.0)
        torch.func.vmap(lambda x: made(x, scale=3.0)["grid"])(X[None])
        made.original.requires_grad_(False)
        torch.jit.trace(lambda x: made(x, scale=3.0)["grid"], (X,), check_trace=False)
    reasons = {"autocast is on", "a transform of torch.func is on", "torch.jit traces the call"}
    assert reasons <= set(made.fallbacks) and made.program_calls == 0


def test_a_changed_global(made: OptimizedModule, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(modules, "SCALE", 5.0)
    with torch.no_grad(), pytest.warns(FallbackWarning, match="SCALE has changed"):
        assert same(made(X, scale=3.0), made.original(X, scale=3.0))


def test_it_is_a_drop_in(made: OptimizedModule) -> None:
    original = made.original
    assert dict(made.state_dict()).keys() == dict(original.state_dict()).keys()
    assert made.conv.weight is original.conv.weight and made.shift == 0.5
    assert [name for name, _ in made.named_modules()] == [name for name, _ in original.named_modules()]
    made.train()
    assert original.training and original.norm.training
    made.eval()
    made.load_state_dict({name: torch.ones_like(value) for name, value in original.state_dict().items()})
    with torch.no_grad():
        assert same(made(X, scale=3.0), original(X, scale=3.0))
        twin = copy.deepcopy(made)
        twin.conv.weight.zero_()
        assert same(twin(X, scale=3.0), twin.original(X, scale=3.0))
    assert twin.program_calls == 1 and original.conv.weight.sum() > 0
