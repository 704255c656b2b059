"""Building pairs of small tasks with the real evaluator, and whole builds with a kill and a resume."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

from hipwright.api.data.hooks import evidence_text, mutants, search_pairs
from hipwright.dataset.build import Made, build
from hipwright.dataset.judge import WRONG_STATUSES
from hipwright.dataset.make import BuildSettings, Hooks, TaskPairs, make_pairs
from hipwright.dataset.records import Pair
from hipwright.dataset.store import OUTCOMES, PAIRS, DatasetStore, read_outcomes, read_pairs
from hipwright.dataset.tasks import DatasetTask
from hipwright.machine import Machine
from hipwright.records import Evaluation, Program
from tests.dataset import tiny

HOOKS = Hooks(mutants, evidence_text, search_pairs)
SETTINGS = BuildSettings(targets=("gfx942", "gfx950", "cpu"), variants=2, negatives=1)


@pytest.fixture(scope="module")
def rows(machine: Machine) -> TaskPairs:
    """A small reduction, made once."""
    return make_pairs(machine, DatasetTask("rows", tiny.ROWS), SETTINGS, HOOKS)


def of(product: TaskPairs, kind: str) -> list[Pair]:
    return [pair for pair in product.pairs if pair.kind == kind]


def test_a_task_gives_every_kind_of_pair(rows: TaskPairs) -> None:
    assert rows.outcome.status == "verified" and rows.outcome.coverage == 1.0
    kinds = Counter(pair.kind for pair in rows.pairs)
    assert (kinds["engine"], kinds["variant"], kinds["negative"], kinds["repair"]) == (1, 2, 1, 1)
    assert len({pair.key for pair in rows.pairs}) == len(rows.pairs)
    assert rows.outcome.pairs == tuple(pair.key for pair in rows.pairs)


def test_correct_pairs_have_builds_estimates_and_their_verification(rows: TaskPairs) -> None:
    for pair in (one for one in rows.pairs if one.correct):
        assert pair.status == "pass" and pair.coverage == 1.0
        assert set(pair.builds) == set(pair.estimate_us) == {"gfx942", "gfx950"}
        assert all(one.ok and one.vgpr > 0 and 0 < one.occupancy <= 8 for one in pair.builds.values())
        facts = pair.provenance["verified"]["cpu"]
        assert "given" in facts["workloads"] and len(facts["families"]) > 5 and facts["worst_error"] <= 1
        assert pair.families and pair.composition == "sum+tanh" and pair.dtype == "float32"


def test_a_negative_has_evidence_and_a_repair(rows: TaskPairs) -> None:
    (negative,), (repair,), (engine,) = of(rows, "negative"), of(rows, "repair"), of(rows, "engine")
    assert (
        not negative.correct
        and negative.status in WRONG_STATUSES
        and f"verdict: {negative.status}" in negative.evidence
    )
    assert repair.before == negative.program != engine.program == repair.program
    assert repair.evidence == negative.evidence
    assert "mutation" in negative.provenance["made"]


def test_a_step_saves_at_least_its_gain(rows: TaskPairs) -> None:
    for step in of(rows, "step"):
        before = next(pair for pair in rows.pairs if pair.program == step.before and pair.kind != "step")
        gains = {t: 1 - step.estimate_us[t] / before.estimate_us[t] for t in step.estimate_us}
        assert step.provenance["made"]["gain"] >= 0.05 and max(gains.values()) >= 0.05


def test_the_same_task_gives_the_same_rows(machine: Machine, rows: TaskPairs) -> None:
    again = make_pairs(machine, DatasetTask("rows", tiny.ROWS), SETTINGS, HOOKS)
    assert again.pairs == rows.pairs
    assert replace(again.outcome, seconds=0.0) == replace(rows.outcome, seconds=0.0)


@pytest.mark.slow
def test_a_search_adds_its_verified_programs_and_steps(machine: Machine) -> None:
    few = replace(SETTINGS, variants=0, negatives=0, budget=4)
    found = make_pairs(machine, DatasetTask("rows", tiny.ROWS), few, HOOKS)
    searched = [pair for pair in found.pairs if pair.provenance["made"]["by"] == "a search"]
    assert searched and found.outcome.counts["of the search"] == len(searched)
    assert all(pair.composition == "sum+tanh" and pair.key in found.outcome.pairs for pair in searched)
    assert len(of(found, "engine")) == 1


def changes_without_effect(program: Program, number: int) -> list[tuple[Program, str]]:
    """Mutants without effect, which the verifier must pass."""
    return [(replace(program, text=program.text + f"\n# {n}\n"), "a comment") for n in range(number % 3 + 2)]


def test_a_mutant_that_passes_is_not_a_negative(machine: Machine) -> None:
    found = make_pairs(
        machine,
        DatasetTask("points", tiny.POINTS),
        replace(SETTINGS, variants=0),
        Hooks(changes_without_effect, evidence_text, search_pairs),
    )
    assert not of(found, "negative") and not of(found, "repair") and all(pair.correct for pair in found.pairs)
    assert found.outcome.counts["mutants: pass"] >= 2


@pytest.mark.parametrize(
    ("source", "says"), [(tiny.RANDOM, "NumPy's generator"), (tiny.RAISES, "forward"), ("x = (", "")]
)
def test_an_unusable_task_fails_with_its_reason(machine: Machine, source: str, says: str) -> None:
    found = make_pairs(machine, DatasetTask("task", source), SETTINGS, HOOKS)
    assert found.outcome.status == "failed" and not found.pairs
    assert says in found.outcome.why and found.outcome.why


def test_only_the_verifiers_reasons_make_a_negative(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that ran out of time on a busy machine, or that the machine failed, is not called wrong."""
    from hipwright.evaluation import Evaluator

    real = Evaluator.evaluate
    seen: list[str] = []

    def late(self: Evaluator, program: Program, *args: object, **kwargs: object) -> Evaluation:
        seen.append(program.key)
        if len(seen) == 1:
            return real(self, program)
        return Evaluation(task="", program=program.key, status="timeout", fault="candidate", message="too slow")

    monkeypatch.setattr(Evaluator, "evaluate", late)
    found = make_pairs(machine, DatasetTask("points", tiny.POINTS), SETTINGS, HOOKS)
    assert [pair.kind for pair in found.pairs] == ["engine"]
    assert found.outcome.counts["the engine's: timeout"] == 2 and found.outcome.counts["mutants: timeout"] >= 1


