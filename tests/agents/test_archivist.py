"""The archive manager: labels, and the content of training rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from author_tools import program
from landscape import SPACE, TASK, Judge, begin, write

from hipwright.agents.archivist import label, pairs, records, rl_records, sft_records
from hipwright.archive import Archive, Confirmed, Evaluated, LogEntry, Proposed, read_log
from hipwright.errors import BadInput
from hipwright.records import Decision, Evaluation, Expansion
from hipwright.search import EngineSource, Trial, new_run

HERE = "/home/somebody/secret/place.py"


def evaluation(key: str, status: str, score: float | None = None, **more: Any) -> Evaluation:
    kind = "estimate" if score is not None else "none"
    return Evaluation(task=TASK.key, program=key, status=status, score=score, score_kind=kind, **more)  # type: ignore[arg-type]


def history(archive: Archive) -> str:
    """A run built by hand: first program, steps of 20 % and 3 %, failure, repair, hack, fault, refusal."""
    run = new_run(TASK, ("gfx942", "cpu"), budget=8, seed=1)
    archive.begin_run(run, {"task_name": TASK.name, "fingerprint": "f"}, [TASK])
    programs = [program(f"n{n}") for n in range(7)]
    keys = [p.key for p in programs]
    message = f"element 3: 1.5, expected 2 (in {HERE})"
    told: list[tuple[str, tuple[str, ...], dict[str, Any], Evaluation]] = [
        ("default", (), {}, evaluation(keys[0], "pass", 10.0, coverage=1.0)),
        ("improve", (keys[0],), {}, evaluation(keys[1], "pass", 8.0, coverage=1.0)),
        ("improve", (keys[1],), {}, evaluation(keys[2], "pass", 7.76)),
        ("improve", (keys[1],), {}, evaluation(keys[3], "wrong_value", fault="candidate", message=message)),
        ("repair", (), {"failed": keys[3], "of": 3, "tries": 1}, evaluation(keys[4], "pass", 9.0)),
        ("improve", (keys[0],), {}, evaluation(keys[5], "hack", fault="candidate", message="it patches the clock")),
        ("improve", (keys[0],), {}, evaluation(keys[6], "unscorable", fault="device", message="the GPU fell off")),
    ]
    entries = []
    for n, (operator, parents, action, e) in enumerate(told):
        expansion = Expansion(number=n, operator=operator, parents=parents, action=action)
        notes = {"author": "llm", "model": "openai:m"} if n else {"author": "engine"}
        proposed = Proposed(expansion=expansion, round=n // 4, program=e.program, notes=notes)
        decision = Decision(number=n, program=e.program, kept=e.passed, best=n in (0, 1), reason="r")
        entries += [
            LogEntry("proposed", n, proposed.to_dict()),
            LogEntry("evaluated", n, Evaluated(evaluation=e).to_dict()),
        ]
        entries += [LogEntry("decided", n, decision.to_dict())]
    declined = Proposed(expansion=Expansion(number=7, operator="improve"), round=1, error="two programs")
    archive.append_all(run.id, [*entries, LogEntry("proposed", 7, declined.to_dict())], programs)
    return run.id


def test_labels_say_what_became_of_each(tmp_path: Path) -> None:
    with Archive(tmp_path) as archive:
        rows = list(records(archive, history(archive), "labels"))
    assert [row["outcome"] for row in rows] == [
        "verified",
        "verified",
        "verified",
        "wrong",
        "verified",
        "hack",
        "void",
        "no program",
    ]
    assert [row["compiled"] for row in rows] == [True] * 6 + [False] * 2
    assert rows[1]["best"] and rows[1]["score"] == 8.0 and rows[1]["author"] == "llm" and rows[0]["author"] == "engine"
    duplicate = Proposed(expansion=Expansion(number=3, operator="mutate"), round=0, program="p", duplicate_of=1)
    assert label(Trial(duplicate)).outcome == "duplicate"
    broken = Proposed(expansion=Expansion(number=3, operator="mutate"), round=0, program="p")
    assert label(Trial(broken, evaluation("p", "compile_error", fault="candidate"))).compiled is False


def test_supervised_rows_come_from_verified_programs_only(tmp_path: Path) -> None:
    with Archive(tmp_path) as archive:
        rows = sft_records(archive, history(archive))
    assert [(row["kind"], row["provenance"]["number"]) for row in rows] == [
        ("program", 0),
        ("program", 1),
        ("step", 1),
        ("program", 2),
        ("program", 4),
        ("repair", 4),
    ]
    step, repair = rows[2], rows[5]
    assert step["gain"] == pytest.approx(0.2) and step["prompt"]["program"] == program("n0").to_dict()
    assert step["completion"] == program("n1").to_dict() and step["prompt"]["task"] == TASK.source
    assert repair["prompt"]["program"] == program("n3").to_dict()
    assert "expected 2" in repair["prompt"]["evidence"] and repair["completion"] == program("n4").to_dict()


def test_reward_rows_hold_right_and_wrong_and_never_the_machines_faults(tmp_path: Path) -> None:
    with Archive(tmp_path) as archive:
        rows = {row["provenance"]["number"]: row for row in rl_records(archive, history(archive))}
    assert sorted(rows) == [0, 1, 2, 3, 4, 5]
    assert [rows[n]["kind"] for n in sorted(rows)] == ["positive"] * 3 + ["negative", "positive", "negative"]
    assert rows[1]["reward"] == {
        "compiled": True,
        "correct": True,
        "hack": False,
        "coverage": 1.0,
        "score": 8.0,
        "score_kind": "estimate",
        "gain_over_first": 0.2,
        "gain_over_parent": 0.2,
    }
    assert rows[3]["reward"]["correct"] is False and rows[3]["reward"]["score"] is None
    assert "expected 2" in rows[3]["evidence"] and rows[5]["reward"]["hack"] is True
    assert rows[2]["ground_truth"]["task"] == TASK.key and "evidence" not in rows[2]


def test_a_winner_that_was_refused_later_teaches_nothing_right(tmp_path: Path) -> None:
    with Archive(tmp_path) as archive:
        run = history(archive)
        key = program("n1").key
        refused = Confirmed(program=key, passed=False, evaluation=evaluation(key, "wrong_value", fault="candidate"))
        archive.append(run, "confirmed", 1, refused.to_dict())
        assert 1 not in {row["provenance"]["number"] for row in sft_records(archive, run)}
        row = next(row for row in rl_records(archive, run) if row["provenance"]["number"] == 1)
    assert row["kind"] == "negative" and row["reward"]["correct"] is False and "refused" in row["evidence"]


def test_pairs_are_verified_programs_what_they_better_and_wrong_ones(tmp_path: Path) -> None:
    with Archive(tmp_path) as archive:
        run = history(archive)
        found = list(pairs(archive, run))
        key = program("n1").key
        refused = Confirmed(program=key, passed=False, evaluation=evaluation(key, "wrong_value", fault="candidate"))
        archive.append(run, "confirmed", 1, refused.to_dict())
        after = list(pairs(archive, run))
    assert [(pair.kind, pair.provenance["number"], pair.correct) for pair in found] == [
        ("engine", 0, True),
        ("variant", 1, True),
        ("step", 1, True),
        ("variant", 2, True),
        ("negative", 3, False),
        ("variant", 4, True),
        ("repair", 4, True),
        ("negative", 5, False),
    ]
    step, negative, repair = found[2], found[4], found[6]
    assert step.before == program("n0") and step.program == program("n1")
    assert step.provenance["made"]["gain"] == pytest.approx(0.2)
    assert "expected 2" in negative.evidence and HERE not in negative.evidence
    assert repair.before == negative.program == program("n3") and repair.evidence == negative.evidence
    assert all(pair.task == TASK.key and pair.task_source == TASK.source for pair in found)
    # its stored verdict says that it passed: refused later, it is neither right nor wrong with evidence
    assert all(key not in (pair.program.key, pair.before.key if pair.before else "") for pair in after)


def test_rows_say_where_they_come_from_and_nothing_of_this_machine(tmp_path: Path) -> None:
    with Archive(tmp_path) as archive:
        run = history(archive)
        rows = [row for kind in ("sft", "rl") for row in records(archive, run, kind)]
    for row in rows:
        origin = row["provenance"]
        assert origin["run"] == run and origin["targets"] == ["gfx942", "cpu"] and origin["evaluator"] == "f"
        assert origin["author"] in ("engine", "llm") and origin["hipwright"]
    text = json.dumps(rows)
    assert "/home/" not in text and "provenance.py" not in text and str(tmp_path) not in text


def test_a_searched_run_gives_rows_that_agree_with_its_log(tmp_path: Path) -> None:
    with Archive(tmp_path) as archive:
        result = begin(archive, Judge(), budget=24, seed=3, source=EngineSource(SPACE, write))
        log = read_log(archive.events(result.run))
        rows = rl_records(archive, result.run)
        steps = [row for row in sft_records(archive, result.run) if row["kind"] == "step"]
    assert len(rows) == len(log.evaluated)
    assert sum(row["reward"]["correct"] for row in rows) == sum(e.evaluation.passed for e in log.evaluated.values())
    assert steps and all(row["gain"] >= 0.05 for row in steps)


def test_unknown_kinds_and_runs_are_bad_input(tmp_path: Path) -> None:
    with Archive(tmp_path) as archive:
        run = history(archive)
        with pytest.raises(BadInput, match="unknown kind"):
            list(records(archive, run, "dpo"))
        with pytest.raises(BadInput, match="no run"):
            list(records(archive, "nobody", "sft"))
