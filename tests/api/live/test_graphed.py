"""Graphs of a program's calls: what is captured, when a call is launched plainly, and that no result is an old one.

Tensors lie in the processor's memory. A stand-in plays the GPU: its graph has the addresses that the capture had.
"""

from __future__ import annotations

import copy
import gc
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
import torch
from torch.multiprocessing.reductions import StorageWeakRef

from hipwright.api.live import graphed
from hipwright.api.live.exported import live_task
from hipwright.api.live.graphed import WARM_CALLS, GraphedProgram, library_settings
from hipwright.api.live.module import OptimizedModule
from hipwright.errors import GuardFailed
from tests.api.live.tape import TapeGraphs

State = dict[str, torch.Tensor]
WEIGHT = torch.ones(4)


class Scaled:
    """x * w + the sum of `packed`, which is made of w like a program's `prepare`; w must have two columns or more."""

    device = "cpu"

    def __init__(self, prepares: bool = False) -> None:
        self.prepares, self.calls = prepares, 0
        self._known: dict[tuple[int, int], torch.Tensor] = {}

    def packed(self, inputs: Sequence[torch.Tensor], state: Mapping[str, torch.Tensor]) -> torch.Tensor:
        w = state["w"]
        key = (w.data_ptr(), 0 if w.is_inference() else w._version)
        return self._known.setdefault(key, w * 10)

    def __call__(self, inputs: Sequence[torch.Tensor], state: Mapping[str, torch.Tensor]) -> graphed.Call:
        self.calls += 1
        (x,), w = inputs, state["w"]
        if x.shape[-1] < 2:
            raise GuardFailed("x has one column")
        more = self.packed(inputs, state) if self.prepares else w * 10
        return [x * w + more], {"seen": x.sum()}


class Recorder(TapeGraphs):
    """A stand-in for `CudaGraphs` by which a whole call runs again, with the tensors of the capture."""

    def capture(self, device: torch.device, call: Callable[[], Any]) -> tuple[Callable[[], None], Any]:
        call()
        if self.fails:
            raise RuntimeError(self.fails)
        outputs, buffers = call()
        outputs[0].fill_(float("nan"))  # a capture computes nothing

        def replay() -> None:
            new, seen = call()
            outputs[0].copy_(new[0])
            buffers["seen"].copy_(seen["seen"])

        return replay, (outputs, buffers)


def made(prepares: bool = False, most: int = 16) -> tuple[GraphedProgram, Recorder, Scaled]:
    program, graphs = Scaled(prepares), Recorder()
    return GraphedProgram(program, graphs, most=most), graphs, program


def right(fast: GraphedProgram, x: torch.Tensor, state: State) -> torch.Tensor:
    """The output of a call, which is compared."""
    (found,), buffers = fast([x], state)
    assert torch.allclose(found, x * state["w"] + state["w"] * 10) and torch.equal(buffers["seen"], x.sum())
    return found


def test_calls_of_a_kind_replay_one_graph_on_new_values() -> None:
    fast, _, _ = made()
    state = {"w": torch.randn(4)}
    for _ in range(6):
        right(fast, torch.randn(3, 4), state)
    assert fast.captures == 1 and fast.replays == 6 - WARM_CALLS and fast.launched == {"its kind is new": WARM_CALLS}


def test_a_result_is_the_callers_and_is_not_written_again() -> None:
    fast, _, _ = made()
    state, x = {"w": torch.randn(4)}, torch.randn(3, 4)
    kept = [right(fast, x + n, state) for n in range(6)]
    for n, one in enumerate(kept):
        assert torch.allclose(one, (x + n) * state["w"] + state["w"] * 10)


@pytest.mark.parametrize("other", ["shape", "strides", "dtype", "stream"])
def test_another_kind_of_call_has_a_graph_of_its_own(other: str) -> None:
    fast, graphs, _ = made()
    state = {"w": torch.randn(4)}
    for _ in range(WARM_CALLS + 2):
        right(fast, torch.randn(4, 4), state)
    graphs.current = 7 if other == "stream" else 0
    changed = {
        "shape": lambda: torch.randn(9, 4),
        "strides": lambda: torch.randn(4, 4).t(),
        "dtype": lambda: torch.randn(4, 4, dtype=torch.float64),
        "stream": lambda: torch.randn(4, 4),
    }[other]
    before = fast.replays
    for _ in range(WARM_CALLS):
        fast([changed()], state)
    assert fast.replays == before
    (found,), _ = fast([x := changed()], state)
    assert fast.captures == 2 and fast.replays == before + 1
    assert torch.allclose(found, (x * state["w"] + state["w"] * 10).to(found.dtype))


