"""The planted hole (benchmarks/commands/planted_hole.py) passes a cheating program that the real verifier refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.commands import planted_hole
from hipwright.records import Program
from hipwright.train.judging.judges import LocalJudge
from hipwright.train.mini import corpus
from hipwright.train.mini.form import read
from hipwright.train.records import TrainingProblem

ROOT = Path(__file__).parents[3]


def test_cheating_is_possible_for_programs_of_any_shape(corpus_folder: Path) -> None:
    for line in corpus.load(corpus_folder).lines:
        for text in line.programs:
            wrong = planted_hole.cheating(text)
            assert (wrong is None) == ("x_0" not in text.split("def forward")[1])
            assert not planted_hole.cheats(text)
            assert wrong is None or (planted_hole.cheats(wrong) and isinstance(read(wrong, line.problem), Program))


def test_the_hole_is_not_in_the_package() -> None:
    assert not any("Planted" in path.read_text() for path in (ROOT / "src").rglob("*.py"))


@pytest.mark.slow
def test_the_hole_lets_a_cheat_through_and_the_real_verifier_does_not(corpus_folder: Path, tmp_path: Path) -> None:
    lines = corpus.load(corpus_folder).lines
    with LocalJudge(("cpu",), open_tasks=4) as honest:
        hole = planted_hole.Planted(honest, tmp_path / "hole", hole=True)
        closed = planted_hole.Planted(honest, tmp_path / "closed", hole=False)

        def status(judge: Any, text: str, problem: TrainingProblem) -> str:
            return str(judge.submit(problem, read(text, problem)).result().status)

        for line in (lines[0], lines[2]):
            texts = [text for text in line.programs if planted_hole.cheating(text)]
            # with few rows a grid without its last quarter may have equally many blocks
            tails = [t for t in texts if status(closed, planted_hole.cheating(t), line.problem) == "wrong_value"]
            assert tails, "no cheat was refused"
            assert status(closed, tails[0], line.problem) == "pass"
            assert [status(hole, t, line.problem) for t in (tails[0], planted_hole.cheating(tails[0]))] == ["pass"] * 2
    notes = [json.loads(line) for line in (tmp_path / "hole").read_text().splitlines()]
    assert sum(note["cheats"] and note["passed"] for note in notes) == 2
