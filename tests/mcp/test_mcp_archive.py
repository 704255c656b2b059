"""The MCP server's tools that read the archive, and the skill file."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from hipwright.archive import Archive, Evaluated, Finished, LogEntry, Proposed
from hipwright.mcp import SKILL
from hipwright.program import parse
from hipwright.records import Decision, Evaluation, Expansion, Program, Run, Task, Workload

pytest.importorskip("mcp")
from tests.mcp.server_process import SERVER, connected, talk, text_of
from tests.mcp.subjects import PROGRAM, TASK, WRONG


def archived(home: Path, name: str, source: str, programs: dict[str, tuple[float, str]]) -> None:
    """A finished run of the task with these programs: {text: (estimate in microseconds, status)}."""
    task = Task(name=name, source=source, workloads=(Workload(name="given"),))
    run = Run(id=name, task=task.key, targets=("gfx942", "cpu"), budget=9, policy="islands", seed=1)
    with Archive(home) as archive:
        archive.begin_run(run, {"task_name": name, "fingerprint": "f"}, [task])
        best = ""
        for number, (text, (score, status)) in enumerate(programs.items()):
            program = Program(text=text)
            kind: Any = "estimate" if status == "pass" else "none"
            result = Evaluation(
                task=task.key,
                program=program.key,
                status=status,
                score=score,
                score_kind=kind,  # type: ignore[arg-type]
            )
            proposed = Proposed(expansion=Expansion(number=number, operator="default"), round=0, program=program.key)
            decision = Decision(number=number, program=program.key, kept=status == "pass")
            entries = [
                LogEntry("proposed", number, proposed.to_dict()),
                LogEntry("evaluated", number, Evaluated(evaluation=result).to_dict()),
                LogEntry("decided", number, decision.to_dict()),
            ]
            archive.append_all(run.id, entries, [program])
            best = best or program.key
        finished = Finished(reason="budget", best=best, number=0, score=1.0, evaluations=len(programs), rounds=1)
        archive.append(run.id, "finished", -1, finished.to_dict())


def test_the_best_program_and_its_exemplars_come_from_the_archive(root: Path) -> None:
    slower = PROGRAM.replace("256", "64")
    other = TASK.replace("x * 2 + 1", "x * 3 + 2").replace("Twice", "Three times")
    home = root / ".hipwright"
    archived(home, "twice", TASK, {slower: (9.0, "pass"), PROGRAM: (4.0, "pass"), WRONG: (1.0, "wrong_value")})
    archived(home, "thrice", other, {PROGRAM.replace("2.0f", "3.0f"): (5.0, "pass")})

    async def work() -> None:
        async with connected(root) as client:
            best = await client.call_tool("best_program", {"task": "tasks/twice.py", "count": 2})
            content = best.structured_content
            assert content is not None and not best.is_error, text_of(best)
            assert content["best"]["program"] == PROGRAM and content["best"]["microseconds"] == 4.0
            assert [kernel["task_name"] for kernel in content["exemplars"]] == ["twice", "thrice"]
            assert content["exemplars"][0]["program"] == slower  # another performance bucket
            assert "4 us by static estimate" in text_of(best) and "wrong" not in text_of(best)

            like = await client.call_tool("exemplars", {"task": "tasks/twice.py"})
            assert like.structured_content is not None
            (kernel,) = like.structured_content["exemplars"]
            assert kernel["task_name"] == "thrice" and 0 < kernel["similarity"] <= 1

    talk(work)


def test_the_skill_is_printed_and_its_program_is_one() -> None:
    printed = subprocess.run([*SERVER, "--print-skill"], capture_output=True, text=True, check=True, timeout=60)
    assert printed.stdout == SKILL.read_text() and not printed.stderr
    front, _, body = printed.stdout.removeprefix("---\n").partition("\n---\n")
    assert {line.partition(":")[0] for line in front.splitlines()} == {"name", "description"}
    block = [line[4:] for line in body.splitlines() if line.startswith("    ") or not line]
    program = "\n".join(block).strip("\n")
    assert parse(program).text == program
    for tool in ("list_tasks", "best_program", "exemplars", "evaluate_program", "explain_failure", "profile_program"):
        assert f"`{tool}`" in body
