"""A model's figures: which rows are samples, the cost of a solved task, and the page and the CSV."""

from __future__ import annotations

import csv
import io
from typing import Any

import pytest

from hipwright.errors import OutOfBudget, ProviderError, TaskError
from hipwright.evaluation.bench import BenchRow, ModelSample, Speedup, failed_row, malformed_row, to_csv
from hipwright.evaluation.figures import figures
from hipwright.evaluation.model_figures import model_figures
from hipwright.report.bench_model import cost_lines, curves, describe_share
from hipwright.report.bench_page import BenchPage, render_bench

PAID = ModelSample(model="m", answer="program", calls=1, input_tokens=100, output_tokens=50, cost_usd=0.5, priced=True)


def names(task: str, sample: int) -> dict[str, Any]:
    return {"key": f"{task} {sample}", "task": task, "candidate": "m", "sample": sample}


def right(task: str, sample: int, speedup: float = 1.5) -> BenchRow:
    one = Speedup(speedup=speedup, interval=(speedup - 0.1, speedup + 0.1))
    return BenchRow(
        **names(task, sample),
        status="pass",
        compiled=True,
        correct=True,
        timed_on="cuda",
        speedups={"eager": one},
        asked=PAID,
    )


def wrong(task: str, sample: int) -> BenchRow:
    return BenchRow(**names(task, sample), status="wrong_value", fault="candidate", compiled=True, asked=PAID)


def nothing(task: str, sample: int) -> BenchRow:
    asked = ModelSample(model="m", answer="no_code", mended=("prose",), calls=1, cost_usd=0.25, priced=True)
    return malformed_row("no_code: <b>", **names(task, sample), asked=asked)


def lost(task: str, sample: int) -> BenchRow:
    return failed_row(ProviderError("away"), **names(task, sample), asked=ModelSample(model="m"))


ROWS = [right("a", 0), wrong("a", 1), nothing("b", 0), nothing("b", 1), right("c", 0, 0.9), lost("c", 1)]


def test_samples_faults_and_denominators() -> None:
    found = model_figures(ROWS, 2)
    one, two = found["pass_at"]["1"], found["pass_at"]["2"]
    assert one["value"] == pytest.approx((0.5 + 0 + 1) / 3) and (one["tasks"], one["left_out"]) == (3, 0)
    assert two["value"] == pytest.approx(0.5) and (two["tasks"], two["left_out"]) == (2, 1)
    assert found["compiled_at"]["1"]["value"] == pytest.approx((1 + 0 + 1) / 3)
    fast = found["fast_at"]["eager"]
    assert fast["1"]["2"]["value"] == pytest.approx(0.5) and fast["0.5"]["1"]["value"] == pytest.approx(1.5 / 3)
    assert found["solved"] == {"count": 2, "total": 3}
    assert found["answers"] == {"program": 3, "no_code": 2, "none (provider at fault)": 1} and found["mended"] == {
        "prose": 2
    }


def test_a_task_that_does_not_load_is_no_task_of_the_models() -> None:
    broken = failed_row(TaskError("no Model"), **names("d", 0), asked=ModelSample(model="m"))
    assert model_figures([*ROWS, broken], 2)["solved"]["total"] == 3


def test_what_a_solved_task_costs() -> None:
    cost = model_figures(ROWS, 2)["cost"]
    assert cost["usd"] == pytest.approx(3 * 0.5 + 2 * 0.25) and cost["usd_per_solved"] == pytest.approx(1.0)
    assert (cost["calls"], cost["tokens_per_solved"]) == (5, 225.0) and cost["unpriced"] == []
    none = model_figures([nothing("b", 0)], 1)
    assert none["cost"]["usd_per_solved"] is None and "no task was solved" in cost_lines(none)[-1]


def test_a_model_without_a_price_is_said_and_costs_no_zero() -> None:
    free = ModelSample(model="free", answer="program", calls=1, input_tokens=10)
    rows = [right("a", 0), BenchRow(**names("b", 0), status="pass", compiled=True, correct=True, asked=free)]
    found = model_figures(rows, 1)
    assert found["cost"]["usd"] is None and found["cost"]["unpriced"] == ["free"]
    assert any("no price is known for free" in line for line in cost_lines(found))
    assert found["cost"]["tokens_per_solved"] == 80.0, "tokens are known all the same"
    unasked = failed_row(OutOfBudget("spent"), **names("c", 0), asked=ModelSample(model="free"))
    assert model_figures([right("a", 0), unasked], 1)["cost"]["unpriced"] == [], "a call that was never made"


def test_nothing_timed_gives_no_fast_curve() -> None:
    found = model_figures([nothing("b", 0)], 1)
    assert found["fast_at"] is None and list(curves(found)) == ["pass@k", "compiled@k"]
    assert model_figures([], 3)["pass_at"]["3"]["value"] is None
    assert describe_share(model_figures([], 3)["pass_at"]["3"]) == "no task has so many samples"


def test_the_table_and_the_page_hold_what_was_asked() -> None:
    table = list(csv.DictReader(io.StringIO(to_csv(ROWS))))
    assert [row["answer"] for row in table] == ["program", "program", "no_code", "no_code", "program", ""]
    assert table[2]["cost_usd"] == "0.25" and table[5]["calls"] == "0"
    assert "cost_usd" not in to_csv([BenchRow(**names("a", 0), status="pass")]), "no model, no columns"
    page = BenchPage(
        title="t",
        mode="strict",
        source="m",
        targets=("cuda",),
        complete=True,
        expected=6,
        figures=figures(ROWS),
        rows=tuple(ROWS),
        not_measured=(),
        command="hipwright bench t",
        model=model_figures(ROWS, 2),
    )
    html = render_bench(page)
    for text in (
        "The model",
        "pass@1",
        "pass@2",
        "fast_1@k against eager",
        "no_code",
        "$2.0000 in all",
        "mended: prose",
    ):
        assert text in html
    assert "samples of <code>m</code>" in html and "no_code: <b>" not in html
