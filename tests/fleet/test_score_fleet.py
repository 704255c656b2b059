"""`hipwright score --fleet` on a node whose GPU is simulated (docs/rocm-target.md): verdicts, order, faults, nodes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.fleet.local_fleet import LocalFleet, local_fleet
from hipwright import config
from tests.fleet.conftest import needs_ray
from tests.rocm import simulated
from tests.warm import hipwright

pytestmark = [needs_ray, pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
ROCM = Path(__file__).parents[1] / "rocm"


@pytest.fixture(scope="module")
def gpus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalFleet]:
    """A node with one simulated gfx942."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ROCM_PATH", str(simulated.made(tmp_path_factory.mktemp("rocm"))))
        patch.setenv("HIPWRIGHT_CACHE", str(config.cache_dir()))
        with local_fleet() as made:
            made.add("one", {"gfx942": 1}, device="simulated", gpus=1)
            yield made


def test_programs_are_scored_in_their_order_with_their_node(gpus: LocalFleet, tmp_path: Path) -> None:
    programs = [ROCM / "programs" / f"{name}.py" for name in ("wrong", "right", "beside")]
    task = ROCM / "tasks/twice.py"
    done = hipwright(tmp_path, "score", task, *programs, "--target", "rocm", "--fleet", gpus.address, "--json")
    scores = json.loads(done.stdout)["scores"]
    assert [Path(one["program"]).stem for one in scores] == ["wrong", "right", "beside"], done.stderr
    assert [one["status"] for one in scores] == ["wrong_value", "pass", "out_of_bounds"], scores
    assert {(one["node"]["host"], one["node"]["architecture"]) for one in scores} == {("one", "gfx942")}
    assert scores[1]["targets"]["rocm"]["timing"]["versus"]["eager"]["speedup"] > 0


def test_a_task_that_does_not_load_is_the_tasks_fault(gpus: LocalFleet, tmp_path: Path) -> None:
    task = tmp_path / "broken.py"
    task.write_text("raise RuntimeError('planted')\n")
    words = ("score", task, ROCM / "programs/right.py", "--target", "rocm", "--fleet", gpus.address, "--json")
    done = hipwright(tmp_path, *words)
    (score,) = json.loads(done.stdout)["scores"]
    assert (done.returncode, score["fault"], score["status"]) == (1, "task", "unscorable"), score
    other = hipwright(tmp_path, *words, "--place", "gfx950")
    assert other.returncode == 2 and "the fleet has no gfx950 seat" in other.stderr
