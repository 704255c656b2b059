"""One graph of all of a call around several drop-ins: what it is, when it is not used, and that values are right.

Tensors lie in the processor's memory; a tape plays the GPU (`tape.TapeGraphs`).
"""

from __future__ import annotations

import copy
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
import torch

from hipwright.api.live.forward.calls import PATIENCE
from hipwright.api.live.forward.graphs import CHANGES, ForwardGraphs, forward_counts, put_graphs, take_graphs
from hipwright.api.live.graphed import CAPTURES, NEW, WARM_CALLS
from hipwright.api.live.module import FallbackWarning, OptimizedModule
from tests.api.live.modules import same
from tests.api.live.nets import WIDTH, Fast, Net, replaced, traced
from tests.api.live.tape import TapeGraphs


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FallbackWarning)
        yield


def test_a_call_replays_one_graph_of_programs_and_what_lies_between() -> None:
    fast = Fast()
    kept = [(x, fast.right(x)) for x in torch.randn(7, 3, WIDTH)]
    assert fast.graphs.counts == {"replays": 7 - WARM_CALLS, "captures": 1, "launched": {NEW: WARM_CALLS}}
    assert fast.first.device_graphs["captures"] == fast.last.device_graphs["captures"] == 0
    assert fast.first.program_calls == fast.last.program_calls == 7 and not fast.first.fallbacks
    for x, found in kept:  # no later call has written into a result
        assert same(found, fast.eager(x))
        assert found["y"] is found["again"][0]


def test_other_arguments_are_kinds_of_their_own() -> None:
    fast = Fast()
    for kwargs in ({}, {"twice": True}):
        fast.warm(**kwargs)
    fast.warm(x=torch.randn(4, WIDTH))
    fast.tapes.current = 5
    fast.warm()
    assert fast.graphs.counts["captures"] == 4 and not fast.why
    before = fast.graphs.counts["replays"]
    fast.right(twice=True), fast.right()
    fast.tapes.current = 0
    fast.right(twice=True), fast.right()
    assert fast.graphs.counts["replays"] == before + 3, "twice=True is new on stream 5"


@pytest.mark.parametrize("prepares", [False, True])
@pytest.mark.parametrize("name", ["first.0.weight", "norm.weight", "scale", "shift"])
@pytest.mark.parametrize("how", ["in place", "replaced", "data"])
def test_parameters_that_change_are_never_the_old_ones(how: str, name: str, prepares: bool) -> None:
    fast = Fast(prepares=prepares)
    fast.warm()
    owner, _, key = name.rpartition(".")
    part = fast.first.original[0] if owner == "first.0" else fast.net.get_submodule(owner)
    for _ in range(2):
        old = getattr(part, key)
        new = torch.randn(old.shape)
        with torch.no_grad():
            if how == "in place":
                old.copy_(new)
            elif how == "data":
                old.data = new
            else:
                setattr(part, key, torch.nn.Parameter(new) if isinstance(old, torch.nn.Parameter) else new)
        fast.warm()
    assert fast.graphs.counts["captures"] == (1 if how == "in place" and not prepares else 3)


def test_packed_parameters_live_as_long_as_the_graph_around_them() -> None:
    fast = Fast(prepares=True)
    fast.warm()
    ((_, calls),) = fast.graphs._calls
    (kind,) = calls._kinds.values()
    assert len(kind.packed) == 4 and all(kind.packed), "two programs, each before the capture and in it"


SURROUNDINGS: dict[str, Callable[[Any, ExitStack], Any]] = {
    "norm is in training mode": lambda net, stack: net.norm.train(),
    "norm has hooks": lambda net, stack: stack.enter_context(
        removed(net.norm.register_forward_hook(lambda *a: a[2] * 2))
    ),
    "first has hooks": lambda net, stack: stack.enter_context(
        removed(net.first.register_forward_hook(lambda *a: a[2] * 2))
    ),
    "hooks of all modules": lambda net, stack: stack.enter_context(
        removed(torch.nn.modules.module.register_module_forward_hook(lambda *a: None))
    ),
    "autocast is on": lambda net, stack: stack.enter_context(torch.autocast("cpu")),
    "gradients are wanted": lambda net, stack: stack.enter_context(torch.enable_grad()),
}


class removed:
    """A hook that goes with the block."""

    def __init__(self, hook: Any) -> None:
        self.hook = hook

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        self.hook.remove()


@pytest.mark.parametrize("why", SURROUNDINGS)
def test_calls_in_other_surroundings_are_the_modules_own_for_as_long(why: str) -> None:
    fast = Fast()
    fast.warm()
    x = torch.randn(3, WIDTH)
    before = fast.graphs.counts["replays"]
    with torch.no_grad(), ExitStack() as stack:
        SURROUNDINGS[why](fast.net, stack)
        with pytest.warns(FallbackWarning, match="Net replays no graph of the whole call") as told:
            found = fast.net(x)
            again = fast.net(x)
        assert sum("whole call" in str(one.message) for one in told) == 1, "it is said once"
        if "hooks" not in why:
            assert same(found, fast.eager(x)) or why == "autocast is on"
        assert same(found, again)
        assert len(fast.why) == 1 and why in fast.why[0] and fast.graphs.counts["launched"][fast.why[0]] == 2
        assert found["y"].requires_grad == (why == "gradients are wanted")
        hooked = copy.copy(fast.net)
        hooked.__dict__.pop("_compiled_call_impl", None)
        assert same(found, hooked(x))
    fast.net.eval()
    fast.right()
    assert fast.graphs.counts["replays"] == before + 1 and fast.graphs.counts["captures"] == 1


