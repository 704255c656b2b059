"""Modules that hold drop-ins, called with graphs that a tape plays (`tape.TapeGraphs`)."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from typing import Any

import torch

from hipwright.api.live.exported import LiveTask, live_task
from hipwright.api.live.forward.graphs import put_graphs
from hipwright.api.live.graphed import NEW, WARM_CALLS, GraphedProgram
from hipwright.api.live.module import OptimizedModule
from tests.api.live.modules import Recalled, same
from tests.api.live.tape import TapeGraphs

WIDTH = 6


class Launched(Recalled):
    """A program that launches its kernels, as one of a GPU."""

    prepares = False

    def packed(self, inputs: Any, state: Any) -> Any:
        return [state]


class Net(torch.nn.Module):
    """Two parts that become drop-ins; a norm and arithmetic between them. extra: what else a forward does."""

    def __init__(self, extra: Callable[[Any, torch.Tensor], Any] | None = None) -> None:
        super().__init__()
        self.first = torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.GELU())
        self.norm = torch.nn.LayerNorm(WIDTH)
        self.blocks = torch.nn.ModuleList([torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU())])
        self.register_buffer("scale", torch.full((WIDTH,), 2.0))
        self.shift, self.seen, self.runs = torch.ones(WIDTH), list[Any](), []
        self.extra = extra

    def forward(self, x: torch.Tensor, *, twice: bool = False) -> Any:
        y = self.norm(self.first(x)) * self.scale + self.shift
        y = y + torch.arange(WIDTH, dtype=y.dtype) * (2.0 if twice else 1.0) * torch.tensor(0.5)
        if self.extra is not None:
            y = self.extra(self, y)
        y = self.blocks[0][1](self.blocks[0][0](y)) if False else self.blocks[0](y)
        return {"y": y, "again": (y, None, 3)}


@functools.cache
def traced(name: str) -> LiveTask:
    """The task of a part of a `Net`, whatever its weights."""
    return live_task(Net().eval().get_submodule(name), (torch.randn(3, WIDTH),), {}, "part")


def replaced(net: Net, graphs: TapeGraphs, prepares: bool = False) -> Net:
    """The net with drop-ins for its two parts."""
    net.eval()
    for name in ("first", "blocks.0"):
        part = net.get_submodule(name)
        live = traced(name)
        program: Any = Launched(live)
        program.prepares = prepares
        net.set_submodule(name, OptimizedModule(part, live, GraphedProgram(program, graphs)))
    return net


class Fast:
    """A net with drop-ins and graphs, and the net as it was, which has the same tensors."""

    def __init__(self, extra: Any = None, prepares: bool = False) -> None:
        plain = Net(extra)
        self.tapes = TapeGraphs()
        self.net: Any = replaced(plain, self.tapes, prepares)
        made = put_graphs(self.net, self.tapes)
        assert made is not None
        self.graphs = made
        self.first, self.last = self.net.first, self.net.blocks[0]

    @property
    def plain(self) -> Any:
        """The net with the original parts."""
        other = copy.copy(self.net)
        other.__dict__.pop("_compiled_call_impl", None)
        other.__dict__["_modules"] = {
            **self.net._modules,
            "first": self.first.original,
            "blocks": torch.nn.ModuleList([self.last.original]),
        }
        return other

    def eager(self, x: torch.Tensor, **kwargs: Any) -> Any:
        """The forward with the original parts, by the net's own code."""
        return self.plain(x, **kwargs)

    def right(self, x: torch.Tensor | None = None, **kwargs: Any) -> Any:
        """A call's result, compared."""
        given = torch.randn(3, WIDTH) if x is None else x
        with torch.no_grad():
            expected = self.eager(given.clone(), **kwargs)
            found = self.net(given, **kwargs)
        assert same(found, expected)
        return found

    def warm(self, **kwargs: Any) -> None:
        """Calls until a kind has a graph."""
        for _ in range(WARM_CALLS + 1):
            self.right(**kwargs)

    @property
    def why(self) -> list[str]:
        """Reasons beside that a kind is new."""
        return [one for one in self.graphs.counts["launched"] if one != NEW]


def drawn(net: Any, y: torch.Tensor) -> torch.Tensor:
    return y + torch.nn.functional.dropout(torch.zeros_like(y), 0.5)
