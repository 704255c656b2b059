"""Real worker processes: one that dies, hangs or fails costs its own job, and nothing is left behind."""

from __future__ import annotations

import multiprocessing
from functools import partial
from pathlib import Path

import pytest

from hipwright.dataset.workers import Pool
from hipwright.errors import HipwrightError, InfrastructureError, SandboxMissing, TaskError
from tests.dataset import tiny


def test_each_job_is_answered_whatever_becomes_of_others(tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    pool: Pool[str, str] = Pool(2, partial(tiny.counter, notes), tiny.do)
    found = dict(pool.run(["a", "die", "task", "once", "bug", "b", "c"]))
    assert [found[job] for job in ("a", "b", "c", "once")] == ["A", "B", "C", "ONCE"]
    assert isinstance(found["die"], InfrastructureError) and "code 3" in found["die"].message
    assert isinstance(found["task"], TaskError) and found["task"].hint == "look"
    assert isinstance(found["bug"], HipwrightError) and "ZeroDivisionError: ours" in found["bug"].message
    noted = notes.read_text().split()
    assert noted.count("die") == 2 and noted.count("task") == 1  # only the machine's fault is tried again
    assert not multiprocessing.active_children()


def test_a_job_that_hangs_is_given_up(tmp_path: Path) -> None:
    pool: Pool[str, str] = Pool(1, partial(tiny.counter, tmp_path / "notes"), tiny.do, timeout_s=2.0)
    found = dict(pool.run(["a", "hang"]))
    assert found["a"] == "A"
    assert isinstance(found["hang"], InfrastructureError) and "no answer within 2 s" in found["hang"].message
    assert not multiprocessing.active_children()


def test_what_keeps_workers_from_opening_is_raised() -> None:
    pool: Pool[str, str] = Pool(2, partial(tiny.closed, "no sandbox"), tiny.do)
    with pytest.raises(InfrastructureError, match="no sandbox") as caught:
        list(pool.run(["a", "b"]))
    assert caught.value.hint == "a hint" and caught.value.exit_code == SandboxMissing.exit_code
    assert not multiprocessing.active_children()


def test_closing_early_ends_the_workers(tmp_path: Path) -> None:
    pool: Pool[str, str] = Pool(2, partial(tiny.counter, tmp_path / "notes"), tiny.do)
    results = pool.run(["a", "hang", "b"])
    assert next(results)[0] == "a"
    results.close()
    assert not multiprocessing.active_children()
