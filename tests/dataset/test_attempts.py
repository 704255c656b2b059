"""The engine's attempts for a task: their order and differences, and library calls as the last."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from msgspec.structs import replace

from hipwright.api.data.hooks import evidence_text, mutants, search_pairs
from hipwright.dataset.attempts import ENGINE_CHOICE, LIBRARY_ONLY, engine_attempts, library_attempt
from hipwright.dataset.make import BuildSettings, Hooks, make_pairs
from hipwright.dataset.store import OUTCOMES, DatasetStore, TaskOutcome, append_durably, read_outcomes
from hipwright.dataset.tasks import DatasetTask
from hipwright.engine.version import source_key
from hipwright.evaluation import Evaluator
from hipwright.machine import Machine
from hipwright.records import Evaluation, Program
from tests.dataset import tiny
from tests.engine.harness import captured

HOOKS = Hooks(mutants, evidence_text, search_pairs)
SETTINGS = BuildSettings(targets=("gfx942", "gfx950", "cpu"), variants=1, negatives=0)


class Scan(torch.nn.Module):
    """A running product that one kernel passes to another in bfloat16, and parts of rows."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        left, right = torch.softmax(x.cumprod(-1), -1).chunk(2, -1)
        return torch.tanh(left) * right


def test_each_attempt_gives_another_program() -> None:
    graph = captured(Scan(), [torch.rand(4, 8, dtype=torch.bfloat16)])
    found = list(engine_attempts(graph))
    assert [attempt.by.removeprefix(ENGINE_CHOICE) for attempt in found] == [
        "",
        ", for the captured sizes alone",
        ", with float32 between kernels",
        ", without fusion",
        ", without fusion, for the captured sizes alone",
    ]
    texts = [attempt.program().text for attempt in (*found, library_attempt(graph))]
    assert len(set(texts)) == 6
    static, wide, apart, none = texts[1], texts[2], texts[3], texts[5]
    assert "x.shape[0] == 4" in static and "x_0" not in static
    assert "float* __restrict__ cumprod" in wide and "__hip_bfloat16* __restrict__ cumprod" not in wide
    assert apart.count("__global__") > wide.count("__global__") and "__global__" not in none


def test_an_attempt_without_effect_is_left_out() -> None:
    graph = captured(torch.nn.Tanh(), [torch.rand(4, 8)])
    assert "wide" not in {key for attempt in engine_attempts(graph) for key in attempt.fixed}


def refuse(monkeypatch: pytest.MonkeyPatch, wrong: str) -> None:
    """Let the evaluator refuse every program that contains a text."""
    real = Evaluator.evaluate

    def evaluate(self: Evaluator, program: Program, *args: object, **kwargs: object) -> Evaluation:
        if wrong not in program.text:
            return real(self, program)
        return Evaluation(task="", program=program.key, status="wrong_value", fault="candidate", message="for a test")

    monkeypatch.setattr(Evaluator, "evaluate", evaluate)


def test_library_calls_are_the_last_attempt(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    refuse(monkeypatch, "__global__")
    found = make_pairs(machine, DatasetTask("rows", tiny.ROWS), SETTINGS, HOOKS)
    assert found.outcome.status == "verified" and found.outcome.coverage == 0
    (right,) = (pair for pair in found.pairs if pair.correct)
    assert right.kind == "engine" and right.provenance["made"]["by"] == LIBRARY_ONLY
    assert found.outcome.counts["the engine's, and wrong"] >= 3 + 4  # attempts, and other schedules


def test_other_schedules_keep_the_fixed_choices(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    refuse(monkeypatch, "x_0 = x.shape[0]")
    found = make_pairs(machine, DatasetTask("rows", tiny.ROWS), SETTINGS, HOOKS)
    right = [pair for pair in found.pairs if pair.correct]
    assert {pair.kind for pair in right} >= {"engine", "variant"}
    assert all("x.shape[0] ==" in pair.program.text for pair in right)


def test_another_engine_tries_again_what_this_one_failed_at(tmp_path: Path) -> None:
    failed = TaskOutcome(entry="1", name="a", status="unverified")
    with DatasetStore(tmp_path, {}, resume=False) as store:
        store.add(failed, ())
    assert read_outcomes(tmp_path)["1"].engine == source_key()
    old = [replace(failed, entry="2"), replace(failed, entry="3", status="verified")]
    old += [replace(failed, entry="4", status="verified", coverage=0.2), replace(failed, entry="5", status="fault")]
    append_durably(tmp_path / OUTCOMES, b"".join(one.to_json().encode() + b"\n" for one in old))
    with DatasetStore(tmp_path, {}, resume=True) as store:
        assert [store.done(key) for key in "123456"] == [True, False, False, True, False, False]


def test_a_program_refused_on_one_draw_is_not_a_negative(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """The evaluator refuses on the first draw of inputs alone, as where rounding moves a minimum."""
    real = Evaluator.evaluate

    def unlucky(self: Evaluator, program: Program, oracle: object = None, **kwargs: object) -> Evaluation:
        if oracle is None and "__global__" in program.text:
            return Evaluation(task="", program=program.key, status="wrong_value", fault="candidate", message="once")
        return real(self, program, oracle)  # type: ignore[arg-type]

    monkeypatch.setattr(Evaluator, "evaluate", unlucky)
    found = make_pairs(machine, DatasetTask("points", tiny.POINTS), SETTINGS, HOOKS)
    assert all(pair.correct for pair in found.pairs) and found.outcome.counts["the engine's: wrong_value"] >= 1
