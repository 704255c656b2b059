"""`python -m benchmarks fleet-faults`: it sees what is wrong, and what it kills loses nothing."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest

from benchmarks.archive import server
from benchmarks.fleet import faults
from benchmarks.fleet.number_search import TASK, HereJudge, NumbersSource, new_run
from hipwright import search
from hipwright.archive import Archive
from hipwright.records import Evaluation, Program
from tests.fleet.conftest import needs_ray


class Liar(HereJudge):
    """Says of every third program that it passes."""

    def __init__(self) -> None:
        self.asked = 0

    def evaluate(self, program: Program) -> Evaluation:
        self.asked += 1
        true = super().evaluate(program)
        return Evaluation(task=true.task, program=true.program, status="pass") if self.asked % 3 == 0 else true


def searched(folder: Path, judge: HereJudge) -> None:
    with Archive(folder) as archive:
        search.run(archive, new_run("piece", 24, 1), TASK, evaluator=judge, source=NumbersSource())


def test_an_honest_search_is_that_of_one_machine(tmp_path: Path) -> None:
    searched(tmp_path, HereJudge())
    found = faults.compared(tmp_path, "piece", 24, 1)
    assert found.pop("export equals one machine's") is True
    assert found == {"evaluations": 24, "lost": 0, "double": 0, "wrong": 0}


def test_wrong_and_missing_verdicts_are_seen(tmp_path: Path) -> None:
    searched(tmp_path, Liar())
    found = faults.compared(tmp_path, "piece", 30, 1)
    assert found["wrong"] == 8 and found["lost"] == 6 and not found["export equals one machine's"]


@needs_ray
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.skipif(bool(server.missing()), reason=server.missing() or "-")
def test_every_kind_of_fault_loses_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--out", str(tmp_path), "--pieces", "1", "--evaluations", "100", "--json"]
    parser = argparse.ArgumentParser()
    faults.add_options(parser)
    assert faults.run(parser.parse_args(words)) == 0
    found = json.loads(capsys.readouterr().out)
    assert set(found["by kind"]) == set(faults.FAULTS) and found["evaluations"] == 100
