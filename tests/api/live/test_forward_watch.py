"""Forwards that do more than launch kernels: a call that is watched says what, and none is ever captured."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy
import pytest
import torch

from hipwright.api.live.forward.graphs import CHANGES, forward_counts, put_graphs
from hipwright.api.live.forward.modes import unwatched, watching
from hipwright.api.live.forward.watch import watched
from hipwright.api.live.graphed import WARM_CALLS, GraphedProgram
from hipwright.api.live.module import FallbackWarning, OptimizedModule
from tests.api.live.nets import WIDTH, Fast, Launched, drawn, traced
from tests.api.live.tape import TapeGraphs

OUTSIDE = torch.ones(WIDTH)


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FallbackWarning)
        yield


def attribute(net: Any, y: torch.Tensor) -> torch.Tensor:
    net.shift = net.shift.clone()
    return y


def listed(net: Any, y: torch.Tensor) -> torch.Tensor:
    net.runs.append(y)
    return y


def into_state(net: Any, y: torch.Tensor) -> torch.Tensor:
    net.scale.mul_(1.0)
    return y


def branched(net: Any, y: torch.Tensor) -> torch.Tensor:
    return y * 2 if y.sum() > 0 else y - 1


MORE_THAN_KERNELS: dict[str, Callable[[Any, torch.Tensor], Any]] = {
    "the processor reads values (_local_scalar_dense)": branched,
    "the processor reads values (nonzero)": lambda net, y: y + len(torch.nonzero(y > 0)),
    "it draws random numbers": drawn,
    "it writes into a parameter or buffer (mul_.Tensor)": into_state,
    "it reads a tensor that is no argument, parameter or buffer (mul.Tensor)": lambda net, y: y * OUTSIDE,
    "it sets shift": attribute,
    "has changed": listed,
}


@pytest.mark.parametrize("why", MORE_THAN_KERNELS)
def test_a_forward_that_does_more_than_its_kernels_is_never_captured(why: str) -> None:
    fast = Fast(MORE_THAN_KERNELS[why])
    for _ in range(WARM_CALLS + CHANGES + 3):
        fast.right()
    assert fast.graphs.counts["replays"] == fast.graphs.counts["captures"] == 0
    assert any(why in one for one in fast.why), fast.why
    assert fast.first.device_graphs["replays"] > 0, "its drop-ins replay graphs of their own"


def held(y: torch.Tensor) -> Any:
    """A result that is no nesting of torch's, of a class that nobody else can make."""

    class Result:
        def __init__(self) -> None:
            self.y = y

    return Result()


class Odd(torch.nn.Module):
    """A part in a module that returns something of its own, or writes into its argument."""

    def __init__(self, end: Callable[[torch.Tensor, torch.Tensor], Any]) -> None:
        super().__init__()
        self.part = torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.GELU())
        self.end = end

    def forward(self, x: torch.Tensor, other: Any = None) -> Any:
        return self.end(x, self.part(x))


ODD: dict[str, Callable[[torch.Tensor, torch.Tensor], Any]] = {
    "shares memory": lambda x, y: (y, x),
    "shares memory with": lambda x, y: (y, y[0]),
    "holds a Result": lambda x, y: held(y),
    "writes into an argument (add_.Tensor)": lambda x, y: x.add_(y),
    "is a Tensor, torch.sparse_coo": lambda x, y: y.to_sparse(),
}


def odd(end: Callable[[torch.Tensor, torch.Tensor], Any]) -> tuple[Odd, TapeGraphs]:
    net, tapes = Odd(end).eval(), TapeGraphs()
    live = traced("first")
    program: Any = Launched(live)
    net.part = OptimizedModule(net.part, live, GraphedProgram(program, tapes))
    assert put_graphs(net, tapes) is not None
    return net, tapes


@pytest.mark.parametrize("why", ODD)
def test_results_that_cannot_be_copied_out_are_the_forwards_own(why: str) -> None:
    net, _ = odd(ODD[why])
    with torch.inference_mode():
        for _ in range(WARM_CALLS + 2):
            net(torch.randn(3, WIDTH))
    counts = forward_counts(net)[""]
    assert counts["captures"] == 0 and any(why in one for one in counts["launched"]), counts


