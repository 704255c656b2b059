"""A call that is slow because others have the processors is waited for; one that hangs is not."""

from __future__ import annotations

import time

import pytest

from hipwright.verify.candidate import CandidateSession


class Slow:
    """A session that has had a processor for some of its time."""

    def __init__(self, used: float | None) -> None:
        self.used = used

    def cpu_seconds(self) -> float | None:
        return self.used


@pytest.mark.parametrize(
    ("elapsed", "used", "waits"),
    [
        (41.0, 12.0, True),  # three others work
        (41.0, 40.5, False),  # it had its time
        (41.0, 0.5, False),  # it waits for something
        (41.0, None, False),
        (310.0, 38.0, True),
        (330.0, 39.0, False),
    ],
)
def test_its_own_time_decides(elapsed: float, used: float | None, waits: bool) -> None:
    session = CandidateSession.__new__(CandidateSession)
    session._wall, session._session = 40.0, Slow(used)  # type: ignore[assignment]
    assert session._lacks_processor(time.monotonic() - elapsed, 0.0) == waits
