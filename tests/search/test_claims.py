"""Searches of one archive at the same time: a candidate of several of them is evaluated by one, and stored once."""

from __future__ import annotations

import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from landscape import Judge, begin, go_on

from hipwright.archive import Archive, export, read_log
from hipwright.search import claims
from hipwright.search.claims import Claims


@pytest.fixture(autouse=True)
def prompt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claims, "POLL_S", 0.01)


def at_once(home: Path, judge: Judge, count: int, **options: Any) -> list[str]:
    """Runs so many equal searches of one archive at the same time; returns the ids of their runs."""
    runs: list[str] = []
    together = threading.Barrier(count)

    def one() -> None:
        with Archive(home) as archive:
            together.wait()
            runs.append(begin(archive, judge, budget=12, **options).run)

    threads = [threading.Thread(target=one) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return runs


@pytest.mark.parametrize("workers", [1, 3])
def test_equal_searches_evaluate_each_candidate_once(tmp_path: Path, workers: int) -> None:
    alone = Judge(delay=0.03, mark="alone")
    at_once(tmp_path / "alone", alone, 3, workers=workers)
    assert max(Counter(alone.calls).values()) > 1, "without claims they do meet"
    judge = Judge(delay=0.03)
    runs = at_once(tmp_path / "shared", judge, 3, workers=workers, shared=True)
    assert len(runs) == 3 and Counter(judge.calls).most_common(1)[0][1] == 1 and len(judge.calls) == 12
    with Archive(tmp_path / "shared") as archive:
        logs = [read_log(archive.events(run)) for run in runs]
        made = Counter(e.evaluation.program for log in logs for e in log.evaluated.values() if not e.cached)
        assert set(made.values()) == {1} and all(len(log.evaluated) == 12 for log in logs)
        assert len({export(archive, run, canonical=True) for run in runs}) == 1
        assert archive.claim(archive_key(archive, runs[0]), "anyone", 1.0), "all claims were given up"


def archive_key(archive: Archive, run: str) -> str:
    rows = archive.database.stored_events(run, 0, 9999)
    return next(row.cache_key for row in rows if row.cache_key)


def test_a_killed_searchs_candidate_is_taken_over(tmp_path: Path) -> None:
    with Archive(tmp_path) as archive, Archive(tmp_path) as other:
        assert archive.claim("key", "killed", 0.3) and not other.claim("key", "other", 60.0)
        waiting = Claims(other, "other", True, lambda: None)
        begun = time.monotonic()
        with waiting:
            assert waiting.known("key") is None and time.monotonic() - begun > 0.2
            assert not archive.claim("key", "killed", 60.0)
        assert archive.claim("key", "killed", 60.0)


def test_a_claim_lasts_while_its_search_lives(tmp_path: Path) -> None:
    with Archive(tmp_path) as archive, Archive(tmp_path) as other:
        with Claims(archive, "one", True, lambda: None, lease_s=0.3) as held:
            assert held.known("key") is None
            for _ in range(10):
                time.sleep(0.1)
                assert not other.claim("key", "other", 60.0)
        assert other.claim("key", "other", 60.0)


def test_one_that_waits_can_be_stopped(tmp_path: Path) -> None:
    with Archive(tmp_path) as archive, Archive(tmp_path) as other:
        assert other.claim("key", "other", 60.0)
        with pytest.raises(InterruptedError), Claims(archive, "r", True, stop_after(0.2)) as waiting:
            waiting.known("key")
        judge = Judge()
        result = begin(archive, judge, budget=2, shared=True, stop_requested=lambda: len(judge.calls) > 0)
        assert result.interrupted and go_on(archive, judge, shared=True).evaluations == 2


def stop_after(seconds: float) -> Any:
    until = time.monotonic() + seconds

    def check() -> None:
        if time.monotonic() > until:
            raise InterruptedError

    return check