# ---------------------------------------------------------------- whole builds


def start(tasks: Path, out: Path, *more: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "hipwright", "dataset", "build", tasks, "--out", out, "--variants", "1", *more]
    return subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.PIPE)


@pytest.mark.slow
def test_a_killed_build_goes_on_to_the_same_rows(tmp_path: Path) -> None:
    tasks = tmp_path / "tasks"
    tasks.mkdir()
    for number in range(3):
        (tasks / f"t{number}.py").write_text(tiny.task(f"torch.tanh(x) + {number}", f"4, {17 + number}"))
    (tasks / "random.py").write_text(tiny.RANDOM)
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    out, err = start(tasks, whole, "--workers", "1", "--json").communicate(timeout=300)
    told = json.loads(out)
    assert told["statuses"] == {"verified": 3, "failed": 1}, err
    assert told["failed"][0]["task"] == "random" and told["now"]["pairs_an_hour"] > 0
    process = start(tasks, killed, "--workers", "2")
    deadline = time.monotonic() + 200
    while not read_outcomes(killed) and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert 0 < len(read_outcomes(killed)) < 4
    process = start(tasks, killed, "--resume", "--workers", "2")
    _, err = process.communicate(timeout=300)
    assert process.returncode == 0 and b"tasks are done already" in err, err
    assert (killed / PAIRS).read_bytes() == (whole / PAIRS).read_bytes()
    assert len((killed / OUTCOMES).read_bytes().splitlines()) == 4
    assert not [pid for pid in os.listdir("/proc") if pid.isdigit() and _carries(pid, str(killed))]  # noqa: PTH208


def _carries(pid: str, marker: str) -> bool:
    try:
        return marker.encode() in Path(f"/proc/{pid}/cmdline").read_bytes() and int(pid) != os.getpid()
    except OSError:
        return False


def nobody(todo: Sequence[DatasetTask], took: Callable[[DatasetTask, Made], None]) -> None:
    raise AssertionError("nothing is left to make")


def test_done_tasks_are_left_alone_and_new_ones_are_not_done(rows: TaskPairs, tmp_path: Path) -> None:
    first, second = DatasetTask("rows", tiny.ROWS), DatasetTask("raises", tiny.RAISES)
    with DatasetStore(tmp_path, SETTINGS.to_dict(), resume=False) as store:
        store.add(rows.outcome, rows.pairs)
        store.finish([first.key], {})
    before = (tmp_path / PAIRS).read_bytes()
    with DatasetStore(tmp_path, SETTINGS.to_dict(), resume=True) as store:
        assert store.done(first.key) and not store.done(second.key)
        report = build([first], store, nobody)
    assert report.tasks_done == 0 and report.statuses == {"verified": 1} and report.covered == 1
    assert (tmp_path / PAIRS).read_bytes() == before and tuple(read_pairs(tmp_path)) == rows.pairs
