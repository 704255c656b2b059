"""The clock of tests/load.py."""

import multiprocessing
import os
import time

from tests.load import Watch


def test_waiting_counts_in_full() -> None:
    with Watch() as watch:
        time.sleep(0.3)
    assert watch.elapsed >= 0.3 and watch.seconds <= watch.elapsed


def burn(until: float) -> None:
    while time.monotonic() < until:
        pass


def test_a_busy_machine_is_seen() -> None:
    context = multiprocessing.get_context("spawn")
    until = time.monotonic() + 2.5
    burning = [context.Process(target=burn, args=(until,)) for _ in range(4 * (os.cpu_count() or 1))]
    for process in burning:
        process.start()
    with Watch() as watch:
        for process in burning:
            process.join()
    assert watch.load > 1.5
