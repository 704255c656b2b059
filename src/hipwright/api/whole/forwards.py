"""Forwards of a model in the model host: inputs, float64 truth, times. Imports torch."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from typing import Any

import torch
from torch.utils import _pytree as pytree

from hipwright.api.live.device_graphs import CudaGraphs
from hipwright.api.whole.load import LoadedModel
from hipwright.targets import TORCH_GPU
from hipwright.task.host import state as states
from hipwright.task.host.double_precision import float64, widen
from hipwright.task.host.load import seed_everything
from hipwright.tensors import Tree
from hipwright.torchio import NAMES, tree_from_torch

WARM_CALLS = 3


def inputs(loaded: LoadedModel, seed: int) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments as given for seed 0; else with the elements of each tensor in another order.

    Booleans, sorted integers and tensors with infinities (masks, positions) stay.
    """
    if not seed:
        return loaded.args, loaded.kwargs
    generator = torch.Generator().manual_seed(seed)

    def shuffled(tensor: torch.Tensor) -> torch.Tensor:
        flat = tensor.reshape(-1)
        floating = tensor.is_floating_point()
        sorted_ = not floating and (flat.dtype == torch.bool or bool((flat.diff() >= 0).all()))
        if flat.numel() < 2 or tensor.is_complex() or sorted_ or (floating and not bool(torch.isfinite(flat).all())):
            return tensor
        order = torch.randperm(flat.numel(), generator=generator).to(tensor.device)
        return torch.empty_like(tensor).copy_(flat[order].view(tensor.shape))

    args, kwargs = pytree.tree_map_only(torch.Tensor, shuffled, (loaded.args, loaded.kwargs))
    return args, kwargs


def forward(model: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], seed: int = 0) -> Any:
    """The model's result without gradients, its generators under a seed."""
    seed_everything(seed)
    with torch.no_grad():
        return model(*args, **kwargs)


def exact(loaded: LoadedModel, args: tuple[Any, ...], kwargs: dict[str, Any], seed: int) -> Any:
    """The result in float64 throughout, by a copy of the model. Raises what a model raises that cannot run so."""
    model, cache = copy.deepcopy(loaded.model).double(), dict[int, torch.Tensor]()
    states.change_plain(model, lambda tensor: widen(tensor, cache))
    args, kwargs = pytree.tree_map_only(torch.Tensor, lambda t: widen(t, cache), (args, kwargs))
    seed_everything(seed)
    with torch.no_grad(), float64():
        return model(*args, **kwargs)


def leaves(result: Any) -> Tree:
    """The leaves of a result, for the parent: tensors, plain values, and the text of anything else."""
    found = []
    for leaf in pytree.tree_leaves(result):
        known = isinstance(leaf, torch.Tensor) and leaf.dtype in NAMES
        plain = leaf is None or isinstance(leaf, (bool, int, float, str))
        found.append(leaf if known or plain else f"{type(leaf).__name__}")
    return tree_from_torch(found)


def block(call: Callable[[], Any], calls: int, *, device: bool, ready: Callable[[], Any] = lambda: None) -> float:
    """Milliseconds a call of `calls` in a row: of the device where there is one, else of the processor.

    ready: called after the calls that warm up.
    """
    with torch.no_grad():
        for _ in range(WARM_CALLS):
            call()
        ready()
        if not device:
            start = time.perf_counter()
            for _ in range(calls):
                call()
            return (time.perf_counter() - start) * 1e3 / calls
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda.synchronize()
        begin.record()
        for _ in range(calls):
            call()
        end.record()
        torch.cuda.synchronize()
        return float(begin.elapsed_time(end)) / calls


def captured(call: Callable[[], Any]) -> Callable[[], Any]:
    """The call as a graph of the current GPU, on its own inputs. Raises what a call raises that cannot be captured."""
    with torch.no_grad():
        for _ in range(WARM_CALLS):
            call()
        replay, kept = CudaGraphs().capture(torch.device(TORCH_GPU, torch.cuda.current_device()), call)

    def replayed(kept: Any = kept) -> None:  # the graph writes into what it returned
        replay()

    return replayed
