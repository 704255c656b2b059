"""Sent inputs are identified by identity, bounded, and dropped with the process or the task."""

from __future__ import annotations

import numpy as np

from hipwright.tensors import HostTensor
from hipwright.verify import sent_inputs
from hipwright.verify.sent_inputs import SentInputs


def tree(count: int = 16) -> list[HostTensor]:
    return [HostTensor.of(np.zeros(count, np.float32))]


def test_inputs_are_sent_once() -> None:
    cases, first, second = SentInputs(), tree(), tree()
    names, drop, bundle = cases.request([first, second, first])
    assert names[0] == names[2] != names[1] and not drop and bundle == [first, second, None]
    again, drop, bundle = cases.request([second])
    assert again == [names[1]] and not drop and bundle == [None]


def test_a_new_process_and_a_new_task_start_from_nothing() -> None:
    cases, first = SentInputs(), tree()
    (name,), _, _ = cases.request([first])
    cases.clear()
    (other,), drop, bundle = cases.request([first])
    assert bundle == [first] and not drop and other != name
    cases.retire()
    _, drop, bundle = cases.request([first])
    assert drop == [other] and bundle == [first]


def test_the_oldest_make_room_but_never_those_under_way(monkeypatch) -> None:
    monkeypatch.setattr(sent_inputs, "KEPT_BYTES", 200)
    cases, trees = SentInputs(), [tree() for _ in range(4)]  # 64 bytes each
    (first, *_), drop, _ = cases.request(trees)
    assert not drop  # all of them are needed now
    _, drop, bundle = cases.request([tree()])
    assert drop[0] == first and len(drop) == 2 and bundle != [None]
    _, _, bundle = cases.request([trees[0]])
    assert bundle == [trees[0]]


def test_large_inputs_are_not_kept(monkeypatch) -> None:
    monkeypatch.setattr(sent_inputs, "LARGE_BYTES", 32)
    cases, first = SentInputs(), tree()
    assert cases.request([first]) == ([""], [], [first]) == cases.request([first])
