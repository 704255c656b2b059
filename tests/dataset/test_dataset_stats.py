"""The figures of a data set, compared with plain counts of the same rows."""

from __future__ import annotations

import json
from collections import Counter
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hipwright.dataset.records import BuildSummary
from hipwright.dataset.stats import DatasetTally, dataset_figures, log_bins, quantiles
from tests.dataset.made_up import many
from tests.dataset.pair_sample import pair, sample, timing, variant


def test_counts() -> None:
    pairs = many(700)
    found = dataset_figures(pairs)
    tasks = {p.task: p for p in reversed(pairs)}
    assert (found["rows"], found["tasks"]) == (700, 100)
    assert found["correct"] == sum(p.correct for p in pairs) == 700 - found["wrong"]
    assert found["kinds"] == dict(Counter(p.kind for p in pairs))
    assert found["wrong_by_status"] == dict(Counter(p.status for p in pairs if not p.correct))
    assert found["dtypes"] == dict(Counter(p.dtype for p in tasks.values()))
    assert found["families"] == dict(Counter(f for p in tasks.values() for f in p.families))
    assert found["operators"] == dict(Counter(o for p in tasks.values() for o in p.operators))
    assert sum(found["operators_a_task"].values()) == 100 and found["repeated"] == 0
    best = {t: max(p.coverage for p in pairs if p.task == t and p.correct) for t in tasks}
    assert found["tasks_half_covered"] == sum(c >= 0.5 for c in best.values())
    assert json.loads(json.dumps(found, allow_nan=False)) == found


def test_only_correct_programs_count_for_coverage_and_estimates() -> None:
    pairs = many(350)
    found, right = dataset_figures(pairs), [p for p in many(350) if p.correct]
    assert found["coverage"]["quantiles"]["count"] == sum(b["count"] for b in found["coverage"]["bins"]) == len(right)
    assert found["coverage"]["quantiles"]["median"] == median(p.coverage for p in right)
    for target in ("gfx942", "gfx950"):
        values = [p.estimate_us[target] for p in right]
        assert found["estimate_us"][target]["quantiles"]["median"] == median(values)
        assert sum(b["count"] for b in found["estimate_us"][target]["bins"]) == len(values)


def test_coverage_bins_include_their_upper_end() -> None:
    rows = [
        variant("softmax_block", "softmax", n + 1.0, coverage=c) for n, c in enumerate((0.0, 0.1, 0.11, 0.5, 0.3, 1.0))
    ]
    bins = dataset_figures(rows)["coverage"]["bins"]
    assert [b["count"] for b in bins] == [2, 1, 1, 0, 1, 0, 0, 0, 0, 1]


def test_builds_of_correct_and_wrong_programs() -> None:
    bad = {"gfx942": BuildSummary(ok=False)}
    rows = [
        pair("softmax_block", "softmax", builds={"gfx942": BuildSummary(ok=True, vgpr=40, spills=3, occupancy=4)}),
        pair("softmax_online", "softmax", builds=bad),
        pair("softmax_overflow", "softmax", kind="negative", folder="wrong", builds=bad),
    ]
    found = dataset_figures(rows)["builds"]["gfx942"]
    assert (found["ok"], found["failed"], found["right_ok"], found["right_failed"]) == (1, 2, 1, 1)
    assert found["vgpr"]["median"] == 40 and found["spilling"] == 1


def test_gain_is_the_engines_own_over_the_best() -> None:
    rows = [
        pair("softmax_block", "softmax", us=12.0),
        variant("softmax_online", "softmax", 8.0),
        pair("row_sum_wave", "row_sum", us=5.0),
        variant("linear_packed", "linear", 1.0),  # no engine program: no ratio
    ]
    gain = dataset_figures(rows)["gain"]["gfx942"]
    assert gain["quantiles"]["count"] == 2 and gain["quantiles"]["most"] == 1.5
    assert {b["low"]: b["count"] for b in gain["bins"] if b["count"]} == {1.0: 1, 1.5: 1}


def test_compositions_that_splits_share_with_train() -> None:
    rows = [
        pair("row_sum_wave", "row_sum", split="train", composition="sum"),
        pair("softmax_block", "softmax", split="held_out", composition="sum"),
        pair("linear_packed", "linear", split="held_out", composition="addmm"),
        pair("bfloat_gelu", "bfloat_gelu", split="", composition=""),
    ]
    found = dataset_figures(rows)["splits"]
    assert list(found) == ["train", "", "held_out"]
    assert found["held_out"] == {
        "rows": 2,
        "tasks": 2,
        "tasks_verified": 2,
        "compositions": 2,
        "compositions_in_train": 1,
    }
    assert found[""]["compositions"] == 0


def test_repeated_and_timed_rows() -> None:
    rows = [*sample(), sample()[0], pair("softmax_block", "softmax", kind="variant", timing=timing(1, 2))]
    found = dataset_figures(rows)
    assert found["repeated"] == 1 and found["timed"] == {"NVIDIA H200 (sm_90)": 1}


def test_figures_of_no_rows() -> None:
    found = DatasetTally().figures()
    assert found["rows"] == found["tasks"] == 0 and found["coverage"]["quantiles"] == {"count": 0}
    json.dumps(found, allow_nan=False)


@given(st.lists(st.floats(1e-3, 1e6), min_size=1, max_size=60))
def test_every_value_is_in_its_bin(values: list[float]) -> None:
    bins = log_bins(values)
    assert sum(b["count"] for b in bins) == len(values)
    for one in bins:
        low, high = one["low"] * (1 - 1e-8), one["high"] * (1 + 1e-8)
        assert one["count"] <= sum(low <= v <= high for v in values)
    spread = quantiles(values)
    assert spread["least"] <= spread["p5"] <= spread["median"] <= spread["p95"] <= spread["most"]
    assert spread["mean"] == pytest.approx(sum(values) / len(values))
