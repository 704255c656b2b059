"""The corpus: a function of its seed, uniform over schedules, and readable."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest

from hipwright.capture.graph import Graph
from hipwright.errors import BadInput
from hipwright.train.mini.corpus import (
    MANIFEST,
    MAX_CHARACTERS,
    CorpusSettings,
    _Job,
    _write_lines,
    build,
    copy,
    load,
    schedules,
)
from hipwright.train.mini.form import read
from hipwright.train.mini.tasks import Composition
from tests.train.mini.conftest import COMPOSITIONS, SHAPE


def test_a_job_gives_the_same_lines_each_time() -> None:
    job = _Job(COMPOSITIONS[0], (SHAPE, (16, 32)), CorpusSettings(scale="cpu", programs=5))
    (first, counts), (second, _) = _write_lines(None, job), _write_lines(None, job)
    assert first == second
    assert counts["programs"] == sum(len(line.programs) for line in first) == 10
    assert len({line.programs for line in first}) == 2


def test_schedules_are_drawn_evenly(graphs: dict[Composition, Graph]) -> None:
    texts = list(schedules(graphs[COMPOSITIONS[1]], random.Random(0), 60, Counter()))
    assert len(set(texts)) == len(texts) == 60
    assert max(map(len, texts)) <= MAX_CHARACTERS
    fixed = sum(f"assert x.shape[0] == {SHAPE[0]}" in text for text in texts)
    lanes = sum("LANES = " in text for text in texts)
    assert 15 < fixed < 45
    assert 15 < lanes < 45
    assert not any("COLUMNS" in text or "COOP_BLOCKS" in text for text in texts)


def test_every_program_of_a_corpus_is_read(corpus_folder: Path) -> None:
    for line in load(corpus_folder).lines:
        for text in line.programs:
            assert not hasattr(read(text, line.problem), "repair")


def test_a_folder_of_other_settings_is_refused(corpus_folder: Path, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="other settings"):
        build(CorpusSettings(scale="cpu", tasks=4), corpus_folder)
    (tmp_path / MANIFEST).write_text("{}")
    with pytest.raises(BadInput, match="no corpus"):
        load(tmp_path)
    with pytest.raises(BadInput, match="no corpus"):
        copy(tmp_path, tmp_path / "other")
    copy(corpus_folder, tmp_path / "taken over")
    assert load(tmp_path / "taken over") == load(corpus_folder)


@pytest.mark.slow
def test_a_corpus_is_built_in_processes_and_read_again(tmp_path: Path) -> None:
    settings = CorpusSettings(scale="cpu", tasks=2, programs=3)
    made = build(settings, tmp_path, workers=2)
    assert [len(line.programs) for line in made.lines] == [3, 3]
    assert build(settings, tmp_path) == made == load(tmp_path)
