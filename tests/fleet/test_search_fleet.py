"""`--fleet` of searches, ablations, data sets and audits, on cpu seats of a real cluster: as on one machine."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from benchmarks.fleet.local_fleet import LocalFleet, local_fleet
from hipwright.archive import Archive, export, read_log
from hipwright.dataset.store import read_pairs
from hipwright.errors import HipwrightError
from tests.fleet.conftest import needs_ray
from tests.warm import hipwright

pytestmark = [needs_ray, pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
EXAMPLES = Path(__file__).parents[2] / "examples"
TASK = EXAMPLES / "l2_normalize.py"
SEARCH = ("optimize", TASK, "--target", "cpu", "--budget", "5", "--seed", "5")


@pytest.fixture(scope="module")
def processors() -> Iterator[LocalFleet]:
    with local_fleet() as made:
        made.add("one", {"cpu": 1})
        yield made


def canonical(folder: Path) -> str:
    """The canonical export of the folder's last run."""
    done = hipwright(folder, "export", "latest", "--canonical", "--out", folder / "run.jsonl")
    assert done.returncode == 0, done.stderr
    return (folder / "run.jsonl").read_text()


def home(tmp_path: Path, name: str) -> Path:
    made = tmp_path / name
    made.mkdir()
    return made


def test_a_search_on_a_fleet_is_that_of_one_machine(processors: LocalFleet, tmp_path: Path) -> None:
    here, there = home(tmp_path, "here"), home(tmp_path, "there")
    alone = hipwright(here, *SEARCH, "--json")
    far = hipwright(there, *SEARCH, "--json", "--out", there / "out", "--fleet", processors.address)
    assert alone.returncode == far.returncode == 0, far.stderr
    assert canonical(here) == canonical(there)
    found = json.loads((there / "out/result.json").read_text())
    assert "node one: " in found["environment"], found["environment"]
    assert "node" not in json.loads(alone.stdout)["environment"]


def test_a_killed_command_goes_on_where_it_stopped(processors: LocalFleet, tmp_path: Path) -> None:
    """SIGKILL after two evaluations; the run goes on in the fleet's seats, with the device that it was begun on."""
    here, there = home(tmp_path, "here"), home(tmp_path, "there")
    words = [sys.executable, "-m", "hipwright", *map(str, SEARCH), "--fleet", processors.address]
    started = subprocess.Popen(words, cwd=there, env=dict(os.environ), stderr=subprocess.DEVNULL)
    until = time.monotonic() + 120
    while evaluated(there) < 2 and started.poll() is None and time.monotonic() < until:
        time.sleep(0.05)
    started.send_signal(signal.SIGKILL)
    assert started.wait() == -signal.SIGKILL
    before = evaluated(there)
    assert 2 <= before < 5
    resumed = hipwright(there, "resume", "latest", "--fleet", processors.address, "--json")
    assert resumed.returncode == 0, resumed.stderr
    assert hipwright(here, *SEARCH).returncode == 0
    assert canonical(here) == canonical(there)
    assert evaluated(there) == 5


def test_two_commands_over_one_archive_evaluate_each_candidate_once(tmp_path: Path) -> None:
    """Equal searches, each with a seat of its own: what one of them evaluates, the other waits for and takes."""
    with local_fleet() as fleet:
        fleet.add("two", {"cpu": 2})
        words = [sys.executable, "-m", "hipwright", *map(str, SEARCH), "--workers", "1", "--fleet", fleet.address]
        with Archive(tmp_path / ".hipwright"):  # there before either
            pass
        commands = [
            subprocess.Popen(words, cwd=tmp_path, env=dict(os.environ), stderr=subprocess.DEVNULL) for _ in range(2)
        ]
        assert [command.wait(240) for command in commands] == [0, 0]
    with Archive(tmp_path / ".hipwright", create=False) as archive:
        logs = [read_log(archive.events(run.id)) for run in archive.runs()]
        exports = {export(archive, run.id, canonical=True) for run in archive.runs()}
    assert len(logs) == 2 and len(exports) == 1 and all(len(log.evaluated) == 5 for log in logs)
    made = Counter(e.evaluation.program for log in logs for e in log.evaluated.values() if not e.cached)
    assert len(made) == 5 and set(made.values()) == {1}
    first, second = ({log.clock_started, log.clock_ended} for log in logs)
    assert max(min(first), min(second)) < min(max(first), max(second)), "they ran at the same time"


