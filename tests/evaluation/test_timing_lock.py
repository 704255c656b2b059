"""The lock of a GPU: timings are exclusive, verifications shared."""

import threading
import time

import pytest
from visits import Visit

from hipwright.evaluation.gpu.timing_lock import TimingLock
from hipwright.evaluation.gpu.waits import WAITS


@pytest.fixture(params=["here", "kept by another process"])
def locks(request):
    """The lock that a test uses, and the one that keeps it."""
    if request.param == "here":
        own = TimingLock()
        yield own, own
    else:
        with Visit() as visit:
            yield visit.lock, visit.gpu.lock


def until(said):
    deadline = time.monotonic() + 60
    while not said() and time.monotonic() < deadline:
        time.sleep(0.002)
    assert said()


def test_a_timing_is_not_starved_by_newcomers(locks):
    (lock, keeper), order, inside = locks, [], threading.Event()

    def visitor(number):
        with lock.shared():
            order.append(number)
            inside.wait(10)

    def timing():
        with lock.exclusive():
            order.append("timing")

    first = threading.Thread(target=visitor, args=(0,))
    first.start()
    until(lambda: order == [0])
    timer = threading.Thread(target=timing)
    timer.start()
    until(lambda: keeper._waiting == 1)
    inside.set()
    late = [threading.Thread(target=visitor, args=(n,)) for n in range(1, 5)]
    for thread in late:
        thread.start()
    for thread in [first, timer, *late]:
        thread.join()
    assert order[:2] == [0, "timing"]


def test_a_timing_goes_between_two_calls_of_work_that_gives_way(locks):
    (lock, keeper), order, go = locks, [], threading.Event()

    def verification(gives_way):
        with lock.shared(gives_way=gives_way):
            order.append("begun")
            go.wait(10)
            lock.give_way()
            order.append("ended")

    for gives_way, wanted in ((True, ["begun", "timing", "ended"]), (False, ["begun", "ended", "timing"])):
        order.clear()
        go.clear()
        threads = [threading.Thread(target=verification, args=(gives_way,))]
        threads[0].start()
        until(lambda: order == ["begun"])

        def timing():
            with lock.exclusive():
                order.append("timing")

        threads.append(threading.Thread(target=timing))
        threads[1].start()
        until(lambda: keeper._waiting == 1)
        go.set()
        for thread in threads:
            thread.join(10)
        assert order == wanted


def test_work_that_gave_way_is_inside_again(locks):
    """No second timing starts while the work goes on, also where several wait."""
    (lock, keeper), inside, go = locks, [0], threading.Event()
    wrong = []

    def verification():
        with lock.shared(gives_way=True):
            go.wait(10)
            for _ in range(200):
                lock.give_way()
                inside[0] += 1
                time.sleep(0.0002)
                inside[0] -= 1

    def timing():
        for _ in range(20):
            with lock.exclusive():
                wrong.extend([1] * (inside[0] != 0))

    threads = [threading.Thread(target=verification), *(threading.Thread(target=timing) for _ in range(3))]
    for thread in threads:
        thread.start()
    go.set()
    for thread in threads:
        thread.join(30)
    assert not wrong
    with lock.exclusive():
        assert keeper._inside == 0


def test_a_wait_within_a_wait_counts_once():
    WAITS.restart()
    with WAITS.waiting(), WAITS.waiting():
        time.sleep(0.05)
    with WAITS.waiting():
        time.sleep(0.05)
    assert 0.1 <= WAITS.seconds() < 5
    before = WAITS.seconds()
    time.sleep(0.05)
    assert WAITS.seconds() == before
