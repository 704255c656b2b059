"""Parameters that stay in the device host, with the CPU as the device: the same rules as in the parent."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hipwright.errors import TaskError
from hipwright.held import HeldFrom, HeldTable, HeldTensor, held
from hipwright.records import TolerancePolicy
from hipwright.sandbox import Zygote
from hipwright.task import TaskHandle, open_task
from hipwright.tensors import HostTensor, map_tensors, read_bundle, tensor_leaves, write_bundle
from hipwright.verify import Oracle
from hipwright.verify import inputs as draws
from hipwright.verify.gpu.client import CandidateWorker
from hipwright.verify.gpu.hosts.held_reference import HeldReference
from hipwright.verify.gpu.reference import DeviceReference, open_reference
from tests.verify.conftest import TASKS
from tests.verify.gpu.judged_programs import text_of, verdict_of

Held = Callable[[str], tuple[TaskHandle, DeviceReference]]
TIED = """
import torch
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = torch.nn.Linear(6, 6), torch.nn.Linear(6, 6)
        self.two.weight = self.one.weight
        self.whole = torch.nn.Parameter(torch.ones(4, dtype=torch.bfloat16))
    def forward(self, x):
        return self.two(self.one(x)) * self.whole.sum()
def get_inputs():
    return [torch.randn(3, 6)]
"""
ALWAYS = HeldFrom(0, 0.0)
PRODUCT = """
import torch
class Model(torch.nn.Module):
    def forward(self, x, y):
        return torch.relu(x @ y)
def get_inputs():
    return [torch.randn(32, 24), torch.randn(24, 40)]
