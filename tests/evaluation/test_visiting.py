"""What a process that visits another's GPU holds there ends with it, and what it asks costs no message in vain."""

from __future__ import annotations

import threading
import time

import pytest
from visits import Visit

from hipwright.errors import WorkerError
from hipwright.evaluation.gpu.waits import WAITS

TOTAL = int(100 / 0.95) + 1


def begun(work: object) -> threading.Thread:
    thread = threading.Thread(target=work, daemon=True)  # type: ignore[arg-type]
    thread.start()
    return thread


def test_what_an_ended_process_held_and_waited_for_is_free_again() -> None:
    here = Visit(TOTAL)
    held = threading.Event()
    refused: list[str] = []

    def hold() -> None:
        assert here.memory is not None
        with pytest.raises(WorkerError), here.lock.shared():
            room = here.memory.reserve(60)
            with room.spare(20, lambda: None) as more:
                assert more == 20
                held.set()
                here.memory.reserve(100)  # never comes

    def wait_for_a_timing() -> None:
        try:
            with here.lock.exclusive():
                refused.append("came in")
        except WorkerError as error:
            refused.append(str(error))

    with here:
        threads = [begun(hold)]
        assert held.wait(20)
        threads.append(begun(wait_for_a_timing))
        deadline = time.monotonic() + 20
        while not here.line.timing_waits and time.monotonic() < deadline:
            time.sleep(0.002)
        assert here.line.timing_waits
    for thread in threads:
        thread.join(20)
    assert refused == ["the process that keeps the GPU has ended"]
    assert here.gpu.memory is not None
    with here.gpu.lock.exclusive():  # a timing comes in, and so does a task as large as the device
        room = here.gpu.memory.reserve(100)
        assert room.alone and not room.accompanied
        room.leave()


def test_two_processes_share_one_gpu() -> None:
    with Visit(TOTAL) as one, Visit(gpu=one.gpu) as other:
        order: list[str] = []

        def timing() -> None:
            with other.lock.exclusive():
                order.append("timing")

        with one.lock.shared(gives_way=True):
            thread = begun(timing)
            while not one.line.timing_waits:
                time.sleep(0.002)
            assert not order
            one.lock.give_way()
            thread.join(20)
            order.append("the rest")
        assert order == ["timing", "the rest"] and not one.line.timing_waits


def test_giving_way_asks_nobody_where_no_timing_waits() -> None:
    with Visit() as one, one.lock.shared(gives_way=True):
        before = one._up.qsize()
        one.visitor.take = lambda message: pytest.fail("a message")  # type: ignore[method-assign]
        one.lock.give_way()
        time.sleep(0.05)
        assert one._up.qsize() == before
        del one.visitor.take


def test_the_time_until_the_keeper_lets_it_in_is_waited() -> None:
    with Visit() as one:
        inside = threading.Event()

        def timing() -> None:
            with one.gpu.lock.exclusive():
                inside.set()
                time.sleep(0.2)

        thread = begun(timing)
        assert inside.wait(20)
        WAITS.restart()
        with one.lock.shared():
            assert 0.1 <= WAITS.seconds() < 20
        thread.join()


def test_the_keepers_thread_ends_with_the_process_s() -> None:
    with Visit() as one:

        def work() -> None:
            with one.lock.shared():
                pass

        thread = begun(work)
        thread.join()
        deadline = time.monotonic() + 20
        while one.visitor._threads and time.monotonic() < deadline:
            time.sleep(0.005)
        assert not one.visitor._threads
