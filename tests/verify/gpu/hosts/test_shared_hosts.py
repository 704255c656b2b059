"""Device hosts that tasks share: a task's effects, or the end of the process, do not affect other tasks for long."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from hipwright.errors import DeviceError, HipwrightError, TaskError
from hipwright.records import TolerancePolicy
from hipwright.sandbox import Limits, Session, Zygote
from hipwright.task import TaskHandle
from hipwright.tensors import HostTensor, Tree, map_tensors, tensor_leaves
from hipwright.torchio import to_torch
from hipwright.verify.gpu.hosts.shared_hosts import SharedHosts
from hipwright.verify.gpu.reference import open_reference
from tests.verify.conftest import Tasks
from tests.verify.gpu.test_reference import STRICT, stream

LIMITS = Limits(wall_s=60.0)


@pytest.fixture(scope="module")
def hosts() -> Iterator[Zygote]:
    with Zygote(("torch", "hipwright.task.device.server"), name="device host") as it:
        yield it


@pytest.fixture
def shared(request: pytest.FixtureRequest, hosts: Zygote) -> Iterator[SharedHosts]:
    with SharedHosts(hosts, getattr(request, "param", 1)) as made:
        yield made


def session_of(shared: SharedHosts, number: int = 0) -> Session:
    found = shared._processes[number]._session
    assert found is not None
    return found


@pytest.mark.parametrize("shared", [2], indirect=True)
def test_tasks_go_to_the_process_with_the_fewest(shared: SharedHosts, tasks: Tasks) -> None:
    known = {"last_level_bytes": 1 << 28}
    opened = [
        open_reference(tasks.oracle(name).handle, shared, "cpu", **known) for name in ("softmax", "row_sum", "linear")
    ]
    assert {one.info["llc_bytes"] for one in opened} == {1 << 28}, "torch's own figure is smaller"
    assert sorted(len(process.tasks) for process in shared._processes) == [1, 2]
    assert session_of(shared, 0) is not session_of(shared, 1)
    for one in opened:
        one.close()
        one.close()
    assert not any(process.tasks or process.starting for process in shared._processes)
    assert session_of(shared).alive, "the next task finds it warm"


def test_a_process_that_died_is_replaced_and_its_tasks_are_opened_again(shared: SharedHosts, tasks: Tasks) -> None:
    handles = [tasks.oracle(name).handle for name in ("softmax", "row_sum")]
    references = [open_reference(handle, shared, "cpu") for handle in handles]
    states = [handle.init_state(1) for handle in handles]
    policy = TolerancePolicy()
    first = [one.expect("given", 3, state, policy) for one, state in zip(references, states, strict=True)]
    dead = session_of(shared)
    signal.pidfd_send_signal(dead._pidfd, signal.SIGKILL)
    with pytest.raises(HipwrightError):
        references[0].inputs("given", 4).digests()
    again = [one.expect("given", 3, state, policy) for one, state in zip(references, states, strict=True)]
    assert session_of(shared) is not dead
    assert [one.tree for one in again] == [one.tree for one in first]
    for one in references:
        one.close()
    assert not shared._processes[0].tasks and not shared._processes[0].starting


def test_a_device_fault_ends_the_process_and_a_task_fault_does_not(shared: SharedHosts, tasks: Tasks) -> None:
    handle = tasks.oracle("softmax").handle
    with open_reference(handle, shared, "cpu") as one, open_reference(handle, shared, "cpu") as other:
        hosted = one._alive()
        with pytest.raises(TaskError), hosted.closing_on_fault():  # type: ignore[union-attr]
            raise TaskError("of its own")
        assert other._alive().alive
        with pytest.raises(DeviceError), hosted.closing_on_fault():  # type: ignore[union-attr]
            raise DeviceError("an illegal address")
        assert not session_of(shared).alive
        assert other.inputs("given", 1).digests()


def test_a_task_that_cannot_start_is_not_counted(shared: SharedHosts) -> None:
    with pytest.raises(TaskError):
        shared.session("", {"name": "broken.py", "source": "raise RuntimeError('no')", "device": "cpu"}, limits=LIMITS)
    assert not shared._processes[0].tasks and not shared._processes[0].starting


@pytest.mark.parametrize("in_shared", [False, True])
def test_comparisons_with_one_case_at_once_do_not_mix(
    in_shared: bool, shared: SharedHosts, hosts: Zygote, tasks: Tasks
) -> None:
    """Several workers may verify programs of one task: each gets its own results."""
    handle = tasks.oracle("softmax").handle
    state = handle.init_state(2)
    with open_reference(handle, shared if in_shared else hosts, "cpu") as reference:
        info = reference.expect("given", 5, state, STRICT)
        good, bad = ({"outputs": answer(handle, state), "buffers": {}} for _ in range(2))
        to_torch(bad["outputs"]).view(-1)[-1] += 0.25

        def ok(number: int) -> bool:
            got = good if number % 2 else bad
            return reference.compare(info, map_tensors(got, lambda t: t.spec), stream(got, 512)).ok

        with ThreadPoolExecutor(6) as pool:
            assert list(pool.map(ok, range(36))) == [bool(number % 2) for number in range(36)]


def answer(handle: TaskHandle, state: Tree) -> HostTensor:
    """The correct output for seed 5."""
    (found,) = tensor_leaves(handle.reference(handle.inputs("given", 5), state, dtype="native")[0])
    return found
