"""Tasks reserve a GPU's memory, and who is at fault where it runs out."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from visits import Visit

from hipwright.errors import DeviceError
from hipwright.evaluation.gpu.memory import PASSES, DeviceMemory, TaskNeed, estimated, learn, learnt_bytes
from hipwright.evaluation.gpu.room import TaskRoom
from hipwright.records import TensorSpec, Verdict, Workload
from hipwright.task import Outline
from hipwright.tensors import contiguous_strides
from hipwright.verify.gpu.hosts.device_process import Crowded

GB = 1 << 30
WHERE = pytest.mark.parametrize("where", ["here", "kept by another process"])


@contextmanager
def memories(where: str, total: int) -> Iterator[DeviceMemory]:
    """A GPU's memory, of this process or kept by another."""
    if where == "here":
        yield DeviceMemory(total)
    else:
        with Visit(total) as visit:
            assert visit.memory is not None
            yield visit.memory


@WHERE
@settings(max_examples=25, deadline=None)
@given(needs=st.lists(st.integers(1, 40), min_size=1, max_size=12), alone=st.integers(0, 11))
def test_what_is_inside_fits_and_everyone_gets_in(where: str, needs: list[int], alone: int) -> None:
    with memories(where, int(24 / 0.95) + 1) as memory:
        fits_and_gets_in(memory, needs, alone)


