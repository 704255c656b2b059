"""Which expectations a device host frees where there is no room for all."""

from __future__ import annotations

from typing import Any

import pytest

from hipwright.task.device.inputs import STALE, Inputs


class Host(Inputs):
    """A device host with room for so many expectations, of one unit each."""

    def __init__(self, room: int) -> None:
        self._draws, self._cases, self._used = {}, {}, {}  # type: ignore[assignment]
        self._made_cases, self._current, self._total = 0, 0, room
        self.made: list[int] = []

    def _room(self) -> int:
        return self._total - len(self._cases)

    def _judge(self, *cases: int) -> int:
        """Uses cases in order, and makes what is not there. Returns how many were made."""
        before = len(self.made)
        for case in cases:
            if case in self._cases:
                self._used[case] = self._made_cases
                continue
            self._current = case
            self._make_room(1)
            made: Any = object()
            self._keep(case, made)
            self.made.append(case)
        return len(self.made) - before


@pytest.mark.parametrize("room, again", [(4, 0), (3, 0), (2, 2), (1, 3)])
def test_candidates_that_are_judged_by_the_same_cases_find_those_that_fit(room: int, again: int) -> None:
    host = Host(room)
    assert host._judge(1, 2, 3) == 3
    assert [host._judge(1, 2, 3) for _ in range(4)] == [again] * 4


def test_cases_of_no_use_any_more_are_freed_first() -> None:
    host = Host(2)
    host._judge(1, 2)  # of a seed that is not used again
    while host._judge(10, 11) and len(host.made) < 4 * STALE:
        pass
    assert host._judge(10, 11) == 0 and len(host.made) < 2 * STALE + 4