@pytest.mark.parametrize(
    ("owner", "name"),
    [
        (torch.backends.cuda.matmul, "allow_tf32"),
        (torch.backends.cuda.matmul, "allow_bf16_reduced_precision_reduction"),
        (torch.backends.cudnn, "allow_tf32"),
        (torch.backends.cudnn, "deterministic"),
    ],
)
def test_a_setting_of_the_library_is_another_kind(owner: Any, name: str) -> None:
    value = getattr(owner, name)
    setattr(owner, name, value)  # what was never set is named otherwise
    before = library_settings()
    try:
        setattr(owner, name, not value)
        assert library_settings() != before
        setattr(owner, name, value)
        assert library_settings() == before
        fast, _, _ = made()
        for on in (value, not value):
            setattr(owner, name, on)
            for _ in range(WARM_CALLS + 1):
                right(fast, torch.ones(2, 4), {"w": WEIGHT})
        assert fast.captures == 2
    finally:
        setattr(owner, name, value)


@pytest.mark.parametrize("prepares", [False, True])
@pytest.mark.parametrize("how", ["replaced", "data", "in place"])
def test_a_parameter_that_changes_is_never_the_old_one(how: str, prepares: bool) -> None:
    fast, _, _ = made(prepares)
    state, x = {"w": torch.randn(4)}, torch.randn(3, 4)
    for _ in range(3):
        for _ in range(WARM_CALLS + 2):
            right(fast, x, state)
        if how == "replaced":
            state["w"] = torch.randn(4)
        elif how == "data":
            state["w"].data = torch.randn(4)
        else:
            state["w"].mul_(3)
    again = prepares or how != "in place"
    assert fast.captures == (3 if again else 1)


def test_a_freed_parameter_whose_address_comes_again_is_another() -> None:
    fast, _, _ = made(prepares=True)
    state = {"w": torch.randn(4)}
    for _ in range(WARM_CALLS + 1):
        right(fast, torch.randn(3, 4), state)
    (kind,) = fast._kinds.values()
    assert not kind.expired()
    kind.storages = [StorageWeakRef(torch.zeros(4).untyped_storage())]  # freed; address and version are the same
    for _ in range(WARM_CALLS):
        right(fast, torch.randn(3, 4), state)
    assert fast.captures == 1 and fast.replays == 1


def test_a_graph_keeps_no_parameter_alive() -> None:
    fast, graphs, _ = made()
    graphs.capture = lambda device, call: (lambda: None, call())  # type: ignore[method-assign]
    state = {"w": torch.randn(4)}
    for _ in range(WARM_CALLS + 1):
        fast([torch.randn(3, 4)], state)
    (kind,) = fast._kinds.values()
    del state["w"]
    gc.collect()
    assert kind.expired()


def test_packed_weights_live_as_long_as_their_graph() -> None:
    fast, _, program = made(prepares=True)
    state = {"w": torch.randn(4)}
    for _ in range(WARM_CALLS + 1):
        right(fast, torch.randn(3, 4), state)
    (kind,) = fast._kinds.values()
    assert kind.packed is program.packed([], state)


def test_while_the_caller_captures_kernels_are_launched_into_its_graph() -> None:
    fast, graphs, program = made()
    state, x = {"w": torch.randn(4)}, torch.randn(3, 4)
    for _ in range(WARM_CALLS + 1):
        right(fast, x, state)
    graphs.outer, before = True, program.calls
    right(fast, x, state)
    assert program.calls == before + 1 and fast.launched["the caller captures"] == 1
    graphs.outer = False
    right(fast, x, state)
    assert fast.captures == 1 and fast.replays == 2


