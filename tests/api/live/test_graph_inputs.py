"""Large inputs of graphs, which are read where they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
import torch

from hipwright.api.live import graphed
from hipwright.api.live.graphed import WARM_CALLS, GraphedProgram
from tests.api.live.tape import TapeGraphs


class Attends:
    """The sums of a large cache's rows, and a small query."""

    device, prepares = "cpu", False

    def packed(self, inputs: Sequence[torch.Tensor], state: Mapping[str, torch.Tensor]) -> None:
        """Nothing is packed."""

    def __call__(self, inputs: Sequence[torch.Tensor], state: Mapping[str, torch.Tensor]) -> graphed.Call:
        query, cache = inputs
        return [query + cache.sum(0)], {"seen": query.sum()}


def test_a_large_input_is_read_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graphed, "LARGEST", 100)
    fast, caches = GraphedProgram(Attends(), TapeGraphs(), most=4), [torch.randn(50, 4) for _ in range(2)]

    def attends(cache: torch.Tensor) -> None:
        (found,), _ = fast([query := torch.randn(4), cache], {})
        assert torch.allclose(found, query + cache.sum(0))

    for _ in range(WARM_CALLS + 3):
        attends(caches[0])
        caches[0][3] += 1.0  # as a step of decoding writes into it
    assert (fast.captures, fast.replays) == (1, 3)
    for _ in range(WARM_CALLS + 1):
        attends(caches[1])
    assert (fast.captures, fast.replays) == (2, 4), "another address"
    attends(caches[0])
    assert fast.replays == 5 and all(len(kind.inputs) == 1 for kind in fast._kinds.values() if kind.replay)


def test_inputs_are_read_where_they_are_until_the_others_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graphed, "LARGEST", 100)
    sizes = {(3, 30, 40, 10): (2, 1), (25,): (), (26,): (0,), (9, 8, 8): (), (0, 30): (1,)}
    for given, expected in sizes.items():
        assert graphed._in_place([torch.ones(size) for size in given]) == expected, given
