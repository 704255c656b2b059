"""The policies on a landscape with a known best, and the grid and migration of the islands."""

from __future__ import annotations

import random
import statistics
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from landscape import BEST, SPACE, Judge, begin, microseconds
from policy_histories import history, judged

from hipwright.archive import Archive
from hipwright.records import Evaluation, Expansion
from hipwright.search import OPERATORS, SearchView, policy
from hipwright.search.descriptor import AXES, coords
from hipwright.search.operators import complete, operator
from hipwright.search.policies.islands import rebuild


def final_scores(folder: Path, name: str, budget: int, seeds: range) -> list[float]:
    scores = []
    for seed in seeds:
        with Archive(folder / f"{name}{budget}-{seed}") as archive:
            result = begin(archive, policy=name, budget=budget, seed=seed)
            assert result.evaluation is not None and result.evaluation.score is not None
            scores.append(result.evaluation.score)
    return scores


def test_islands_beat_best_of_n_at_equal_budget(tmp_path: Path) -> None:
    islands = final_scores(tmp_path, "islands", 48, range(6))
    sampled = final_scores(tmp_path, "best_of_n", 48, range(6))
    assert statistics.mean(islands) < statistics.mean(sampled)
    assert statistics.median(islands) <= BEST * 1.02


def test_best_of_n_samples_independently_of_what_it_found() -> None:
    view = history("best_of_n", 3, 5)
    expansions = policy("best_of_n").select(view, 4, random.Random(0))
    assert all(e.operator == "random" and not e.parents for e in expansions)


def test_strategies_are_drawn_in_the_documented_shares() -> None:
    view = history("islands", 2, 12, islands=2)
    counts = dict.fromkeys(("explore", "exploit", "random"), 0)
    for expansion in policy("islands").select(view, 3000, random.Random(4)):
        counts[expansion.action["strategy"]] += 1
    shares = {name: count / 3000 for name, count in counts.items()}
    assert shares == pytest.approx({"explore": 0.2, "exploit": 0.7, "random": 0.1}, abs=0.03)


def evaluation(score: float, cell: tuple[float, float, float] = (0, 0, 0), program: str = "p") -> Evaluation:
    features = dict(zip(AXES, cell, strict=True))
    return Evaluation(
        task="t", program=f"{program}{score}", status="pass", score=score, score_kind="estimate", features=features
    )


def told(view: SearchView, round: int, island: int, result: Evaluation) -> SearchView:
    expansion = Expansion(number=view.next_number, operator="random", action={"island": island})
    return view.with_trials([judged(view, expansion, round, result, "islands")])


def test_a_cell_keeps_its_fastest_and_only_beyond_the_noise_band() -> None:
    view = SearchView(0, 40, settings={"islands": 1})
    for number, score in enumerate((100.0, 99.0, 97.0, 120.0)):
        view = told(view, number, 0, evaluation(score))
    assert [t.decision.kept for t in view.trials if t.decision] == [True, False, True, False]
    assert "within the 2% band" in view.trials[1].decision.reason  # type: ignore[union-attr]
    assert [t.number for t in rebuild(view)[0].values()] == [2]


def test_a_slow_program_that_opens_a_cell_is_kept_but_not_the_best() -> None:
    view = told(SearchView(0, 40, settings={"islands": 1}), 0, 0, evaluation(10.0))
    view = told(view, 1, 0, evaluation(50.0, (1.0, 0.0, 0.0)))
    decision = view.trials[1].decision
    assert decision is not None and decision.kept and not decision.best and decision.reason.startswith("opens cell")
    assert set(rebuild(view)[0]) == {(0, 0, 0), (3, 0, 0)}