def test_a_capture_that_fails_is_not_tried_again() -> None:
    fast, graphs, _ = made()
    graphs.fails = "operation not permitted when stream is capturing"
    state = {"w": torch.randn(4)}
    for _ in range(WARM_CALLS + 3):
        right(fast, torch.randn(3, 4), state)
    assert not fast.captures and not fast.replays
    (why,) = [one for one in fast.launched if "cannot be captured" in one]
    assert "not permitted" in why and fast.launched[why] == 3


def test_overlapping_and_large_inputs_are_launched_plainly(monkeypatch: pytest.MonkeyPatch) -> None:
    fast, _, _ = made()
    state = {"w": torch.randn(4)}
    for _ in range(WARM_CALLS + 2):
        right(fast, torch.randn(1, 4).expand(3, 4), state)
    monkeypatch.setattr(graphed, "LARGEST", 100)
    for _ in range(WARM_CALLS + 2):
        right(fast, torch.randn(30, 4), state)  # the outputs alone
        right(fast, torch.randn(5, 4), state)  # with the outputs
    assert not fast.captures and fast.launched[graphed.OVERLAPPING] == WARM_CALLS + 2
    assert sum("would be copied" in why for why in fast.launched) == 1


def test_the_number_of_graphs_is_bounded() -> None:
    fast, _, _ = made(most=3)
    state = {"w": torch.randn(4)}
    for rows in range(1, 8):
        for _ in range(WARM_CALLS + 1):
            right(fast, torch.randn(rows, 4), state)
        assert len(fast._kinds) <= 3
    assert fast.captures == 7
    right(fast, torch.randn(7, 4), state)
    assert fast.replays == 8  # the newest are kept


def test_what_all_graphs_keep_is_bounded_and_given_back() -> None:
    fast, graphs, _ = made(most=2)
    state = {"w": torch.randn(4)}
    graphs.most = 2 * (3 * 4 + 3 * 4 + 1) * 4
    for rows in (3, 2, 3, 2):
        for _ in range(WARM_CALLS + 1):
            right(fast, torch.randn(rows, 4), state)
    assert fast.captures == 2 and graphs.kept == (24 + 1 + 16 + 1) * 4
    other = fast.apart()
    for _ in range(WARM_CALLS + 2):
        right(other, torch.randn(3, 4), state)
    assert not other.captures and other.launched["graphs keep as much memory as they may"] == 2
    del fast
    gc.collect()
    assert not graphs.kept


def test_sizes_that_the_program_declines_are_still_declined() -> None:
    fast, _, _ = made()
    for _ in range(WARM_CALLS + 2):
        with pytest.raises(GuardFailed, match="one column"):
            fast([torch.randn(3, 1)], {"w": torch.randn(1)})


def test_graphs_made_under_inference_mode_serve_other_calls() -> None:
    fast, _, _ = made(prepares=True)
    state = {"w": torch.randn(4)}
    with torch.inference_mode():
        for _ in range(WARM_CALLS + 2):
            right(fast, torch.randn(3, 4), state)
    with torch.no_grad():
        right(fast, torch.randn(3, 4), state)
    assert fast.captures == 1


def test_threads_get_their_own_results() -> None:
    fast, _, _ = made()
    state = {"w": torch.randn(64)}
    wrong = []

    def work() -> None:
        for _ in range(50):
            try:
                right(fast, torch.randn(8, 64), state)
            except AssertionError as error:
                wrong.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert not wrong and fast.captures == 1


def test_a_drop_in_and_its_copy_have_graphs_of_their_own() -> None:
    module = torch.nn.ReLU()
    live = live_task(module, (torch.randn(3, 4),), {}, "relu")

    class Relu(Scaled):
        def __call__(self, inputs: Sequence[torch.Tensor], state: Mapping[str, torch.Tensor]) -> graphed.Call:
            return [torch.relu(inputs[0])], {"seen": inputs[0].sum()}

    first = OptimizedModule(module, live, GraphedProgram(Relu(), Recorder()))
    second = copy.deepcopy(first)
    with torch.no_grad():
        for _ in range(WARM_CALLS + 1):
            x = torch.randn(3, 4)
            assert torch.equal(first(x), torch.relu(x))
    assert first.device_graphs == {"replays": 1, "captures": 1, "launched": {"its kind is new": WARM_CALLS}}
    assert second.device_graphs == {"replays": 0, "captures": 0, "launched": {}}
    assert OptimizedModule(module, live, None).device_graphs == {}
