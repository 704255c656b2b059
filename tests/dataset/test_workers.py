"""The worker pool with real processes: one that dies, hangs or fails affects its own job only."""

from __future__ import annotations

import multiprocessing
from functools import partial
from pathlib import Path

import pytest

from hipwright.dataset.workers import Pool
from hipwright.errors import HipwrightError, InfrastructureError, SandboxMissing, TaskError
from tests.dataset import tiny


def test_each_job_gets_a_result_or_an_error(tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    pool: Pool[str, str] = Pool(2, partial(tiny.counter, notes), tiny.do)
    found = dict(pool.run(["a", "die", "task", "once", "bug", "b", "c"]))
    assert [found[job] for job in ("a", "b", "c", "once")] == ["A", "B", "C", "ONCE"]
    assert isinstance(found["die"], InfrastructureError) and "code 3" in found["die"].message
    assert isinstance(found["task"], TaskError) and found["task"].hint == "look"
    assert isinstance(found["bug"], HipwrightError) and "ZeroDivisionError: a bug" in found["bug"].message
    noted = notes.read_text().split()
    assert noted.count("die") == 2 and noted.count("task") == 1  # only infrastructure errors are retried
    assert not multiprocessing.active_children()


def test_a_hanging_job_ends_in_an_error(tmp_path: Path) -> None:
    pool: Pool[str, str] = Pool(1, partial(tiny.counter, tmp_path / "notes"), tiny.do, timeout_s=2.0)
    found = dict(pool.run(["a", "hang"]))
    assert found["a"] == "A"
    assert isinstance(found["hang"], InfrastructureError) and "no answer within 2 s" in found["hang"].message
    assert not multiprocessing.active_children()


def test_an_error_while_opening_is_raised() -> None:
    pool: Pool[str, str] = Pool(2, partial(tiny.closed, "no sandbox"), tiny.do)
    with pytest.raises(InfrastructureError, match="no sandbox") as caught:
        list(pool.run(["a", "b"]))
    assert caught.value.hint == "a hint" and caught.value.exit_code == SandboxMissing.exit_code
    assert not multiprocessing.active_children()


def test_closing_the_generator_ends_the_workers(tmp_path: Path) -> None:
    pool: Pool[str, str] = Pool(2, partial(tiny.counter, tmp_path / "notes"), tiny.do)
    results = pool.run(["a", "hang", "b"])
    assert next(results)[0] == "a"
    results.close()
    assert not multiprocessing.active_children()