"""
DRAWS = TIED.replace("return self.two", "x = torch.nn.functional.dropout(x, 0.5)\n        return self.two")
REFUSED = TIED.replace("return self.two", "assert x.abs().max() < 100, 'too far'\n        return self.two")


@pytest.fixture(scope="module")
def held_task(task_zygote: Zygote, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Held]:
    """held_task(name of the corpus, or source) -> (handle whose parameters are held, reference)."""
    folder = tmp_path_factory.mktemp("held")
    with ExitStack() as stack:
        hosts = stack.enter_context(Zygote(("torch", "hipwright.task.device.server"), name="device host"))
        known: dict[str, tuple[TaskHandle, DeviceReference]] = {}

        def get(task: str) -> tuple[TaskHandle, DeviceReference]:
            if task not in known:
                path = TASKS / f"{task}.py"
                if "\n" in task:
                    path = folder / f"task{len(known)}.py"
                    path.write_text(task)
                handle = stack.enter_context(open_task(path, task_zygote))
                reference = stack.enter_context(open_reference(handle, hosts, "cpu"))
                handle.delegate(HeldReference(lambda: reference), ALWAYS)
                known[task] = handle, reference
            return known[task]

        yield get


def at_hand(state: Any) -> Any:
    """The table with copies of its parameters, as a task host takes it."""
    params = {path: HostTensor.of(t.bits(), t.dtype) for path, t in state["params"].items()}
    return {**state, "params": params}


@pytest.mark.parametrize("name", ["mlp", "layer_norm", "batch_norm", "ema"])
@pytest.mark.parametrize("dtype", ["native", "float64"])
def test_a_run_there_is_a_run_here(name: str, dtype: Any, held_task: Held) -> None:
    handle, _ = held_task(name)
    state = handle.init_state(3)
    assert held(state) is not None
    given = handle.inputs("given", 5)
    there = handle.reference(given, state, dtype=dtype, close="float32")
    here = handle.reference(given, at_hand(state), dtype=dtype, close="float32")
    assert there[2]["reference_dtype"] == here[2]["reference_dtype"] and there[2]["aliases"] == here[2]["aliases"]
    for mine, other in zip(tensor_leaves(there[:2]), tensor_leaves(here[:2]), strict=True):
        assert (mine.dtype, mine.shape) == (other.dtype, other.shape)
        np.testing.assert_allclose(mine.to_f64(), other.to_f64(), rtol=1e-12 if dtype == "float64" else 1e-5, atol=1e-6)


def test_changes_follow_the_rules_of_host_states(held_task: Held) -> None:
    handle, _ = held_task("layer_norm")
    first, twin = handle.init_state(1), handle.init_state(2)
    noisy = draws.randomise_state(first, twin, 7, "usual")
    for path, tensor in noisy["params"].items():
        values = tensor.to_f64()
        assert len(np.unique(values)) > values.size // 2, path  # no default is left
        ones = bool((first["params"][path].to_f64() == 1.0).all())
        assert not ones or (values.min() >= 0.5 and values.max() <= 1.5)
    nudged = draws.nudge_state(noisy, 11)
    usual = draws.nudge_state(at_hand(noisy), 11)
    for path, tensor in noisy["params"].items():
        moves = [np.abs(state["params"][path].to_f64() / tensor.to_f64() - 1.0).max() for state in (nudged, usual)]
        assert moves[0] > 0 and 0.3 < moves[0] / moves[1] < 3
    whole = draws.whole_state(noisy, 5)
    assert all((t.to_f64() == np.round(t.to_f64())).all() for t in whole["params"].values())
    low = draws.absolute_state(noisy)
    for path, tensor in low["params"].items():
        np.testing.assert_array_equal(tensor.to_f64(), np.abs(noisy["params"][path].to_f64()))


def test_tied_parameters_stay_tied_and_a_new_host_makes_the_same_bytes(held_task: Held) -> None:
    handle, reference = held_task(TIED)
    state = draws.nudge_state(draws.randomise_state(handle.init_state(1), handle.init_state(2), 3, "usual"), 4)
    params = state["params"]
    assert isinstance(params, HeldTable) and all(isinstance(t, HeldTensor) for t in params.values())
    one, two = params["one.weight"], params["two.weight"]
    kept = one.storage
    assert two.storage is kept
    before = {path: tensor.storage.tobytes() for path, tensor in params.items()}
    kept = None
    reference.close()
    after = {path: tensor.storage.tobytes() for path, tensor in params.items()}
    assert before == after and params["whole"].dtype == "bfloat16"
    whole = draws.whole_state(state, 9)["params"]
    assert whole["one.weight"].storage.tobytes() == whole["two.weight"].storage.tobytes()


def test_a_bundle_holds_every_parameter_once(held_task: Held) -> None:
    handle, _ = held_task(TIED)
    params = handle.init_state(1)["params"]
    fd = os.memfd_create("bundle")
    for _ in range(20):  # what is fetched lies at addresses that are used again
        os.ftruncate(fd, 0)
        write_bundle(fd, params)
        found = read_bundle(fd, own=True)
        for path, tensor in params.items():
            np.testing.assert_array_equal(found[path].to_f64(), tensor.to_f64())
        assert found["one.weight"].storage is found["two.weight"].storage
    os.close(fd)


def test_a_task_that_draws_runs_in_its_own_host(held_task: Held) -> None:
    handle, _ = held_task(DRAWS)
    state, given = handle.init_state(1), handle.inputs("given", 2)
    first = handle.reference(given, state, dtype="native", draw=4)
    again = handle.reference(given, at_hand(state), dtype="native", draw=4)
    for mine, other in zip(tensor_leaves(first[0]), tensor_leaves(again[0]), strict=True):
        np.testing.assert_array_equal(mine.to_f64(), other.to_f64())
    assert held(handle.init_state(2)) is None


def test_inputs_that_the_reference_refuses_are_refused_there(held_task: Held) -> None:
    handle, _ = held_task(REFUSED)
    state, given = handle.init_state(1), handle.inputs("given", 2)
    handle.reference(given, state)
    far = map_tensors(given, lambda t: HostTensor.of(t.bits() * 1000.0))
    with pytest.raises(TaskError, match="too far"):
        handle.reference(far, state)
    assert held(handle.init_state(2)) is not None


@pytest.mark.parametrize(("operations", "there"), [(2.0 * 32 * 24 * 40, True), (2.0 * 32 * 24 * 40 + 1, False)])
def test_a_forward_of_many_operations_runs_there(
    operations: float, there: bool, task_zygote: Zygote, tmp_path: Path
) -> None:
    """Also one without parameters."""
    (tmp_path / "product.py").write_text(PRODUCT)
    with ExitStack() as stack:
        hosts = stack.enter_context(Zygote(("torch", "hipwright.task.device.server"), name="device host"))
        handle = stack.enter_context(open_task(tmp_path / "product.py", task_zygote))
        reference = stack.enter_context(open_reference(handle, hosts, "cpu"))
        handle.delegate(HeldReference(lambda: reference), HeldFrom(1, operations))
        oracle = Oracle(handle, seed=20)
        assert oracle.status() is None
        assert (held(oracle.state) is not None) == there == handle._runs_elsewhere


@pytest.mark.parametrize(
    ("task", "name", "status"),
    [
        ("linear", "linear_packed", "pass"),
        ("batch_norm", "batch_norm_columns", "pass"),
        ("linear", "first_result", "wrong_value"),
        ("scale_bias", "skips_parameters", "wrong_value"),
        ("batch_norm", "stale_statistics", "wrong_value"),
    ],
)
def test_programs_are_judged_as_ever(
    task: str, name: str, status: str, held_task: Held, worker: CandidateWorker
) -> None:
    handle, reference = held_task(task)
    oracle = Oracle(handle, seed=20)
    kind = "honest" if status == "pass" else "wrong"
    verdict = verdict_of(text_of(kind, name), oracle, worker, reference=reference)
    assert verdict.status == status, verdict.message
    assert held(oracle.state) is not None


@pytest.mark.parametrize("task", [PRODUCT, TIED], ids=["no parameters", "parameters"])
def test_an_expectation_at_the_own_shape_is_made_on_every_held_state(task: str, held_task: Held) -> None:
    """Both requests that send a state's recipe, "held_run" and "state", take one without parameters too."""
    handle, reference = held_task(task)
    state = handle.init_state(11)
    assert held(state) is not None
    info = reference.expect("given", 11, state, TolerancePolicy())
    assert info.counts and info.reference == "float64"
