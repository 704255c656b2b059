"""Cold measurements: what is dropped from memory is counted, and a system that does not drop it is named."""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path

import pytest

from benchmarks.archive import cold
from benchmarks.archive.scale import Figure
from hipwright.errors import BadInput

PAGES = 500


@pytest.fixture(autouse=True)
def only_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """A test does not drop what other processes have read."""
    monkeypatch.setattr(cold, "may_drop_all", lambda: False)


def test_pages_in_memory_are_counted(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(bytes(PAGES * os.sysconf("SC_PAGE_SIZE") + 1))
    (tmp_path / "empty").touch()
    assert cold.resident([tmp_path / "file", tmp_path / "empty"]) == (PAGES + 1, PAGES + 1)


def test_a_system_that_keeps_files_in_memory_is_named() -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        path = Path(folder) / "file"
        path.write_bytes(bytes(PAGES * os.sysconf("SC_PAGE_SIZE")))
        with pytest.raises(BadInput) as raised:
            cold.drop(Path(folder))
    assert re.match(rf"{PAGES} of {PAGES} pages of {folder} stay in memory", raised.value.message)
    assert "tmpfs" in raised.value.hint


def test_each_repeat_but_the_first_is_prepared() -> None:
    done: list[str] = []
    figure = Figure.of(lambda: done.append("work"), 2, lambda: done.append("drop"))
    assert done == ["work", "drop", "work", "drop", "work"]
    assert figure.median <= figure.worst and "MB from the disk" in str(figure)
