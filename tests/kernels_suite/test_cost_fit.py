"""The fitted cost model: it learns what the estimate is off by, says so on tasks it never saw, and is put to use."""

from __future__ import annotations

import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from benchmarks.suite import figures, report
from benchmarks.suite.records import Trial
from hipwright.evaluation import Evaluator
from hipwright.measure.fit import (
    FEATURES,
    TimedProgram,
    cross_validated,
    features_from,
    fit,
    load,
    own_estimate,
    quality,
    refined,
    save,
    spearman,
)
from hipwright.records import Estimate
from hipwright.toolchain.cache import BuildCache
from tests.kernels_suite.made_up import detail, row


def made(tasks: int = 12, programs: int = 8, noise: float = 0.05, seed: int = 1) -> list[TimedProgram]:
    """A machine on which poor efficiency costs less than the estimate believes, and every launch costs 4 us more."""
    rng = random.Random(seed)
    found = []
    for task in range(tasks):
        memory = 10 ** rng.uniform(-5, -3)
        for _ in range(programs):
            efficiency, issue = rng.uniform(0.05, 1.0), memory * rng.uniform(0.1, 0.8)
            rows = detail(memory / efficiency, issue, efficiency)
            estimated = 1e6 * rows[0]["seconds"]
            true = 1e6 * (memory / efficiency**0.25 + 0.5 * issue) + 7
            found.append(
                TimedProgram(f"t{task}", features_from(estimated, rows), estimated, true * rng.lognormvariate(0, noise))
            )
    return found


def test_a_fit_improves_on_the_estimate_for_tasks_it_never_saw() -> None:
    samples = made()
    plain = quality(samples, [one.estimated_us for one in samples])
    held = quality(samples, cross_validated(samples, "a GPU"))
    assert held.overall > plain.overall and held.within >= plain.within
    assert held.ratio < 1.25 < plain.ratio
    assert (held.tasks, held.samples) == (12, 96)


def test_nothing_is_learnt_where_there_is_nothing_to_learn() -> None:
    rng = random.Random(0)
    samples = [TimedProgram(o.group, o.features, o.estimated_us, 10 ** rng.uniform(0, 3)) for o in made()]
    assert quality(samples, cross_validated(samples, "a GPU")).overall < 0.4


def test_a_held_out_task_teaches_its_own_model_nothing() -> None:
    samples = made(tasks=2)
    other = [TimedProgram(o.group, o.features, o.estimated_us, 1e6) if o.group == "t1" else o for o in samples]
    changed = [told for told, one in zip(cross_validated(other, "d"), other, strict=True) if one.group == "t1"]
    same = [told for told, one in zip(cross_validated(samples, "d"), samples, strict=True) if one.group == "t1"]
    assert changed == same


def test_too_little_to_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="2 samples"):
        fit(made()[:2], "a GPU")
    with pytest.raises(ValueError, match="two tasks"):
        cross_validated(made(tasks=1), "a GPU")


def test_ranks() -> None:
    assert spearman([1, 2, 3], [10, 20, 1000]) == pytest.approx(1.0)
    assert spearman([1, 2, 3], [3, 2, 1]) == pytest.approx(-1.0)
    assert spearman([1, 1, 2, 2], [1, 2, 3, 4]) == pytest.approx(0.8944, abs=1e-3)
    assert spearman([1, 1], [1, 2]) == 0.0 and spearman([], []) == 0.0


def test_a_saved_model_refines_estimates_and_keeps_what_they_said(tmp_path: Path) -> None:
    samples = made()
    model = fit(samples, "a GPU")
    assert load("sm_90", tmp_path) is None
    path = save(model, "sm_90", tmp_path)
    assert load("sm_90", tmp_path) == model and load("gfx942", tmp_path) is None
    rows = detail(1e-3, 1e-4, 0.1)
    plain = Estimate(target="sm_90", microseconds=1003.0, bound="memory", roofline_fraction=0.1, detail=rows)
    told = refined(plain, model)
    assert told.microseconds == pytest.approx(model.microseconds(features_from(1003.0, rows), 1003.0), rel=1e-4)
    assert told.microseconds < 700 and told.roofline_fraction > 0.1
    assert own_estimate(told.microseconds, told.detail) == 1003.0
    assert features_from(1003.0, told.detail) == features_from(1003.0, rows) and len(FEATURES) == len(model.weights)
    path.write_text(model.to_json().replace('"weights":[', '"weights":[0.0,'))
    assert load("sm_90", tmp_path) is None


def test_an_evaluator_takes_the_models_of_its_targets_and_says_so_in_its_fingerprint(tmp_path: Path) -> None:
    def opened(*targets: str) -> Evaluator:
        nothing: Any = SimpleNamespace(seed=1)
        return Evaluator(nothing, nothing, nothing, BuildCache(tmp_path), targets)

    before, other = opened("gfx942", "cpu").fingerprint, opened("gfx90a", "cpu").fingerprint
    save(fit(made(), "an MI300X"), "gfx942", tmp_path)
    assert opened("gfx942", "cpu").fingerprint != before
    assert opened("gfx90a", "cpu").fingerprint == other


def test_the_report_tells_the_rank_correlation_of_estimate_and_fit() -> None:
    rows, rng = [], random.Random(3)
    for task in range(6):
        trials = []
        for number in range(1, 8):
            efficiency = rng.uniform(0.05, 1.0)
            parts = detail(1e-4 * (task + 1) / efficiency, 1e-5, efficiency)
            us = 1e6 * parts[0]["seconds"]
            trials.append(Trial(number=number, microseconds=us**0.8, estimated_us=us, detail=parts))
        rows.append(row(f"a/t{task}", "search", trials=tuple(trials), detail=(), estimated_us=None))
    assert len(figures.samples(rows)) == 42
    text = report.estimates(rows)
    assert "42 programs of 6 tasks" in text and "fitted, cross-validated" in text
    assert "within a task 1.000" in text
    few = [msgspec.structs.replace(one, trials=one.trials[:4]) for one in rows]
    assert "within a task -," in report.estimates(few), "nothing is known, which is not a correlation of 0"
