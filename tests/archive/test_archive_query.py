"""The queries behind `runs`, `show` and `compare`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from archive_contract import a_run, evaluated, evaluation, program, proposed

from hipwright.archive import Archive, Confirmed, Finished, LogEntry, compare, list_runs, read_log, show
from hipwright.archive.lineage import ancestors, tree
from hipwright.errors import BadInput, InfrastructureError
from hipwright.records import Decision


def family(archive: Archive, name: str, *, finished: bool = True, **fields: Any) -> None:
    """0 -> 1 -> 3 (best) and 0 -> 2 (wrong); 4 is a duplicate of 1; 5 could not be written."""
    archive.begin_run(a_run(name, **fields), {"task_name": "demo"})
    entries = [LogEntry("proposed", n, proposed(n, parent=p).to_dict()) for n, p in ((0, None), (1, 0), (2, 0), (3, 1))]
    double = {**proposed(4, parent=0).to_dict(), "program": program(1).key, "duplicate_of": 1}
    broken = {**proposed(5, parent=0).to_dict(), "program": "", "error": "ValueError: no"}
    entries += [LogEntry("proposed", 4, double), LogEntry("proposed", 5, broken)]
    archive.append_all(name, entries, [program(n) for n in range(4)])
    wrong = {"status": "wrong_value", "fault": "candidate", "message": "bad", "score": None, "score_kind": "none"}
    for n in (0, 1, 3):
        archive.append_all(name, [evaluated(n, seconds=0.5)])
    archive.append_all(name, [evaluated(2, **wrong)])
    for n, best in ((0, True), (1, True), (2, False), (3, True), (4, False), (5, False)):
        decision = Decision(number=n, program=program(n).key, kept=best, best=best, reason=f"why {n}")
        archive.append(name, "decided", n, decision.to_dict())
    if finished:
        again = Confirmed(program=program(3).key, passed=True, evaluation=evaluation(3))
        archive.append(name, "confirmed", 3, again.to_dict())
        end = Finished(reason="budget", best=program(3).key, number=3, score=7.0, evaluations=4, rounds=1)
        archive.append(name, "finished", -1, end.to_dict())


def test_list_is_newest_first_with_the_state_of_each(tmp_path: Path) -> None:
    with Archive(tmp_path) as archive:
        family(archive, "a")
        family(archive, "b", finished=False)
        archive.begin_run(a_run("c"))
        with archive.lock("c"):
            c, b, a = list_runs(archive)
    assert [(s.id, s.status) for s in (a, b, c)] == [("a", "finished"), ("b", "interrupted"), ("c", "running")]
    assert (a.task, a.score, a.best, a.reason, a.confirmed) == ("demo", 7.0, program(3).key, "budget", True)
    assert (b.score, b.best_number, b.reason, b.confirmed) == (7.0, 3, "", None)
    assert (c.score, c.best, c.evaluations, c.task) == (None, "", 0, "t")
    assert a.seconds == 1.5


def test_show_has_the_winner_its_line_and_the_costs(tmp_path: Path) -> None:
    with Archive(tmp_path) as archive:
        family(archive, "a")
        detail = show(archive, "latest")
    assert detail.program == program(3) and detail.best == evaluation(3, seconds=0.5)
    assert [t.number for t in detail.lineage] == [0, 1, 3]
    assert [t.status for t in detail.trials] == ["pass", "pass", "wrong_value", "pass", "duplicate", "not proposed"]
    assert [t.reason for t in detail.trials] == [f"why {n}" for n in range(6)]
    assert detail.trials[5].message == "ValueError: no" and detail.trials[2].score is None
    costs = detail.costs
    assert (costs["evaluations"], costs["duplicates"], costs["failed_proposals"], costs["retries"]) == (4, 1, 1, 0)


def test_tree_shows_each_program_once_under_its_parent(tmp_path: Path) -> None:
    with Archive(tmp_path) as archive:
        family(archive, "a")
        log = read_log(archive.events("a"))
    shape = [(len(line) - len(line.lstrip()), line.split()[0]) for line in tree(log)]
    assert shape == [(0, "#0"), (2, "#1"), (4, "#3"), (2, "#2")]
    assert "wrong_value" in tree(log)[3] and tree(log)[2].endswith("pass 7 best")
    assert ancestors(log, "unknown") == []


def test_compare_says_which_is_faster_and_how_the_winners_differ(tmp_path: Path) -> None:
    with Archive(tmp_path) as archive:
        family(archive, "a")
        archive.begin_run(a_run("b"))
        archive.append_all("b", [LogEntry("proposed", 0, proposed(0).to_dict())], [program(0)])
        archive.append_all("b", [evaluated(0)])
        found = compare(archive, "b", "a")
        assert found.same_task and found.ratio == pytest.approx(0.7) and found.common_programs == 1
        assert "-# program 0" in found.diff and "+# program 3" in found.diff
        assert compare(archive, "a", "a").diff == ()
        family(archive, "other", task="t2")
        assert compare(archive, "a", "other").ratio is None  # two tasks' times are not comparable
        with pytest.raises(BadInput):
            compare(archive, "a", "nothing")


def test_an_event_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with Archive(tmp_path) as archive:
        archive.begin_run(a_run())
        archive.append("r1", "decided", 0, {"number": "three"})
        with pytest.raises(InfrastructureError, match="event 1 of run r1"):
            read_log(archive.events("r1"))


def test_kinds_of_later_versions_are_left_out(tmp_path: Path) -> None:
    with Archive(tmp_path) as archive:
        archive.begin_run(a_run())
        archive.append("r1", "something_new", 0, {"x": 1})
        assert show(archive, "r1").trials == ()


def test_a_repair_descends_from_the_program_that_failed(tmp_path: Path) -> None:
    first, repair = proposed(0), proposed(1).to_dict()
    repair["expansion"] |= {"operator": "repair", "parents": [], "action": {"failed": program(0).key, "of": 0}}
    with Archive(tmp_path) as archive:
        archive.begin_run(a_run("r"))
        entries = [LogEntry("proposed", 0, first.to_dict()), LogEntry("proposed", 1, repair)]
        archive.append_all("r", entries, [program(0), program(1)])
        log = read_log(archive.events("r"))
        shown = show(archive, "r").trials
    assert [p.number for p in ancestors(log, program(1).key)] == [0, 1]
    assert shown[1].parents == (program(0).key,)