def fits_and_gets_in(memory: DeviceMemory, needs: list[int], alone: int) -> None:
    inside: list[int] = []
    most: list[tuple[int, int]] = []
    lock = threading.Lock()

    def run(number: int, need: int) -> None:
        place = memory.reserve(need)
        for turn in range(1 + 2 * (number == alone)):
            with lock:
                inside.append(place.need)
                most.append((sum(inside), len(inside)))
            time.sleep(0.0005)
            with lock:
                inside.remove(place.need)
            if number == alone and turn < 2:
                place.come_back()
        assert number != alone or place.alone
        place.leave()

    threads = [threading.Thread(target=run, args=one, daemon=True) for one in enumerate(needs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive()
    assert all(total <= memory.total or count == 1 for total, count in most)


@WHERE
def test_a_large_task_is_passed_by_a_few_small_ones_and_no_more(where: str) -> None:
    with memories(where, 100) as memory:
        first = memory.reserve(50)
        order: list[str] = []

        def enter(name: str, need: int) -> threading.Thread:
            def run() -> None:
                place = memory.reserve(need)
                order.append(name)
                place.leave()

            thread = threading.Thread(target=run, daemon=True)
            thread.start()
            return thread

        large = enter("large", 90)
        time.sleep(0.05)
        for number in range(PASSES):
            enter(str(number), 10).join(5)
        late = enter("late", 10)
        late.join(0.1)
        assert order == [str(number) for number in range(PASSES)]
        first.leave()
        large.join(5)
        late.join(5)
        assert order[PASSES:] == ["large", "late"]


@WHERE
def test_small_tasks_go_on_when_a_large_one_waits_for_long(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A task inside may compile for minutes."""
    monkeypatch.setattr("hipwright.evaluation.gpu.memory.PATIENCE_S", 0.3)
    with memories(where, int(100 / 0.95) + 1) as memory:
        inside = memory.reserve(20)
        large = threading.Thread(target=lambda: memory.reserve(90).leave(), daemon=True)
        large.start()
        time.sleep(0.05)
        started = time.monotonic()
        for _ in range(2 * PASSES + 1):
            memory.reserve(10).leave()
        assert time.monotonic() - started >= 0.6
        assert large.is_alive()
        inside.leave()
        large.join(5)
        assert not large.is_alive()


def in_turn(*works: Callable[[], None]) -> list[threading.Thread]:
    """A thread for each, started so far apart that they wait in this order."""
    threads = [threading.Thread(target=work, daemon=True) for work in works]
    for thread in threads:
        thread.start()
        time.sleep(0.1)
    return threads


def joined(threads: list[threading.Thread]) -> None:
    for thread in threads:
        thread.join(5)
        assert not thread.is_alive()


@WHERE
def test_nobody_passes_a_task_that_comes_back(where: str) -> None:
    """It comes back with twice as much, or with what it lacked, before those that wait; then alone."""
    with memories(where, int(100 / 0.95) + 1) as memory:
        one, other = memory.reserve(30), memory.reserve(60)
        order: list[str] = []

        def enter(name: str, need: int) -> None:
            place = memory.reserve(need)
            order.append(name)
            place.leave()

        def come_back() -> None:
            one.come_back(50)
            order.append(f"back with {one.need}")
            one.come_back()
            order.append(f"back with {one.need}")
            one.leave()

        waiting = in_turn(lambda: enter("before", 50), come_back, lambda: enter("after", 30))
        assert not order
        other.leave()
        joined(waiting)
        assert order[0] == "back with 80" and sorted(order[1:]) == ["after", "back with 100", "before"]


@WHERE
def test_spare_memory_is_waited_for_and_given_back(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with memories(where, int(100 / 0.95) + 1) as memory:
        one, other = memory.reserve(30), memory.reserve(50)
        paused: list[int] = []
        with one.spare(20, lambda: paused.append(1)) as more:
            assert more == 20 and len(paused) == (where == "here")
            entered: list[int] = []
            late = threading.Thread(target=lambda: entered.append(memory.reserve(20).need), daemon=True)
            late.start()
            late.join(0.1)
            assert not entered  # lent
        late.join(5)
        assert entered == [20]
        threading.Timer(0.2, other.leave).start()
        with one.spare(40, lambda: paused.append(1)) as more:
            assert more == 40 and (len(paused) > 2) == (where == "here")
        monkeypatch.setattr("hipwright.evaluation.gpu.memory.SPARE_S", 0.1)
        with one.spare(1000, lambda: None) as more:
            assert more == 50  # what there is
        with one.spare(1000, lambda: None) as more:
            assert more == 50  # and what was lent came back


@WHERE
def test_who_waits_for_spare_memory_comes_before_newcomers(where: str) -> None:
    with memories(where, int(100 / 0.95) + 1) as memory:
        one, other = memory.reserve(30), memory.reserve(50)
        order: list[str] = []

        def borrow() -> None:
            with one.spare(60, lambda: None):
                order.append("spare")

        def enter() -> None:
            memory.reserve(20)
            order.append("new")

        waiting = in_turn(borrow, enter)
        assert not order
        other.leave()
        joined(waiting)
        assert order == ["spare", "new"]


def test_an_estimate_grows_with_inputs_and_parameters() -> None:
    def outline(rows: int, columns: int) -> Outline:
        def spec(*shape: int) -> TensorSpec:
            return TensorSpec(dtype="float32", shape=shape, stride=contiguous_strides(shape))

        x, w, y = spec(rows, columns), spec(columns, columns), spec(rows, columns)
        op: dict[str, Any] = {"op": "aten.mm", "in": [x.to_dict(), w.to_dict()], "out": [y.to_dict()]}
        state = {"params": {"w": w}, "buffers": {}}
        return Outline(Workload(name="given"), "meta", [op], [x], state, (y,))

    small, tall, wide = (estimated(outline(*sizes)).total for sizes in ((128, 128), (1 << 20, 1024), (128, 16384)))
    assert small < 5 * GB < tall and tall > 2 * 8 * GB and wide > small + 4 * GB


def test_what_was_taken_corrects_the_estimate(tmp_path: Path) -> None:
    assert learnt_bytes(tmp_path, "task", 7 * GB) == 7 * GB
    learn(tmp_path, "task", {"reference": 7 * GB}, ran_out=False)
    assert learnt_bytes(tmp_path, "task", 7 * GB) == 7 * GB  # a reference takes what is left
    assert 10 * GB < learnt_bytes(tmp_path, "task", 50 * GB) < 13 * GB
    learn(tmp_path, "task", {"reference": 7 * GB}, ran_out=True)
    assert 10 * GB < learnt_bytes(tmp_path, "task", 7 * GB) < 13 * GB
    (tmp_path / "device-memory" / "other.json").write_text("{nonsense")
    assert learnt_bytes(tmp_path, "other", GB) == GB
    learn(Path("/proc/nowhere"), "task", {}, ran_out=False)


class Room:
    """A room on a device of 80 GB beside a task that takes 10, with work that runs out of memory."""

    def __init__(self, folder: Path, taken: int = GB, one_task: bool = False) -> None:
        self.memory = DeviceMemory(80 * GB)
        self.other = self.memory.reserve(10 * GB)
        self.closed = 0
        gpu: Any = SimpleNamespace(memory=self.memory, cache=SimpleNamespace(folder=folder), one_task=one_task)
        task = SimpleNamespace(key="key", workloads=[SimpleNamespace(name="given")])
        learn(folder, "key", {"reference": 2 * GB}, ran_out=True)

        def outline(_: str) -> Any:
            raise DeviceError("not traced")

        handle: Any = SimpleNamespace(task=task, outline=outline)
        self.room = TaskRoom(gpu, handle, self.close)
        self.room.enter()
        self.reference: Any = lambda: SimpleNamespace(taken=lambda: taken)

    def close(self) -> None:
        self.closed += 1
        threading.Timer(0.5, self.other.leave).start()  # the other task ends later

    def within(self, work: Any) -> Any:
        return self.room.within(work, self.reference)


def out_of_memory(own: int) -> Verdict:
    told = {"out_of_memory": {"own": own, "reserved": own, "others": 3 * GB}}
    return Verdict(status="launch_error", fault="candidate", stage="launch", message="no memory", evidence=told)


def test_the_only_task_of_a_command_may_keep_half_of_the_memory(tmp_path: Path) -> None:
    shares = []
    for one_task in (False, True):
        room = Room(tmp_path, one_task=one_task).room
        room._need = TaskNeed(candidate=GB, reference=GB, holding=0)
        shares.append(room.share())
        assert room.crowded
    assert shares[0] < 3 * GB and shares[1] > 30 * GB


def test_a_task_that_runs_out_beside_others_is_tried_again_with_more_then_alone(tmp_path: Path) -> None:
    made = Room(tmp_path)
    answers = [out_of_memory(20 * GB), Verdict(status="pass")]
    assert made.within(lambda: answers.pop(0)).passed and made.closed == 1
    assert made.room.crowded and made.room.accompanied  # twice as much fits beside the other task
    answers = [out_of_memory(20 * GB), Verdict(status="pass")]
    assert made.within(lambda: answers.pop(0)).passed and made.closed == 2 and not made.room.crowded


@pytest.mark.parametrize("lacked, accompanied", [({}, True), ({"lacked": 40 * GB}, True), ({"lacked": 70 * GB}, False)])
def test_a_reference_that_runs_out_beside_others_is_tried_again(
    tmp_path: Path, lacked: dict[str, int], accompanied: bool
) -> None:
    made = Room(tmp_path)
    calls: list[int] = []

    def work() -> Verdict:
        calls.append(1)
        if len(calls) == 1:
            raise Crowded(DeviceError("no memory", evidence={"out_of_memory": {"own": 1, "others": 2, **lacked}}))
        return Verdict(status="pass")

    assert made.within(work).passed and made.closed == 1
    assert made.room.accompanied == accompanied


def test_alone_only_a_candidate_of_many_times_the_references_memory_is_at_fault(tmp_path: Path) -> None:
    greedy = Room(tmp_path, taken=2 * GB).within(lambda: out_of_memory(9 * GB))
    assert greedy.fault == "candidate" and "candidate 9.7 GB, the reference 2.1 GB" in greedy.message
    with pytest.raises(DeviceError, match="no room for the task and a candidate"):
        Room(tmp_path, taken=30 * GB).within(lambda: out_of_memory(40 * GB))