def evaluated(folder: Path) -> int:
    """Evaluations in the folder's archive so far."""
    if not (folder / ".hipwright/archive.sqlite").exists():
        return 0
    with suppress(HipwrightError), Archive(folder / ".hipwright", create=False) as archive:
        return sum(len(read_log(archive.events(run.id)).evaluated) for run in archive.runs())
    return 0


def test_an_ablation_on_a_fleet_is_that_of_one_machine(processors: LocalFleet, tmp_path: Path) -> None:
    """With estimates for gfx942, so that arms have scores; they are verified on the processor."""
    words = ("ablate", TASK, "--arms", "single-shot,pipeline", "--budget", "2", "--seeds", "1", "--fill", "0", "--json")
    alone = hipwright(tmp_path, *words, "--out", "here")
    far = hipwright(tmp_path, *words, "--out", "there", "--fleet", processors.address)
    assert alone.returncode == far.returncode == 0, far.stderr
    one, other = (
        [
            {name: value for name, value in row.items() if "seconds" not in name}
            for row in json.loads(done.stdout)["outcomes"]
        ]
        for done in (alone, far)
    )
    assert one == other and len(one) == 2 and all(row["curve"][-1] for row in one)


def test_a_data_set_of_a_fleet_has_the_rows_of_one_machine(processors: LocalFleet, tmp_path: Path) -> None:
    tasks = home(tmp_path, "tasks")
    shutil.copy(TASK, tasks)
    words = ("dataset", "build", tasks, "--target", "cpu", "--variants", "0", "--negatives", "0", "--json")
    alone = hipwright(tmp_path, *words, "--out", "here")
    far = hipwright(tmp_path, *words, "--out", "there", "--fleet", processors.address)
    assert alone.returncode == far.returncode == 0, far.stderr
    one, other = ({row.key: row for row in read_pairs(tmp_path / name, [])} for name in ("here", "there"))
    assert one and {key: row.correct for key, row in one.items()} == {key: row.correct for key, row in other.items()}
    assert {row.provenance["node"]["host"] for row in other.values()} == {"one"}
    again = hipwright(tmp_path, *words, "--out", "there", "--fleet", processors.address, "--resume")
    assert again.returncode == 0 and json.loads(again.stdout)["now"]["tasks"] == 0


def test_an_audit_on_a_fleet_judges_as_one_machine(processors: LocalFleet, tmp_path: Path) -> None:
    words = ("audit", "--only", "cache_*", "--gate", "fast", "--seed", "3", "--json")
    alone = hipwright(tmp_path, *words)
    far = hipwright(tmp_path, *words, "--fleet", processors.address)
    assert alone.returncode == far.returncode == 0, far.stderr
    here, there = (json.loads(done.stdout)["verifiers"][0] for done in (alone, far))
    assert there["counts"] == here["counts"]
    cases = [(one["case"], one["outcome"], one["found"]["status"]) for one in here["cases"]]
    assert cases == [(one["case"], one["outcome"], one["found"]["status"]) for one in there["cases"]]
    assert all("node one: " in one["found"]["environment"] for one in there["cases"] if one["outcome"] != "not run")


def test_wrong_options_are_one_line(tmp_path: Path) -> None:
    for words in (SEARCH, ("ablate", TASK), ("audit",), ("dataset", "build", tmp_path, "--out", "d")):
        done = hipwright(tmp_path, *words, "--place", "gfx942")
        assert done.returncode == 2 and "--place chooses among the devices of a fleet" in done.stderr, done.stderr
    done = hipwright(tmp_path, "audit", "--mutants", "3", "--fleet", "127.0.0.1:1")
    assert done.returncode == 2 and "a fleet judges the corpus" in done.stderr
    done = hipwright(tmp_path, *SEARCH, "--fleet", "127.0.0.1:1")
    assert done.returncode == 3 and "no fleet answers at 127.0.0.1:1" in done.stderr
    assert len(done.stderr.strip().splitlines()) <= 2
