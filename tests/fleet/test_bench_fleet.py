"""`hipwright bench --fleet` on the cpu seats of a real cluster: the rows of one machine, with the node of each."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.fleet.local_fleet import LocalFleet, local_fleet
from hipwright.evaluation.bench import BenchRow
from tests.fleet.conftest import needs_ray
from tests.warm import hipwright

pytestmark = [needs_ray, pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(scope="module")
def processors() -> Iterator[LocalFleet]:
    with local_fleet() as made:
        made.add("one", {"cpu": 1})
        yield made


def rows(folder: Path) -> dict[str, BenchRow]:
    found = [BenchRow.from_json(line) for line in (folder / "rows.jsonl").read_bytes().splitlines()]
    return {row.task: row for row in found}


def verdict(row: BenchRow) -> dict[str, object]:
    """A row without what differs between two runs of the same thing."""
    return {k: v for k, v in row.to_dict().items() if k not in ("node", "seconds", "waited", "attempts", "evaluations")}


def test_the_fleets_rows_are_those_of_one_machine(processors: LocalFleet, tmp_path: Path) -> None:
    suite = tmp_path / "suite"
    suite.mkdir()
    shutil.copy(EXAMPLES / "l2_normalize.py", suite)
    common = ("bench", suite, "--target", "cpu", "--budget", "1", "--seed", "5", "--json")
    here = hipwright(tmp_path, *common, "--out", tmp_path / "here")
    there = hipwright(tmp_path, *common, "--out", tmp_path / "there", "--fleet", processors.address)
    assert here.returncode == there.returncode == 0, there.stderr
    assert json.loads(there.stdout)["correct"] == json.loads(here.stdout)["correct"]
    alone, fleet = rows(tmp_path / "here"), rows(tmp_path / "there")
    assert {task: verdict(row) for task, row in fleet.items()} == {task: verdict(row) for task, row in alone.items()}
    node = fleet["l2_normalize"].node
    assert node is not None and (node.host, node.architecture) == ("one", "cpu") and node.device
    programs = [(tmp_path / name / "programs" / "l2_normalize.py").read_text() for name in ("here", "there")]
    assert programs[0] == programs[1]
    again = hipwright(tmp_path, *common, "--out", tmp_path / "there", "--fleet", processors.address, "--resume")
    assert again.returncode == 0 and "1 of 1 rows are there already" in again.stderr
