"""The lock of a GPU: timings are exclusive, verifications shared."""

import threading
import time

from hipwright.evaluation.gpu.timing_lock import TimingLock


def until(said):
    deadline = time.monotonic() + 60
    while not said() and time.monotonic() < deadline:
        time.sleep(0.002)
    assert said()


def test_a_timing_is_not_starved_by_newcomers():
    lock, order, inside = TimingLock(), [], threading.Event()

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
    until(lambda: lock._waiting == 1)
    inside.set()
    late = [threading.Thread(target=visitor, args=(n,)) for n in range(1, 5)]
    for thread in late:
        thread.start()
    for thread in [first, timer, *late]:
        thread.join()
    assert order[:2] == [0, "timing"]
