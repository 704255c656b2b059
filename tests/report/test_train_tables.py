"""The figures of a training's log are explained: in the docs, on the page, and each that a loop logs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from train_sample import write

from hipwright.errors import BadInput
from hipwright.report import train_page, train_tables
from hipwright.report.train_data import read
from hipwright.report.train_tables import MEANINGS, explained, meaning
from hipwright.train.log import Log
from hipwright.train.rl.loop import batch_figures
from hipwright.train.rl.rollout import RolloutBatch

DOCS = Path(__file__).parents[2] / "docs" / "training.md"


def test_the_table_of_the_docs_is_this_one() -> None:
    rows = dict(re.findall(r"^\| `([\w*]+)` \| (.+) \|$", DOCS.read_text(), re.MULTILINE))
    told = {name: rows[name] for name in (*MEANINGS, "seconds_*")}
    assert told == {**MEANINGS, "seconds_*": meaning("seconds_step")}


def test_every_figure_of_a_judged_batch_and_every_chart_is_explained() -> None:
    logged = {*batch_figures(RolloutBatch(0, [], []))}
    charts = {name for name, _ in train_page.RL_CURVES}
    assert all(map(meaning, logged | charts)), sorted(name for name in logged | charts if not meaning(name))
    assert explained(["kl", "reward", "unheard_of"]) == [("reward", MEANINGS["reward"]), ("kl", MEANINGS["kl"])]


def test_the_page_explains_what_it_shows(tmp_path: Path) -> None:
    html = train_page.write(write(tmp_path)).read_text()
    assert "What the figures mean" in html and MEANINGS["zero_variance"] in html


def test_an_interrupted_training_is_reported_as_far_as_it_got(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text('{"recipe": "stanford-hip-14b", "model": "a", "data": "b"}')
    with pytest.raises(BadInput, match="of which no step was logged yet") as error:
        read(tmp_path)
    assert "--resume" in error.value.hint
    with Log(tmp_path, ()) as log:
        for step in (1, 2, 3):
            log.metrics("dpo", step, {"loss": 0.7 - step / 10, "rewards/margins": step / 10})
    with (tmp_path / "metrics.jsonl").open("a") as stream:
        stream.write('{"stage": "dpo", "st')  # killed while it wrote
    html = train_page.write(tmp_path).read_text()
    assert "Not finished: step 3 is the last that was logged" in html and "Margin of preferences" in html
    assert train_tables.figures(tmp_path)["unfinished"] and train_tables.figures(tmp_path)["trainings"][0]["steps"] == 3
    (tmp_path / "model").mkdir()
    assert not read(tmp_path).unfinished and "Not finished" not in train_page.write(tmp_path).read_text()
