"""Forwards that decide by whole numbers among their arguments: each way has a graph, taken where it is right."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from hipwright.api.live.forward.argument_reads import MOST, decides
from hipwright.api.live.forward.calls import BRANCHES, DECIDES
from hipwright.api.live.forward.graphs import forward_counts, put_graphs
from hipwright.api.live.forward.watch import watched
from hipwright.api.live.graphed import NEW, WARM_CALLS, GraphedProgram
from hipwright.api.live.module import OptimizedModule
from tests.api.live.nets import WIDTH, Launched, traced
from tests.api.live.tape import TapeGraphs

ROWS = 3
End = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


pytestmark = pytest.mark.filterwarnings("ignore::hipwright.api.live.module.FallbackWarning")


class Masked(torch.nn.Module):
    """A part and what follows it, which knows a mask of the rows."""

    def __init__(self, end: End) -> None:
        super().__init__()
        self.part, self.end = torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.GELU()), end

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return self.end(self.part(x), mask)


class Fast:
    """The module with a drop-in and graphs; its calls are compared."""

    def __init__(self, end: End) -> None:
        self.net, tapes, live = Masked(end).eval(), TapeGraphs(), traced("first")
        self.original, program = self.net.part, Launched(live)
        self.net.part = OptimizedModule(self.original, live, GraphedProgram(program, tapes))  # type: ignore[assignment]
        assert put_graphs(self.net, tapes) is not None

    def right(self, mask: torch.Tensor) -> None:
        x = torch.randn(ROWS, WIDTH)
        with torch.no_grad():
            expected = self.net.end(self.original(x), mask.clone())
            torch.testing.assert_close(self.net(x, mask), expected)

    @property
    def counts(self) -> dict[str, Any]:
        return forward_counts(self.net)[""]


def hidden(y: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """As attention that makes no mask where nothing is hidden."""
    seen = mask.bool()
    return y * 2 if bool(seen.all()) else y.masked_fill(~seen[:, None], -1.0)


def counted(y: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    rows = torch.tensor(0)
    rows.add_(mask.sum())  # in the memory of a number of the call's own
    return y * int(rows)


def drawn_where_hidden(y: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return y if bool(mask.bool().all()) else y + torch.nn.functional.dropout(torch.zeros_like(y), 0.5)


MASKS = [torch.tensor(one) for one in ([1, 1, 1], [1, 0, 1], [0, 1, 1], [0, 0, 0])]


def test_each_way_has_a_graph_and_values_are_right() -> None:
    fast = Fast(hidden)
    for _ in range(WARM_CALLS + 2):
        fast.right(MASKS[0])
    assert fast.counts == {"replays": 2, "captures": 1, "launched": {NEW: WARM_CALLS}}
    for mask in MASKS * 3:
        fast.right(mask)
    assert fast.counts == {"replays": 2 + len(MASKS) * 3 - 1, "captures": 2, "launched": {NEW: WARM_CALLS + 1}}
    with torch.inference_mode():
        fast.net(torch.ones(ROWS, WIDTH), MASKS[1])
    assert fast.counts["replays"] == 2 + len(MASKS) * 3


def test_a_forward_that_goes_another_way_in_each_call_is_its_own() -> None:
    fast = Fast(counted)
    many = [torch.full((ROWS,), number) for number in range(BRANCHES + 4)]
    for mask in many * 2:
        fast.right(mask)
    assert DECIDES in fast.counts["launched"]
    replays = fast.counts["replays"]
    fast.right(many[0])
    assert fast.counts["replays"] == replays, "it is not asked again"


def test_constants_are_as_they_were_in_every_call() -> None:
    fast = Fast(counted)
    for mask in [MASKS[0], MASKS[1]] * 4:
        fast.right(mask)
    assert fast.counts["captures"] == 2 and fast.counts["launched"] == {NEW: WARM_CALLS + 1}


def test_a_way_that_is_no_graph_ends_all() -> None:
    fast = Fast(drawn_where_hidden)
    for mask in [MASKS[0]] * (WARM_CALLS + 2) + MASKS:
        with torch.no_grad():
            fast.net(torch.ones(ROWS, WIDTH), mask)
    assert fast.counts["launched"]["it draws random numbers"] >= 1
    replays = fast.counts["replays"]
    fast.right(MASKS[0])
    assert fast.counts["replays"] == replays


def test_one_mask_in_two_places() -> None:
    mask, other = torch.tensor([1, 1, 0]), torch.tensor([1, 0, 0])

    def call(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
        both = first.bool() & second.bool()
        return torch.ones(3) * int(both.sum())

    _, seen = watched(lambda: call(mask, mask), torch.device("cpu"), [mask, mask], [], lambda found: [found])
    assert seen.why == "" and seen.argument_reads is not None
    assert seen.argument_reads.hold([mask, mask.clone()]) and not seen.argument_reads.hold([other, other])


def test_floats_and_large_arguments_decide_nothing() -> None:
    assert decides(torch.ones(3, dtype=torch.int64)) and decides(torch.ones(MOST, dtype=torch.bool))
    assert not decides(torch.ones(3)) and not decides(torch.ones(MOST + 1, dtype=torch.bool))
    fast = Fast(lambda y, mask: y * 2 if bool(mask.all()) else y)
    for _ in range(WARM_CALLS + 2):
        fast.right(torch.ones(ROWS))
    assert fast.counts["captures"] == 0
