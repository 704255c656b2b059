"""The schedule grid, and the file of verdicts."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import msgspec

from hipwright.capture.graph import Graph
from hipwright.engine import write
from hipwright.llm.compact import shortened
from hipwright.train.log import cut_torn_line
from hipwright.train.mini.corpus import schedules
from hipwright.train.mini.evaluate import MiniVerdict, _read
from hipwright.train.mini.regret import all_schedules, grid
from hipwright.train.mini.settings import MiniEvaluationSettings
from hipwright.train.mini.tasks import CPU, Composition, Grammar
from hipwright.train.records import AnswerOutcome
from tests.train.mini.conftest import COMPOSITIONS


def test_the_grid_holds_every_schedule_that_the_corpus_may_draw(graphs: dict[Composition, Graph]) -> None:
    graph = graphs[COMPOSITIONS[0]]
    every = set(all_schedules(graph))
    drawn = [text for text in schedules(graph, random.Random(1), 60, Counter()) if "assert x.shape[0]" not in text]
    assert len(drawn) > 15
    assert set(drawn) <= every
    assert shortened(write(graph)) in every


def test_tasks_with_few_schedules_come_first_and_large_grids_are_drawn_from() -> None:
    tasks = [t for split in ("shapes", "deeper") for t in Grammar(4, CPU).problems(split, 4, 4)]  # type: ignore[arg-type]
    found = grid(tasks, MiniEvaluationSettings(regret=1, grid=10))
    assert len(found) == 2
    assert all(len(set(texts)) == len(texts) == 10 for texts in found.values())
    assert found == grid(tasks, MiniEvaluationSettings(regret=1, grid=10))
    families = {t.name: t.facts["family"] for t in tasks}
    assert {families[name] for name in found} == {"pointwise"}


def test_a_torn_last_verdict_is_cut_off(tmp_path: Path) -> None:
    file = tmp_path / "verdicts.jsonl"
    cut_torn_line(file)
    assert list(_read(file)) == []
    one = MiniVerdict("task", "text", AnswerOutcome(status="pass", compiled=True, correct=True))
    whole = msgspec.json.encode(one) + b"\n"
    file.write_bytes(whole + whole[:20])
    assert list(_read(file)) == [one], "another call may be writing to it"
    cut_torn_line(file)
    assert list(_read(file)) == [one]
    assert file.read_bytes() == whole