def test_the_leader_migrates_to_the_next_island_only_when_due() -> None:
    view = SearchView(0, 40, settings={"islands": 3, "migrate": 2})
    view = told(view, 0, 0, evaluation(10.0))
    view = told(view, 1, 1, evaluation(30.0, (1.0, 1.0, 1.0)))
    assert [len(grid) for grid in rebuild(view)] == [1, 1, 0]
    view = told(view, 2, 2, evaluation(40.0, (0.5, 0.5, 0.5)))
    grids = rebuild(view)
    assert {t.number for t in grids[1].values()} == {0, 1}  # 0's leader arrived
    assert {t.number for t in grids[2].values()} == {1, 2}  # 1's leader as it was before that arrival
    assert {t.number for t in grids[0].values()} == {0}


@given(st.dictionaries(st.sampled_from([*AXES, "other"]), st.floats()))
def test_coordinates_stay_inside_the_grid(features: dict[str, float]) -> None:
    found = coords(Evaluation(task="t", program="p", status="pass", features=features))
    assert len(found) == 3 and all(0 <= level <= 3 for level in found)


@given(st.floats(0, 1), st.floats(0, 1))
def test_coordinates_grow_with_the_feature(a: float, b: float) -> None:
    low, high = (evaluation(1.0, (value, 0.0, 0.0)) for value in sorted((a, b)))
    assert coords(low)[0] <= coords(high)[0]


@given(st.sampled_from(sorted(OPERATORS)), st.integers(), st.integers(0, 2))
def test_operators_stay_inside_the_space(name: str, seed: int, parents: int) -> None:
    rng = random.Random(seed)
    given_parents = [operator("random")(SPACE, [], rng) for _ in range(parents)]
    made = operator(name)(SPACE, given_parents, rng)
    assert set(made) == set(SPACE)
    assert all(made[key] in SPACE[key].options for key in SPACE)
    if parents and name in ("mutate", "neighbour"):
        changed = [key for key in SPACE if made[key] != given_parents[0][key]]
        assert 1 <= len(changed) <= (2 if name == "mutate" else 1)
    if parents == 2 and name == "crossover":
        assert all(made[key] in (given_parents[0][key], given_parents[1][key]) for key in SPACE)


def test_neighbour_moves_one_step() -> None:
    for seed in range(50):
        made = operator("neighbour")(SPACE, [{"BLOCK": 256, "UNROLL": 1}], random.Random(seed))
        start = complete(SPACE, {"BLOCK": 256, "UNROLL": 1})
        (key,) = [key for key in SPACE if made[key] != start[key]]
        options = SPACE[key].options
        assert abs(options.index(made[key]) - options.index(start[key])) == 1


def test_knobs_are_turned_more_often_than_structure() -> None:
    rng, changed = random.Random(1), {"knob": 0, "structure": 0}
    for _ in range(400):
        made, start = operator("neighbour")(SPACE, [{}], rng), complete(SPACE, {})
        for key in SPACE:
            changed[SPACE[key].kind] += made[key] != start[key]
    assert changed["knob"] > 1.8 * changed["structure"] > 0


def test_a_parents_unknown_choices_fall_back_to_the_engines() -> None:
    assert complete(SPACE, {"BLOCK": 99, "gone": 1, "vector": 4})["BLOCK"] == 64
    assert complete(SPACE, {"BLOCK": 99, "gone": 1, "vector": 4})["vector"] == 4


@pytest.mark.parametrize("name", sorted(OPERATORS))
def test_operators_survive_a_space_without_freedom(name: str) -> None:
    fixed = {"only": type(SPACE["BLOCK"])((1,), 1)}
    assert operator(name)(fixed, [{"only": 1}], random.Random(0)) == {"only": 1}
    assert operator(name)({}, [], random.Random(0)) == {}


def test_rebuilding_a_long_history_is_quick() -> None:
    view = history("islands", 5, 60)
    start = time.thread_time()
    rebuild(view)
    assert time.thread_time() - start < 1.0


def test_the_landscape_has_the_best_it_claims() -> None:
    assert microseconds({"BLOCK": 256, "UNROLL": 4, "fuse": True, "vector": 4, "order": "rows"}) == BEST
    assert Judge().fingerprint
