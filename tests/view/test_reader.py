"""The archive as pages read it: a continued log is that of a whole read, and nothing is written."""

from __future__ import annotations

from pathlib import Path

import pytest

from hipwright.archive import Archive, costs_of, show
from hipwright.errors import BadInput
from hipwright.view import reader as reader_module
from hipwright.view.reader import ArchiveReader
from tests.search.landscape import begin
from tests.view.view_sample import sample_archive


def test_a_run_that_goes_on_is_read_as_one_that_is_read_whole(tmp_path: Path) -> None:
    def look(*_: object) -> None:
        run = reader.runs()[0]
        with Archive(tmp_path, create=False) as fresh:
            whole = show(fresh, run.id)
        kept, line = reader.kept(run), reader.line(run)
        assert (line.summary, tuple(kept.trials), costs_of(kept.log)) == (whole.summary, whole.trials, whole.costs)
        if whole.best is not None:
            assert reader.trial(run, whole.summary.best_number)[1].evaluation == whole.best
        seen.append(reader.kept(run).following)

    seen: list[int] = []
    with Archive(tmp_path) as archive:
        reader = ArchiveReader(tmp_path)
        begin(archive, budget=12, listener=lambda kind, data: look() if archive.runs() else None)
        look()
        assert seen == sorted(seen) and len(set(seen)) > 4
        assert set(reader.kept(reader.runs()[0]).clocks) == set(reader.kept(reader.runs()[0]).log.evaluated)
        reader.close()


def test_the_line_of_a_run_that_has_ended_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader_module, "KEPT_LOGS", 1)
    runs = [sample_archive(tmp_path, run=name) for name in ("one", "two")]
    reader = ArchiveReader(tmp_path)
    before = [reader.line(run) for run in runs]
    monkeypatch.setattr(reader, "kept", lambda run: pytest.fail("the log is read again"))
    assert [reader.line(run) for run in runs] == before
    assert before[0].spark is not None and before[0].spark.startswith("M")


def test_nothing_can_be_written_through_it(tmp_path: Path) -> None:
    sample_archive(tmp_path, proposals=1)
    reader = ArchiveReader(tmp_path)
    with pytest.raises(BadInput, match="read-only"):
        reader.archive.append("r1", "resumed")
    with pytest.raises(Exception, match="readonly"):
        reader.archive.database.connection.execute("INSERT INTO blobs VALUES ('a', 'b', 'c')")
    reader.close()


def test_the_state_of_a_run_changes_with_each_event_and_with_its_lock(tmp_path: Path) -> None:
    sample_archive(tmp_path, proposals=1, finished=False)
    reader = ArchiveReader(tmp_path)
    states, versions = [reader.state("r1")], [reader.archive.changes()]
    with Archive(tmp_path) as archive:
        archive.append("r1", "resumed")
        states.append(reader.state("r1"))
        versions.append(reader.archive.changes())
        with archive.lock("r1"):
            states.append(reader.state("r1"))
        states.append(reader.state("r1"))
    assert states == [(3, False), (4, False), (4, True), (4, False)]
    assert len(set(versions)) == 2
    reader.close()


def test_no_archive_is_bad_input(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no archive"):
        ArchiveReader(tmp_path / "nowhere")
    assert not (tmp_path / "nowhere").exists()