def test_arguments_of_other_types_are_the_forwards_own() -> None:
    net, _ = odd(lambda x, y: y * 1)
    with torch.no_grad():
        for other in (object(), torch.nn.UninitializedBuffer(), torch.zeros(2, device="meta")):
            for _ in range(WARM_CALLS + 2):
                net(torch.randn(3, WIDTH), other)
        for _ in range(WARM_CALLS + 2):
            net(torch.randn(3, WIDTH), (1, None, "text"))
    counts = forward_counts(net)[""]
    reasons = {"an argument is a object", "an argument is a UninitializedBuffer"}
    assert counts["captures"] == 1 and {
        *reasons,
        "arguments and parameters are on cpu and meta, and the programs run on cpu",
    } <= {*counts["launched"]}


META = torch.device("meta")


def why(call: Callable[[], Any], inputs: list[torch.Tensor], state: list[torch.Tensor], device: str = "meta") -> str:
    """Of a call whose result is a tensor or several."""
    return watched(call, torch.device(device), inputs, state, lambda found: [found])[1].why


def test_values_of_another_device_are_none_of_the_graph() -> None:
    x, number, rows = torch.zeros(3, device=META), torch.tensor(2.0), torch.zeros(3)
    assert why(lambda: x * 2.0 + torch.tensor(2.0), [x], []) == "", "a number that the call makes"
    assert why(lambda: x * number, [x], [number]) == "it uses tensors of several devices (mul.Tensor)"
    assert why(lambda: rows.to("meta") * 1, [x], [rows]) == "it uses tensors of several devices (_to_copy)"
    assert why(lambda: rows.to("meta"), [rows], [], "cpu") == "it uses tensors of several devices (_to_copy)"
    lift, fresh = torch.ops.aten.lift_fresh.default, torch.zeros(3, device=META)  # torch.tensor(..., device=...)
    assert why(lambda: x + lift(fresh), [x], []) == "it copies values of the processor"


def test_the_state_of_an_attentions_random_numbers_is_none_of_its_values() -> None:
    """`_scaled_dot_product_efficient_attention` gives two numbers of the processor beside what it computes."""
    x = torch.zeros(3, device=META)
    with torch.library._scoped_library("hipwright_watch", "DEF") as library:
        library.define("attention(Tensor x, int[] beside) -> (Tensor, Tensor)")
        library.impl("attention", lambda x, beside: (x * 2.0, torch.zeros(beside)), "Meta")
        attention = torch.ops.hipwright_watch.attention.default
        assert why(lambda: attention(x, [])[0], [x], []) == ""
        several = "it uses tensors of several devices (hipwright_watch::attention)"
        assert why(lambda: attention(x, [3])[0], [x], []) == several, "values"


def test_generators_of_all_kinds_are_seen() -> None:
    x, own = torch.zeros(3), torch.Generator()
    drawn_ = "it draws random numbers"
    assert why(lambda: x + torch.rand(3, generator=own), [x], [], "cpu") == drawn_
    assert why(lambda: x + torch.rand(3), [x], [], "cpu") == drawn_
    assert why(lambda: x + random.random(), [x], [], "cpu") == drawn_
    assert why(lambda: x + numpy.random.rand(), [x], [], "cpu") == drawn_
    assert why(lambda: torch.nn.functional.dropout(x, 0.5, training=False) * 1, [x], [], "cpu") == ""


def test_what_a_program_reads_beside_its_arguments_is_its_own() -> None:
    x, packed = torch.ones(3), torch.full((3,), 2.0)
    seen = []

    def program() -> torch.Tensor:
        seen.append(torch._C._len_torch_dispatch_stack())
        return x * packed

    assert why(lambda: unwatched(program) * 2, [x], [], "cpu") == "" and seen == [0]
    assert why(lambda: program() * 2, [x], [], "cpu").startswith("it reads a tensor that is no argument")
    assert unwatched(lambda: 1) == 1 and watching() == 0


def test_a_call_that_raises_is_no_longer_watched() -> None:
    with pytest.raises(ZeroDivisionError):
        why(lambda: 1 / 0, [], [], "cpu")
    assert watching() == 0
