"""The screener: regressions, ranking, static checks, predictions by models, calibration."""

from __future__ import annotations

import random
from collections import Counter
from math import log
from pathlib import Path
from typing import Any

import pytest
from compare_authors import RUGGED, RuggedJudge, rugged
from landscape import SPACE, TASK, Judge, begin, write

from hipwright.agents.engine_author import EngineAuthor
from hipwright.agents.screening.calibration import _auc, calibrations
from hipwright.agents.screening.fit import Chance, Coding, Scores, below, expected_gain
from hipwright.agents.screening.screener import (
    EngineScreener,
    Prediction,
    calibration,
    prediction_from_rates,
    read_prediction,
    screened_out,
    static_problem,
)
from hipwright.archive import Archive, Evaluated, LogEntry, Proposed
from hipwright.records import Evaluation, Expansion, Program
from hipwright.search import EngineSource, Proposal, ProposalRequest, SearchView, Trial, new_run
from hipwright.search.operators import sample

GOOD_PROGRAM = (Path("src/hipwright/audit/corpus/program/honest/row_sum_wave.py")).read_text()


def drawn(count: int, seed: int) -> list[dict[str, Any]]:
    rng = random.Random(seed)
    return [sample(RUGGED, [], rng) for _ in range(count)]


def trials(many: list[dict[str, Any]]) -> tuple[Trial, ...]:
    judge, told = RuggedJudge(), []
    for number, choices in enumerate(many):
        program = write(choices)
        expansion = Expansion(number=number, operator="random")
        proposed = Proposed(expansion=expansion, round=number // 4, program=program.key, choices=choices)
        told.append(Trial(proposed, judge.evaluate(program)))
    return tuple(told)


def screener() -> EngineScreener:
    return EngineScreener(RUGGED, lambda program: "")


def ask(many: tuple[Trial, ...], parents: tuple[str, ...] = ()) -> ProposalRequest:
    return ProposalRequest(Expansion(number=len(many), operator="mutate", parents=parents), (), SearchView(0, 99, many))


def test_scores_are_learnt_from_the_trials() -> None:
    view, fresh = trials(drawn(60, 1)), drawn(200, 2)
    found = screener().predict(ask(view), fresh)
    pairs = [(p.score, rugged(c)) for p, c in zip(found, fresh, strict=True) if p.score is not None]
    ordered = sum((a < b) == (x < y) for (a, x) in pairs for (b, y) in pairs if x != y)
    assert ordered / sum(x != y for (_, x) in pairs for (_, y) in pairs) > 0.75
    typical = sorted(abs(log(a / x)) for a, x in pairs)[len(pairs) // 2]
    assert typical < 0.25


def test_failures_are_learnt_from_the_trials() -> None:
    view, fresh = trials(drawn(120, 3)), drawn(400, 4)
    judge = RuggedJudge()
    found = screener().predict(ask(view), fresh)
    right = [p.passes for p, c in zip(found, fresh, strict=True) if judge.evaluate(write(c)).passed]
    wrong = [p.passes for p, c in zip(found, fresh, strict=True) if not judge.evaluate(write(c)).passed]
    assert len(wrong) > 10
    assert sum(a > b for a in right for b in wrong) / (len(right) * len(wrong)) > 0.75  # type: ignore[operator]


def test_the_prior_speaks_where_nothing_was_tried() -> None:
    coding = Coding.of({key: choice.options for key, choice in RUGGED.items()})
    assert Chance.fit(coding, [], []).of(drawn(2, 1)) == pytest.approx([0.8, 0.8])
    (first,) = screener().predict(ask(()), drawn(1, 1))
    assert first.passes == pytest.approx(0.8) and first.gain is None and first.better is None


def test_an_unseen_choice_is_less_sure_than_a_seen_one() -> None:
    coding = Coding.of({"a": (1, 2, 3)})
    fit = Scores.fit(coding, [{"a": 1}, {"a": 1}, {"a": 2}, {"a": 2}], [0.0, 0.01, 0.5, 0.51])
    (low, sure), (high, _), (_, unsure) = fit.of([{"a": 1}, {"a": 2}, {"a": 3}])
    assert low < 0.1 and high > 0.4 and unsure > 2 * sure


def test_normal_figures() -> None:
    assert below(0.0, 0.0, 1.0) == pytest.approx(0.5) and below(1.96, 0.0, 1.0) == pytest.approx(0.975, abs=1e-3)
    assert expected_gain(0.0, 0.0, 1.0) == pytest.approx(0.3989, abs=1e-4)
    assert expected_gain(0.0, -2.0, 1e-9) == pytest.approx(2.0) and expected_gain(0.0, 9.0, 1.0) < 1e-9


def test_it_chooses_what_is_new_and_has_no_problem() -> None:
    view = trials(drawn(20, 5))
    known, fresh = view[0].proposed.choices, drawn(1, 77)[0]
    bad = {**fresh, "BLOCK": next(b for b in (64, 128) if b != fresh["BLOCK"])}
    told = EngineScreener(RUGGED, lambda program: "no" if program.key == write(bad).key else "")

    def made(choices: dict[str, Any]) -> Proposal:
        return Proposal(program=write(choices), choices=choices)

    n, chosen, _ = told.choose(ask(view), [known, bad, fresh], made)
    assert n == 2 and chosen.choices == fresh
    n, chosen, _ = told.choose(ask(view), [known, bad], made)
    assert chosen.choices == known
    _, chosen, prediction = told.choose(ask(view), [bad], made)
    assert chosen.choices == bad and prediction.why == "no" and prediction.passes < 0.05  # type: ignore[operator]

    def broken(choices: dict[str, Any]) -> Proposal:
        raise ValueError("cannot be written")

    with pytest.raises(ValueError, match="cannot be written"):
        told.choose(ask(view), [bad], broken)


def test_problems_are_read_from_the_text() -> None:
    assert static_problem(Program(text=GOOD_PROGRAM), ("gfx942", "cpu")) == ""
    assert "capital letter" in static_problem(Program(text="x = 1"), ("gfx942",))
    greedy = Path("src/hipwright/audit/corpus/program/broken/lds_limit.py").read_text()
    assert "lds" in static_problem(Program(text=greedy), ("gfx942",)).lower()


@pytest.mark.parametrize(
    ("text", "compiles", "passes"),
    [
        ('{"compile": 0.9, "plausible": 0.5}', 0.9, 0.45),
        ('Sure!\n```json\n{"plausible": 0.5,\n "compile": 1}\n```\nHope it helps', 1.0, 0.5),
        ("compile: 80%\nplausible: 50 %", 0.8, 0.4),
        ('I first thought {"compile": 0.1, "plausible": 0.1}. Better: {"compile": 0.9, "plausible": 1.0}', 0.9, 0.9),
        ("**compile**: 0.7, **plausible**: .5", 0.7, 0.35),
        ('{"compiles": true, "plausible": "no"}', 1.0, 0.0),
    ],
)
def test_answers_are_read_leniently(text: str, compiles: float, passes: float) -> None:
    read = read_prediction(text)
    assert read is not None
    assert (read.compiles, read.passes) == pytest.approx((compiles, passes))


@pytest.mark.parametrize("text", ["", "I cannot say.", '{"compile": 0.9}', "plausible: high, compile: low"])
def test_answers_that_say_nothing_are_no_prediction(text: str) -> None:
    assert read_prediction(text) is None


def test_at_most_half_of_a_round_is_screened_out_and_never_the_last() -> None:
    poor = {n: Prediction("llm", 0.1, 0.01 * n) for n in range(1, 5)}
    assert screened_out(poor, written=4, round_size=4) == [1, 2]
    assert screened_out(poor, written=4, round_size=8) == [1, 2, 3]
    assert screened_out({1: poor[1]}, written=1, round_size=4) == []
    assert screened_out({1: Prediction("llm", 0.9, 0.8)}, written=4, round_size=4) == []


def test_a_models_text_is_judged_by_how_its_like_fared() -> None:
    view = SearchView(0, 9)
    draft = Proposal(program=Program(text=GOOD_PROGRAM))
    fair = prediction_from_rates(draft, view, "")
    assert 0.4 < fair.passes < fair.compiles  # type: ignore[operator]
    assert screened_out({0: fair, 1: prediction_from_rates(draft, view, "no kernel")}, 2, 4) == [1]


# ---------------------------------------------------------------- calibration


def store(archive: Archive, told: list[tuple[dict[str, Any] | None, Any, str | None]]) -> None:
    """Stores proposals with screener notes and outcomes."""
    run = new_run(TASK, ("gfx942",), budget=8, seed=1)
    archive.begin_run(run, {"task_name": TASK.name}, [TASK])
    entries = []
    for number, (notes, status, fault) in enumerate(told):
        expansion = Expansion(number=number, operator="mutate", parents=("p0",) if number else ())
        proposed = Proposed(expansion=expansion, round=0, program=f"p{number}", notes={"screener": notes})
        score = 10.0 - number if status == "pass" else None
        kind = "estimate" if status == "pass" else "none"
        e = Evaluation(task="t", program=f"p{number}", status=status, fault=fault, score=score, score_kind=kind)  # type: ignore[arg-type]
        entries += [LogEntry("proposed", number, proposed.to_dict())]
        entries += [LogEntry("evaluated", number, Evaluated(evaluation=e).to_dict())]
    archive.append_all(run.id, entries)


def test_calibration_is_what_a_hand_computes(tmp_path: Path) -> None:
    engine = {"author": "engine", "compiles": 1.0}
    told = [
        ({**engine, "passes": 0.9}, "pass", None),
        ({**engine, "passes": 0.7, "better": 0.9}, "pass", None),
        ({**engine, "passes": 0.2, "better": 0.1}, "wrong_value", "candidate"),
        ({**engine, "passes": 0.4, "better": 0.3}, "compile_error", "candidate"),
        ({**engine, "passes": 0.0}, "unscorable", "device"),
        ({"author": "llm", "compiles": 0.5, "passes": 0.5}, "pass", None),
    ]
    with Archive(tmp_path) as archive:
        store(archive, told)
        found = calibration(archive, "engine")
        assert calibration(archive).events["passes"].predictions == 5
    assert found.runs == 1 and set(found.events) == {"compiles", "passes", "better"}
    passes = found.events["passes"]
    assert passes.predictions == 4
    assert passes.brier == pytest.approx((0.1**2 + 0.3**2 + 0.2**2 + 0.4**2) / 4)
    assert passes.base_brier == pytest.approx(0.25) and passes.auc == 1.0
    assert [(b.low, b.n, b.observed) for b in passes.bins] == [
        (0.2, 1, 0.0),
        (0.4, 1, 0.0),
        (0.6, 1, 1.0),
        (0.8, 1, 1.0),
    ]
    assert all(b.interval[0] <= b.observed <= b.interval[1] for b in passes.bins)
    better = found.events["better"]
    assert (better.predictions, better.auc) == (3, 1.0)
    assert found.events["compiles"].brier == pytest.approx(0.25)


def test_evaluations_are_read_once_and_only_of_runs_with_predictions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Archive(tmp_path) as archive:
        for told in ([({"author": "llm", "passes": 0.5}, "pass", None)], [(None, "pass", None)]):
            store(archive, told)
        read, rows = [], archive.database.event_rows
        monkeypatch.setattr(archive.database, "event_rows", lambda *a, **k: read.append(k["kinds"]) or rows(*a, **k))
        found = calibrations(archive, ("engine", "llm"))
    assert [name for name, one in found.items() if one.events] == ["llm"] and found["llm"].runs == 1
    assert read.count(("evaluated",)) == 1 and read.count(("run_started", "proposed")) == 2


def test_the_area_under_the_curve_is_the_share_of_pairs_in_order() -> None:
    rng = random.Random(0)
    pairs = [(rng.randrange(8) / 8, rng.random() < 0.4) for _ in range(200)]
    yes, no = ([p for p, happened in pairs if happened is which] for which in (True, False))
    wins = sum((y > x) + 0.5 * (y == x) for y in yes for x in no)
    assert _auc(Counter(pairs)) == wins / (len(yes) * len(no))
    assert _auc(Counter([(0.5, True), (0.7, True)])) is None


def test_predictions_of_real_runs_are_better_than_the_base_rate(tmp_path: Path) -> None:
    """On the landscape, predictions that a child beats its parent are better than the base rate."""
    with Archive(tmp_path) as archive:
        for seed in range(4):
            author = EngineAuthor(EngineSource(SPACE, write), {}, static_check=lambda program: "")
            begin(archive, Judge(), budget=32, seed=seed, source=author)
        better = calibration(archive).events["better"]
    assert better.predictions > 40
    assert better.brier < better.base_brier and (better.auc or 0) > 0.65
