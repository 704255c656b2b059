"""Results that are no nesting of torch's: objects around tensors come out of a graph anew in each call."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from hipwright.api.live.forward.graphs import forward_counts, put_graphs
from hipwright.api.live.forward.results import Forwarded, Holder
from hipwright.api.live.graphed import NEW, WARM_CALLS
from tests.api.live.nets import WIDTH, Net, replaced
from tests.api.live.tape import TapeGraphs


class Layer:
    """Keys and values, as a cache holds them."""

    def __init__(self, keys: torch.Tensor, values: torch.Tensor) -> None:
        self.keys, self.values, self.length = keys, values, keys.shape[0]


class Cache:
    """Layers that know each other."""

    def __init__(self, y: torch.Tensor) -> None:
        self.layers = [Layer(y * 2, y * 3)]
        self.layers.append(self.layers[0])


def test_an_object_around_tensors_is_made_anew() -> None:
    y = torch.randn(3, WIDTH)
    cache = Cache(y)
    made = Forwarded.of({"y": y, "cache": cache, "again": cache, "n": 3})
    assert sum(isinstance(one, Holder) for one in made.leaves) == 2 and len(made.tensors) == 3
    copy = made.copied().value
    first, second = copy["cache"].layers
    assert first is second and first.length == 3 and copy["n"] == 3
    assert torch.equal(first.keys, y * 2) and first.keys is not cache.layers[0].keys
    assert copy["again"].layers[0].keys is first.keys, "one tensor stays one"
    first.keys.zero_()
    assert torch.equal(cache.layers[0].keys, y * 2), "it is the caller's"


@pytest.mark.parametrize("value", [torch.nn.Linear(2, 2), {"a": {1, 2}}, lambda: torch.ones(2)])
def test_modules_functions_and_objects_without_tensors_are_none(value: Any) -> None:
    assert not [one for one in Forwarded.of([value]).leaves if isinstance(one, Holder)]


class CachedNet(Net):
    """A net that gives its cache too."""

    def forward(self, x: torch.Tensor, *, twice: bool = False) -> Any:
        found = super().forward(x, twice=twice)
        return {**found, "cache": Cache(found["y"])}


def test_calls_that_give_a_cache_replay_one_graph() -> None:
    tapes = TapeGraphs()
    net = replaced(CachedNet(), tapes)
    assert put_graphs(net, tapes) is not None
    xs = torch.randn(WARM_CALLS + 3, 3, WIDTH)
    with torch.no_grad():
        found = [net(x) for x in xs]
    assert forward_counts(net)[""] == {"replays": 3, "captures": 1, "launched": {NEW: WARM_CALLS}}
    for one in found:
        assert torch.equal(one["cache"].layers[0].keys, one["y"] * 2)
        assert torch.equal(one["cache"].layers[1].values, one["y"] * 3)
    assert len({id(one["cache"]) for one in found}) == len(found)
