"""Runs of the reference that begin on a kept model: each is as the first."""

import numpy as np
import pytest
from task_files import FILES

from hipwright.errors import TaskError, WorkerError
from hipwright.task import open_task
from hipwright.task.host import prepared
from hipwright.task.reference_host import NUMBERED
from hipwright.tensors import Tree


def same(one, other) -> bool:
    return one.bits().tobytes() == other.bits().tobytes()


def test_a_forward_that_writes_to_its_parameters_begins_anew(load):
    handle = load("writes_to_itself")
    inputs, state = handle.inputs("given", 0), handle.init_state(0)
    first = handle.reference(inputs, state)
    for dtype in ("float64", "native", "float64"):
        again = handle.reference(inputs, state, dtype=dtype)
        assert again[1]["calls"].to_f64() == 1
        if dtype == "float64":
            assert same(again[0], first[0])


def test_a_state_is_sent_once_and_again_where_the_host_has_lost_it(load, monkeypatch):
    handle = load("linear_gelu")
    sent: list[bool] = []
    ask = handle._host.ask

    def counted(method: str, header: dict, bundle: Tree):
        sent.append(bundle[1] is not None)
        return ask(method, header, bundle)

    inputs, states = handle.inputs("given", 0), [handle.init_state(0) for _ in range(2)]
    first = handle.reference(inputs, states[0])[0]
    monkeypatch.setattr(handle._host, "ask", counted)
    assert same(handle.reference(inputs, states[0])[0], first) and sent == [False]
    handle.reference(inputs, states[1])
    assert sent == [False, True]
    handle._host._session.close()  # its process dies; the next call starts another host
    sent.clear()
    assert same(handle.reference(inputs, states[0])[0], first) and sent == [False, True]


def test_work_in_the_background_starts_no_process_for_a_closed_task(zygote):
    """Found in CI: cases were made while their program was refused and the task closed, and a process stayed."""
    with open_task(FILES / "linear_gelu.py", zygote) as handle:
        inputs, state = handle.inputs("given", 0), handle.init_state(0)
    for ask in (lambda: handle.inputs("given", 1), lambda: handle.reference(inputs, state, apart=True)):
        with pytest.raises(WorkerError, match="is closed"):
            ask()
    assert handle._host._session is None and handle._second._session is None


def test_many_states_do_not_pile_up(zygote):
    with open_task(FILES / "linear_gelu.py", zygote) as handle:
        inputs = handle.inputs("given", 0)
        states = [handle.init_state(number) for number in range(NUMBERED + 3)]
        wanted = [handle.reference(inputs, state)[0] for state in states]
        assert len(handle._host._numbered) == NUMBERED
        for state, want in zip(states, wanted, strict=True):
            assert same(handle.reference(inputs, state)[0], want)


def test_kept_models_and_states_stay_within_their_bytes():
    import torch

    made = []

    def make(state: Tree) -> torch.nn.Module:
        made.append(state)
        return torch.nn.Linear(8, 8)

    size = sum(p.numel() * 4 for p in torch.nn.Linear(8, 8).parameters())
    models = prepared.PreparedModels(make, 2 * size)
    first = models.begin(0, "a", False)
    assert models.begin(0, "a", False).weight is first.weight and made == ["a"]
    models.begin(1, "b", False), models.begin(2, "c", False), models.begin(0, "a", False)
    assert made == ["a", "b", "c", "a"]
    first = models.begin(0, "a", False)
    with torch.no_grad():
        first.weight.data[0] += 1
    models.end(0, False)
    models.begin(0, "a", False)
    assert made[4:] == ["a"]
    models = prepared.PreparedModels(make, size - 1)
    models.begin(5, "d", False), models.begin(5, "d", False)
    assert made[5:] == ["d", "d"]


def test_a_buffer_that_is_a_parameters_memory_stays_so():
    import torch

    class Tied(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(4))
            self.register_buffer("view", self.weight.data)

    models = prepared.PreparedModels(lambda state: Tied())
    for _ in range(2):
        model = models.begin(0, {}, False)
        assert model.view.data_ptr() == model.weight.data_ptr()


def test_what_a_forward_does_to_a_module_it_shares_is_undone():
    """Copies have torch's own modules in common: another attribute or parameter of one makes the model anew."""
    import torch
    from torch import nn

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.norm, self.act = nn.Linear(4, 4), nn.BatchNorm1d(4), nn.LeakyReLU(0.1)

    def slope(net: Net) -> None:
        net.act.negative_slope = 3.0

    def weight(net: Net) -> None:
        net.inner.weight = nn.Parameter(torch.zeros(4, 4))

    def cache(net: Net) -> None:
        net.inner.cached = []

    def none(net: Net) -> None:
        net.inner.bias = None

    for change in (slope, weight, cache, none):
        models = prepared.PreparedModels(lambda state: Net())
        first = models.begin(0, {}, False)
        models.end(0, False)
        again = models.begin(0, {}, False)
        assert again.inner is first.inner and again.act is first.act and again is not first
        change(again)
        models.end(0, False)
        third = models.begin(0, {}, False)
        assert third.act.negative_slope == 0.1 and bool(third.inner.weight.any()) and third.inner.bias is not None
        assert not hasattr(third.inner, "cached")
    models = prepared.PreparedModels(lambda state: Net())
    models.begin(0, {}, False).norm.running_mean.add_(1)
    assert not bool(models.begin(0, {}, False).norm.running_mean.any())


def test_a_table_that_is_built_for_the_inputs_sizes_is_no_state(load):
    handle = load("cache_of_sizes")
    inputs, state = handle.inputs("given", 0), handle.init_state(0)
    for dtype in ("native", "float64", "native"):
        outputs, after, _ = handle.reference(inputs, state, dtype=dtype)
        assert same(after["places"], state["buffers"]["places"])
        want = np.tanh(inputs[0].to_f64() + np.arange(40) / 40)
        assert np.allclose(outputs.to_f64(), want, atol=1e-6)


def test_a_state_that_grows_with_every_call_is_the_tasks_fault(load):
    handle = load("growing_state")
    with pytest.raises(TaskError, match=r"growing_state.py: self.seen has another shape .* \[2, 40\], then \[7, 40\]"):
        handle.reference(handle.inputs("given", 0), handle.init_state(0), dtype="native")
