"""What a session judged is stored as a run of the task, with `--keep`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hipwright.archive import Archive, list_runs, read_log
from hipwright.archive.similar import known_for
from hipwright.cli.main import main
from hipwright.errors import BadInput
from hipwright.mcp.journal import Journal
from hipwright.records import Evaluation, Program, Task, Workload
from hipwright.search import resume

pytest.importorskip("mcp")
from tests.mcp.server_process import connected, talk, text_of
from tests.mcp.subjects import PROGRAM, TASK, WRONG

TARGETS = ("gfx942", "cpu")


def task(name: str = "t.py") -> Task:
    return Task(name=name, source=f"# {name}", workloads=(Workload(name="given"),))


def judged(program: Program, status: Any = "pass", score: float | None = 4.0, **more: Any) -> Evaluation:
    fault = None if status == "pass" else "candidate"
    content = {"fault": fault, "score": score, "score_kind": "estimate" if score else "none", **more}
    return Evaluation(task=task().key, program=program.key, status=status, **content)


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal(tmp_path, TARGETS)


def test_right_programs_are_found_again_and_the_run_ends_with_its_best(journal: Journal, tmp_path: Path) -> None:
    programs = [Program(text=f"def forward(self, x):\n    return x  # {n}\n") for n in range(3)]
    found = [judged(programs[0]), judged(programs[1], "wrong_value", None), judged(programs[2], score=2.0)]
    kept = [journal.add(task(), program, one) for program, one in zip(programs, found, strict=True)]
    assert [one["number"] for one in kept] == [0, 1, 2] and len({one["run"] for one in kept}) == 1
    with Archive(tmp_path) as archive:
        assert [one.status for one in list_runs(archive)] == ["running"]
        assert [one.program for one in known_for(archive, task().key, TARGETS, 5)] == [programs[2].key, programs[0].key]
    journal.close()
    with Archive(tmp_path) as archive:
        (run,) = list_runs(archive)
        assert (run.status, run.policy, run.evaluations) == ("finished", "session", 3)
        assert run.best == programs[2].key and run.score == 2.0 and run.best_number == 2
        assert archive.task(task().key).source == "# t.py"
        log = read_log(archive.events(run.id))
        assert log.evaluated[1].evaluation.status == "wrong_value" and not any(log.decided)


def test_each_task_has_a_run_and_a_killed_server_leaves_what_it_wrote(journal: Journal, tmp_path: Path) -> None:
    program = Program(text="def forward(self, x):\n    return x\n")
    runs = [journal.add(task(name), program, judged(program))["run"] for name in ("a.py", "b.py", "a.py")]
    assert runs[0] == runs[2] != runs[1]
    journal._stack.close()  # what the end of the process does to the locks
    with Archive(tmp_path) as archive:
        assert {one.id: (one.status, one.evaluations) for one in list_runs(archive)} == {
            runs[0]: ("interrupted", 2),
            runs[1]: ("interrupted", 1),
        }
        with pytest.raises(BadInput, match="was no search"):
            resume(archive, runs[0], task("a.py"), evaluator=None, source=None)  # type: ignore[arg-type]


def test_what_says_nothing_of_a_program_is_not_kept(journal: Journal, tmp_path: Path) -> None:
    program = Program(text="x")
    foreign = Program(text="class ModelNew: ...", form="modelnew")
    assert "ModelNew" in journal.add(task(), foreign, judged(foreign))["not_kept"]
    broken = judged(program, "unscorable", None, fault="device")
    assert "nothing is known" in journal.add(task(), program, broken)["not_kept"]
    assert not list(tmp_path.iterdir())
    journal.close()


def test_an_archive_that_fails_loses_no_verdict(tmp_path: Path) -> None:
    (tmp_path / "archive.sqlite").write_text("no database at all " * 100)
    program = Program(text="x")
    journal = Journal(tmp_path, TARGETS)
    assert journal.add(task(), program, judged(program))["not_kept"]
    journal.close()


def test_an_end_that_fails_is_told(journal: Journal, capsys: pytest.CaptureFixture[str]) -> None:
    program = Program(text="x")
    journal.add(task(), program, judged(program))
    assert journal._archive is not None
    journal._archive.close()  # as if the disk had failed
    journal.close()
    assert "the session's run could not be ended" in capsys.readouterr().err


def test_the_commands_that_read_runs_take_it(
    journal: Journal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    program = Program(text="HIP = ''\n\ndef forward(self, x):\n    return x\n")
    run = str(journal.add(task(), program, judged(program))["run"])
    journal.close()
    monkeypatch.setenv("HIPWRIGHT_HOME", str(tmp_path))
    for asked in (["runs", "--json"], ["show", run, "--json"], ["show", "latest"], ["export", run]):
        assert main(asked) == 0, asked
        out = capsys.readouterr().out
        assert run[:8] in out
    for kind in ("sft", "rl", "labels"):
        assert main(["export", run, "--records", kind, "--out", str(tmp_path / f"{kind}.jsonl")]) == 0


@pytest.mark.slow
def test_a_session_that_keeps_gives_its_best_to_the_next(tmp_path: Path) -> None:
    (tmp_path / "twice.py").write_text(TASK)

    async def work() -> None:
        async with connected(tmp_path, "--keep") as client:
            listed = {tool.name: tool.annotations for tool in (await client.list_tools()).tools}
            assert listed["evaluate_program"].read_only_hint is False and listed["best_program"].read_only_hint is True
            for text in (WRONG, PROGRAM):
                content = await client.call_tool("evaluate_program", {"task": "twice.py", "program": text})
                assert "kept in the archive: run " in text_of(content)
            assert content.structured_content is not None and content.structured_content["archive"]["number"] == 1
            best = await client.call_tool("best_program", {"task": "twice.py"})
            assert best.structured_content is not None and best.structured_content["best"]["program"] == PROGRAM
        async with connected(tmp_path) as client:
            assert (await client.list_tools()).tools[1].annotations.read_only_hint is True
            best = await client.call_tool("best_program", {"task": "twice.py"})
            assert best.structured_content is not None and best.structured_content["best"]["program"] == PROGRAM

    talk(work)
    with Archive(tmp_path / ".hipwright") as archive:
        (run,) = list_runs(archive)
        assert (run.status, run.reason, run.evaluations) == ("finished", "the client left", 2)
