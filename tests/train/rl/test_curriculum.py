"""The curriculum's weights and draws."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from hipwright.train.rl.curriculum import Curriculum
from hipwright.train.rl.settings import CurriculumSettings


def made() -> Curriculum:
    found = Curriculum(4, CurriculumSettings())
    for _ in range(20):
        found.update(0, 8, 8)
        found.update(1, 4, 8)
        found.update(2, 0, 8)
    return found


def test_half_solved_problems_weigh_most() -> None:
    always, half, never, unseen = made().weights()
    assert half > 3 * always and half > 3 * never and unseen == pytest.approx(half, rel=0.01)
    assert min(always, never) > 0.1 / 4 and sum(made().weights()) == pytest.approx(1)


def test_a_problem_that_is_no_longer_solved_comes_back() -> None:
    found = made()
    before = found.weights()[0]
    found.update(0, 0, 8)
    assert found.weights()[0] > 2 * before


def test_draws_follow_the_weights_without_repeats() -> None:
    found = made()
    rng = random.Random(5)
    counts = Counter(found.draw(1, rng)[0] for _ in range(4000))
    for index, weight in enumerate(found.weights()):
        assert counts[index] / 4000 == pytest.approx(weight, abs=0.04)
    assert all(len(set(found.draw(4, rng))) == 4 for _ in range(20))
    assert Counter(found.draw(8, rng)) == dict.fromkeys(range(4), 2)


def test_a_visit_without_judged_samples_changes_nothing() -> None:
    found = made()
    state = found.state()
    found.update(1, 0, 0)
    assert found.state() == state


def test_state() -> None:
    found, fresh = made(), Curriculum(4, CurriculumSettings())
    fresh.load(found.state())
    assert fresh.weights() == found.weights()
    fresh.update(0, 1, 1)
    assert fresh.weights() != found.weights()