def test_where_all_of_a_call_cannot_be_captured_its_parts_are() -> None:
    class Outer(torch.nn.Module):
        def __init__(self, inner: Any) -> None:
            super().__init__()
            self.inner, self.plain = torch.nn.ModuleList([inner]), torch.nn.Linear(WIDTH, WIDTH)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.inner[0](x)["y"]
            return self.plain(y if float(y.sum()) > 0 else y + 1)

    tapes = TapeGraphs()
    inner = replaced(Net(), tapes)
    outer = Outer(inner).eval()
    assert put_graphs(outer, tapes) is not None
    with torch.no_grad():
        for _ in range(2 * WARM_CALLS + 3):
            outer(torch.randn(3, WIDTH))
    found = forward_counts(outer)
    assert set(found) == {"", "inner.0"} and not found[""]["captures"]
    assert found["inner.0"]["captures"] == 1 and found["inner.0"]["replays"] >= 2
    take_graphs(outer)
    assert not forward_counts(outer)


class Rows(torch.nn.Module):
    """The first rows."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x[:3]


def test_where_no_kind_comes_again_drop_ins_replay_graphs_of_their_own() -> None:
    fast = Fast()
    fast.net.first = torch.nn.Sequential(Rows(), fast.first)
    with torch.no_grad():
        for rows in range(3, 3 + PATIENCE + WARM_CALLS + 2):
            fast.net(torch.randn(rows, WIDTH))
    assert fast.first.device_graphs["replays"] > 0 and not fast.graphs.counts["captures"]


def test_a_capture_that_fails_is_said_once_and_not_tried_again() -> None:
    fast = Fast()
    fast.tapes.fails = "operation not permitted when stream is capturing"
    with pytest.warns(FallbackWarning, match="Net replays no graph of the whole call: it cannot be captured") as told:
        for _ in range(WARM_CALLS + 4):
            fast.right()
    assert sum("whole call" in str(one.message) for one in told) == 1
    ((why, count),) = ((w, n) for w, n in fast.graphs.counts["launched"].items() if w != NEW)
    assert "not permitted" in why and count == 4


def test_while_the_caller_captures_all_kernels_go_into_its_graph() -> None:
    fast = Fast()
    fast.warm()
    fast.tapes.outer = True
    fast.right()
    assert fast.graphs.counts["launched"][CAPTURES] == 1 and fast.first.device_graphs["launched"][CAPTURES] >= 1


def test_other_parts_are_looked_at_anew_and_a_module_that_always_changes_is_left_alone() -> None:
    fast = Fast()
    fast.warm()
    fast.net.norm = torch.nn.LayerNorm(WIDTH, eps=1.0).eval()
    fast.warm()
    assert fast.graphs.counts == {"replays": 2, "captures": 2, "launched": {NEW: 2 * WARM_CALLS}}
    for n in range(CHANGES + 3):
        fast.net.norm.eps = 2.0 + n
        fast.right()
    assert fast.why == ["between calls, norm.eps has changed"]


def test_graphs_may_be_turned_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HIPWRIGHT_DEVICE_GRAPHS", "0")
    fast = Fast()
    for _ in range(WARM_CALLS + 2):
        fast.right()
    assert fast.graphs.counts == {
        "replays": 0,
        "captures": 0,
        "launched": {"HIPWRIGHT_DEVICE_GRAPHS=0": WARM_CALLS + 2},
    }


def test_modules_without_programs_of_a_gpu_are_left_alone() -> None:
    net = Net().eval()
    assert put_graphs(net) is None
    part = net.first
    net.first = OptimizedModule(part, traced("first"), None, "none was verified")
    assert put_graphs(net) is None and "_compiled_call_impl" not in vars(net)
    drop_in = Fast().first
    assert put_graphs(drop_in) is None


def test_a_module_that_has_left_the_device_is_its_own() -> None:
    fast = Fast()
    fast.graphs._device = "cuda"  # as of programs there
    fast.right()
    assert fast.why == ["arguments and parameters are on cpu, and the programs run on cuda"]


def test_copies_and_texts_of_a_module_have_no_graphs() -> None:
    fast = Fast()
    fast.warm()
    second = copy.deepcopy(fast.net)
    assert not forward_counts(second)
    x = torch.randn(3, WIDTH)
    with torch.no_grad():
        assert same(second(x), fast.right(x))
    assert isinstance(put_graphs(second, fast.tapes), ForwardGraphs)
    assert [*fast.net.state_dict()] == [*Net().state_dict()]


def test_threads_get_their_own_results() -> None:
    fast = Fast()
    wrong = []

    def work() -> None:
        for _ in range(15):
            x = torch.randn(3, WIDTH)
            with torch.no_grad():
                if not same(fast.net(x), expected(x)):
                    wrong.append(x)

    first, norm, last = fast.first.original, fast.net.norm, fast.last.original

    def expected(x: torch.Tensor) -> Any:
        y = norm(first(x)) * fast.net.scale + fast.net.shift
        y = last(y + torch.arange(WIDTH, dtype=y.dtype) * torch.tensor(0.5))
        return {"y": y, "again": (y, None, 3)}

    fast.warm()
    threads = [threading.Thread(target=work) for _ in range(3)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert not wrong and fast.graphs.counts["captures"] == 1
