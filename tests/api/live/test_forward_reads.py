"""Values that the processor reads and that every call of a kind has: the capture is told them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from hipwright.api.live.forward.modes import watching
from hipwright.api.live.forward.reads import Read, answered
from hipwright.api.live.forward.watch import watched
from hipwright.api.live.graphed import NEW, WARM_CALLS
from tests.api.live.nets import WIDTH, Fast

CPU = torch.device("cpu")


pytestmark = pytest.mark.filterwarnings("ignore::hipwright.api.live.module.FallbackWarning")


def packed(net: Any, y: torch.Tensor) -> torch.Tensor:
    """As language models find out whether positions are those of one sequence."""
    steps = torch.diff(torch.arange(y.shape[-1]), prepend=torch.tensor([-1]))
    return y * 2 if bool(((steps != 1).cumsum(-1)[-1:] == 0).all()) else y - 1


def tracing(net: Any, y: torch.Tensor) -> torch.Tensor:
    """As those that look away while a graph is captured."""
    return y * 3 if torch.cuda.is_current_stream_capturing() else packed(net, y)


def reading_nothing(net: Any, y: torch.Tensor) -> torch.Tensor:
    """As those that do something else in a capture, which it may not allow, and read nothing outside."""
    return y * 3 if torch.cuda.is_current_stream_capturing() else y * 2


def filled(net: Any, y: torch.Tensor) -> torch.Tensor:
    place = torch.zeros(WIDTH)
    place.copy_(y[0])
    return y * 2 if place.sum() > 0 else y - 1


def of_a_program(net: Any, y: torch.Tensor) -> torch.Tensor:
    return y * 2 if net.first(torch.ones(3, WIDTH)).sum() > 0 else y - 1


def of_the_state(net: Any, y: torch.Tensor) -> torch.Tensor:
    return y * float(net.scale[0])


@pytest.mark.parametrize("extra", [packed, tracing, reading_nothing])
def test_what_a_call_makes_itself_is_read_once(extra: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    fast = Fast(extra)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: fast.tapes.outer)
    for _ in range(WARM_CALLS + 3):
        fast.right()
    counts = fast.graphs.counts
    assert counts == {"replays": 3, "captures": 1, "launched": {NEW: WARM_CALLS}}, counts
    with torch.inference_mode():
        assert fast.net(torch.ones(3, WIDTH))["y"].shape == (3, WIDTH)
    assert watching() == 0 and torch.cuda.is_current_stream_capturing() is False


@pytest.mark.parametrize("extra", [filled, of_a_program, of_the_state])
def test_what_arguments_or_state_make_is_read_in_every_call(extra: Callable[..., Any]) -> None:
    fast = Fast(extra)
    for _ in range(WARM_CALLS + 3):
        fast.right()
    assert fast.graphs.counts["captures"] == 0
    assert any("the processor reads values (_local_scalar_dense)" in one for one in fast.why)


def test_a_global_tensor_is_read_in_every_call() -> None:
    outside = torch.ones(1)
    _, seen = watched(lambda: torch.zeros(3) + float(outside), CPU, [], [], lambda found: [found])
    assert seen.why.startswith("the processor reads values") and not seen.reads


def test_a_call_that_reads_otherwise_than_the_watched_one_is_refused() -> None:
    def call(number: int, more: int = 0) -> int:
        for _ in range(more):
            torch.ones(2)
        return sum(int(torch.arange(3)[2]) for _ in range(number))

    _, seen = watched(lambda: call(2), CPU, [], [], lambda found: [found])
    reads = seen.reads
    assert seen.why == "" and [read.value for read in reads] == [2, 2] and seen.argument_reads is None
    changed = [Read(place, func, 7) for place, func, _ in reads]
    assert answered(lambda: call(2), changed) == 14, "it is told, and reads nothing"
    for number, more, said in ((3, 0, "other values"), (2, 1, "other values"), (1, 0, "fewer values")):
        with pytest.raises(RuntimeError, match=said):
            answered(lambda number=number, more=more: call(number, more), reads)  # type: ignore[misc]
        assert watching() == 0
    assert answered(lambda: call(3), []) == 6
