"""The concurrency limit and the waits between attempts."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from hipwright.llm.throttle import Throttle, asked_wait, backoff


@given(st.integers(1, 40), st.lists(st.sampled_from(["begin", "good", "bad", "lost"]), max_size=300))
def test_the_limit_stays_between_one_and_the_most(most: int, steps: list[str]) -> None:
    throttle = Throttle(most)
    epochs: list[int] = []
    for step in steps:
        if step == "begin" and throttle.free:
            epochs.append(throttle.begin())
        elif step != "begin" and epochs:
            epoch = epochs.pop(0)
            throttle.end()
            throttle.succeeded() if step == "good" else throttle.overloaded(epoch) if step == "bad" else None
        assert 1 <= throttle.limit <= most
        assert 0 <= throttle.active == len(epochs) <= most


def test_calls_that_fail_together_halve_it_once() -> None:
    throttle = Throttle(16)
    epochs = [throttle.begin() for _ in range(16)]
    for epoch in epochs:
        throttle.end()
        throttle.overloaded(epoch)
    assert throttle.limit == 8
    throttle.overloaded(throttle.begin())
    assert throttle.limit == 4


def test_it_grows_by_one_after_a_window_of_successes() -> None:
    throttle = Throttle(16, limit=4)
    grown = []
    for _ in range(4 + 5 + 6):
        throttle.succeeded()
        grown.append(throttle.limit)
    assert grown == [4] * 3 + [5] * 5 + [6] * 6 + [7]


def test_trouble_begins_the_window_anew() -> None:
    throttle = Throttle(16, limit=8)
    for _ in range(7):
        throttle.succeeded()
    throttle.overloaded(throttle.epoch)
    assert throttle.limit == 4
    throttle.succeeded()
    assert throttle.limit == 4


@given(st.integers(0, 10**6), st.integers(0, 2**32))
def test_backoff_is_jittered_up_to_a_doubling_bound(failures: int, seed: int) -> None:
    wait = backoff(failures, random.Random(seed), base=0.5, most=60.0)
    assert 0.0 <= wait <= min(60.0, 0.5 * 2.0 ** min(failures, 30))


@given(st.floats(0, 1e4), st.integers(0, 50), st.integers(0, 2**32))
def test_a_named_time_is_waited_for_in_full(seconds: float, failures: int, seed: int) -> None:
    assert seconds <= asked_wait(seconds, failures, random.Random(seed)) <= seconds + 5.0
