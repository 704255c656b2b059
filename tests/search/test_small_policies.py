"""The specific behaviour of each of the smaller policies."""

from __future__ import annotations

import math
import random
from typing import Any

import msgspec
import pytest
from policy_histories import history, judged

from hipwright.archive import Proposed
from hipwright.records import Evaluation, Expansion, Timing, Versus
from hipwright.records import TargetResult as Target
from hipwright.search import POLICIES, SearchView, Trial, policy
from hipwright.search.descriptor import AXES
from hipwright.search.policies.beam import beam
from hipwright.search.policies.epsilon_heap import net
from hipwright.search.policies.strategy_tree import tally
from hipwright.search.policies.ucb import swaps
from hipwright.search.policies.uct import grow


def estimated(program: str, score: float, cell: tuple[float, float, float] = (0, 0, 0)) -> Evaluation:
    features = dict(zip(AXES, cell, strict=True))
    return Evaluation(task="t", program=program, status="pass", score=score, score_kind="estimate", features=features)


def measured(program: str, low: float, high: float) -> Evaluation:
    """A program timed as `low` to `high` times as fast as eager."""
    versus = Versus(
        baseline="eager", speedup=(low + high) / 2, interval=(low, high), samples_ms=(1.0,), baseline_ms=(1.0,), pairs=1
    )
    timing = Timing(device="d", architecture="a", median_ms=1.0, versus={"eager": versus})
    result = {"cuda": Target(target="cuda", timing=timing)}
    return Evaluation(task="t", program=program, status="pass", score=1.0, score_kind="measured", targets=result)


def told(
    name: str, view: SearchView, result: Evaluation | None, operator: str = "random", *parents: str, **choices: Any
) -> SearchView:
    """Returns the view after one more trial in its own round, decided by the policy."""
    expansion = Expansion(number=view.next_number, operator=operator, parents=parents)
    trial = judged(view, expansion, view.next_round, result, name)
    proposed = msgspec.structs.replace(trial.proposed, choices=choices)
    return view.with_trials([Trial(proposed, trial.evaluation, trial.decision)])


def kept(view: SearchView) -> list[bool]:
    return [trial.decision is not None and trial.decision.kept for trial in view.trials]


def test_a_child_replaces_its_parent_only_when_the_intervals_are_apart() -> None:
    view = told("one_plus_one", SearchView(0, 20), measured("parent", 1.0, 1.1))
    view = told("one_plus_one", view, measured("overlaps", 1.09, 1.30), "mutate", "parent")
    view = told("one_plus_one", view, measured("apart", 1.2, 1.4), "mutate", "parent")
    assert kept(view) == [True, False, True]
    assert "within the interval" in view.trials[1].decision.reason  # type: ignore[union-attr]
    nexts = policy("one_plus_one").select(view, 6, random.Random(0))
    assert {e.parents for e in nexts} == {("apart",)}
    assert {e.operator for e in nexts} == {"mutate", "neighbour"}


def test_one_plus_one_starts_again_when_nothing_new_is_near() -> None:
    view = told("one_plus_one", SearchView(0, 40), estimated("parent", 10.0))
    for _ in range(4):
        view = told("one_plus_one", view, None, "neighbour", "parent")
    assert [e.operator for e in policy("one_plus_one").select(view, 2, random.Random(0))] == ["random", "random"]


def test_the_beam_keeps_the_fastest_and_varies_each_alike() -> None:
    view = SearchView(0, 40, settings={"beam": 2})
    for score in (50.0, 40.0, 45.0, 60.0, 39.9, 20.0):
        view = told("beam", view, estimated(f"p{score}", score))
    assert kept(view) == [True, True, True, False, True, True]  # 39.9 beats the slowest, 45, not the best
    assert [t.proposed.program for t in beam(view)] == ["p20.0", "p39.9"]
    parents = [e.parents[0] for e in policy("beam").select(view, 10, random.Random(1))]
    assert parents.count("p20.0") == parents.count("p39.9") == 5


def test_uct_counts_a_try_in_every_node_above_it() -> None:
    view = told("uct", SearchView(0, 40), estimated("a", 20.0))
    view = told("uct", view, estimated("b", 10.0), "mutate", "a")
    view = told("uct", view, None, "mutate", "b")
    root = grow(view)
    (a,) = root.children
    (b,) = a.children
    assert [(n.visits, n.tries) for n in (root, a, b)] == [(3, 1), (3, 1), (2, 1)]
    assert b.total == 1.0 and a.total == 1.5  # 10 / 10 and 10 / 20; what brought no program counts 0


@pytest.mark.parametrize(("weight", "most"), [(0.02, True), (20.0, False)])
def test_uct_goes_where_the_subtree_pays_unless_it_explores(weight: float, most: bool) -> None:
    view = SearchView(0, 200, settings={"uct_c": weight})
    for number in range(8):
        view = told("uct", view, estimated(f"start{number}", 100.0))
    view = told("uct", view, estimated("good", 10.0), "mutate", "start2")
    for number in range(6):
        view = told("uct", view, estimated(f"child{number}", 10.0 + number), "mutate", "good")
    walks = policy("uct").select(view, 12, random.Random(0))
    below = {"start2", "good", *(f"child{n}" for n in range(6))}
    assert (sum(e.parents[:1] != () and e.parents[0] in below for e in walks) > 6) is most


def test_ucb_pulls_the_arm_that_paid() -> None:
    view = told("ucb", SearchView(0, 400), estimated("start", 1000.0), BLOCK=1)
    for number in range(60):
        operator = ("mutate", "neighbour", "random", "crossover")[number % 4]
        best = view.best
        assert best is not None and best.evaluation is not None and best.evaluation.score is not None
        score = best.evaluation.score * (0.6 if operator == "neighbour" else 1.5)
        parents = () if operator == "random" else (best.proposed.program,)
        view = told("ucb", view, estimated(f"p{number}", score), operator, *parents, BLOCK=1)
    pulled = [e.operator for e in policy("ucb").select(view, 5, random.Random(0))]
    assert pulled.count("neighbour") >= 4


def test_ucb_masks_what_has_nothing_to_work_on() -> None:
    alone = told("ucb", SearchView(0, 40), estimated("only", 10.0), BLOCK=64, fuse=True)
    assert swaps(alone, alone.trials[0]) == {}
    operators = {e.operator for e in policy("ucb").select(alone, 40, random.Random(0))}
    assert operators == {"neighbour", "mutate", "random"}
    both = told("ucb", alone, estimated("other", 20.0), BLOCK=128, fuse=True)
    assert swaps(both, both.trials[0]) == {}  # BLOCK=128 with fuse=True is the other one
    third = told("ucb", both, estimated("third", 30.0), BLOCK=64, fuse=False)
    assert swaps(third, third.trials[1]) == {"fuse": [False]}  # BLOCK=64 with fuse=True is the first trial


def test_a_strategy_is_given_up_after_five_tries_that_did_not_improve() -> None:
    view = told("strategy_tree", SearchView(0, 100), estimated("base", 10.0))
    for number in range(4):
        view = told("strategy_tree", view, estimated(f"slow{number}", 20.0), "neighbour", "base")
    assert tally(view).failed["base", "neighbour"] == 4
    ways = [e.operator for e in policy("strategy_tree").select(view, 7, random.Random(0))]
    assert ways.count("neighbour") == 1 and ways.count("mutate") == 5 and ways[-1] == "random"
    assert kept(view) == [True, False, False, False, False]


def test_the_frontier_is_ordered_by_score_then_difficulty_then_rating() -> None:
    view = told("strategy_tree", SearchView(0, 100), estimated("slow", 30.0))
    view = told("strategy_tree", view, estimated("fast", 10.0), "mutate", "slow")  # mutate has improved once
    chosen = policy("strategy_tree").select(view, 12, random.Random(0))
    assert [e.parents[0] for e in chosen] == ["fast"] * 12
    assert [e.operator for e in chosen] == ["mutate"] * 5 + ["neighbour"] * 5 + ["crossover"] * 2


def test_the_net_has_one_ball_for_programs_that_are_alike() -> None:
    view = told("epsilon_heap", SearchView(0, 40), estimated("a", 10.0, (0.5, 0.5, 0.5)))
    view = told("epsilon_heap", view, estimated("a2", 9.0, (0.55, 0.5, 0.5)), "mutate", "a")
    view = told("epsilon_heap", view, estimated("a3", 9.5, (0.5, 0.55, 0.5)), "mutate", "a")
    view = told("epsilon_heap", view, estimated("far", 90.0, (0.0, 0.0, 0.0)), "mutate", "a")
    assert [[t.proposed.program for t in ball.members] for ball in net(view)] == [["a", "a2", "a3"], ["far"]]
    assert [ball.tries for ball in net(view)] == [3, 0]
    assert kept(view) == [True, True, False, True]
    assert view.trials[3].decision.reason == "opens a ball of the net"  # type: ignore[union-attr]


@pytest.mark.parametrize(("weight", "far"), [(0.0, 0), (50.0, 10)])
def test_the_bonus_brings_the_heap_to_balls_that_were_seldom_tried(weight: float, far: int) -> None:
    view = SearchView(0, 100, settings={"heap_c": weight})
    view = told("epsilon_heap", view, estimated("near", 10.0, (0.9, 0.9, 0.9)))
    view = told("epsilon_heap", view, estimated("far", 20.0, (0.0, 0.0, 0.0)))
    parents = [e.parents[0] for e in policy("epsilon_heap").select(view, 20, random.Random(0))]
    assert parents.count("far") == far
    total, spread = 2, math.log(2.0)
    expected = -math.log(20.0) + weight * math.sqrt(math.log(total + 1)) * spread
    assert net(view)[1].priority(total, spread, weight) == pytest.approx(expected)


@pytest.mark.parametrize("name", POLICIES)
def test_failed_and_repeated_proposals_have_no_time(name: str) -> None:
    view = history(name, 4, 6, fail=0.7)
    assert any(t.evaluation is None for t in view.trials) and any(not t.passed for t in view.trials)
    lost = SearchView(
        view.seed, view.budget, tuple(t for t in view.trials if not t.passed), view.initial, view.settings
    )
    gaps = [
        Trial(Proposed(expansion=t.proposed.expansion, round=t.proposed.round), None, t.decision) for t in lost.trials
    ]
    nothing = SearchView(view.seed, view.budget, tuple(gaps), view.initial, view.settings)
    assert all(e.operator in ("random", "default") for e in policy(name).select(nothing, 5, random.Random(0)))


def swept(gains: dict[str, float], budget: int = 20, **settings: Any) -> SearchView:
    """A view with a base and, for each key, a program that changes it alone and takes 10 us / gain."""
    view = told("pattern", SearchView(0, budget, settings=settings), estimated("base", 10.0), **dict.fromkeys(gains, 0))
    for key, gain in gains.items():
        (move,) = policy("pattern").select(view, 1, random.Random(0))
        assert (move.operator, move.parents) == ("turn", ("base",))
        result = estimated(f"{key} turned", 10.0 / gain)
        trial = judged(view, move, view.next_round, result, "pattern")
        choices = {**dict.fromkeys(gains, 0), key: 1}
        proposed = msgspec.structs.replace(trial.proposed, choices=choices)
        view = view.with_trials([Trial(proposed, trial.evaluation, trial.decision)])
    return view


def barren(view: SearchView, count: int) -> SearchView:
    for _ in range(count):
        (move,) = policy("pattern").select(view, 1, random.Random(0))
        view = view.with_trials([judged(view, move, view.next_round, None, "pattern")])
    return view


def test_a_pattern_joins_what_gained_by_itself() -> None:
    """Combinations are ordered by the product of their gains; losing changes are in none, and no combination is
    repeated.
    """
    view = barren(swept({"a": 1.1, "b": 0.5, "c": 1.3, "d": 1.01}), 4)
    moves = policy("pattern").select(view, 4, random.Random(0))
    assert {move.operator for move in moves} == {"default"} and {move.parents for move in moves} == {("base",)}
    assert [move.action["choices"] for move in moves] == [
        {"c": 1, "a": 1, "d": 1},
        {"c": 1, "a": 1},
        {"c": 1, "d": 1},
        {"a": 1, "d": 1},
    ]
    done = judged(view, moves[0], view.next_round, estimated("joined", 6.9), "pattern")
    after = policy("pattern").select(view.with_trials([done]), 3, random.Random(0))
    assert [move.action["choices"] for move in after] == [{"c": 1, "a": 1}, {"c": 1, "d": 1}, {"a": 1, "d": 1}]


def test_a_pattern_goes_on_around_what_it_found() -> None:
    """A single gain becomes the next base; around a base without gains two choices change at once."""
    (move,) = policy("pattern").select(barren(swept({"a": 1.1, "b": 0.5}), 4), 1, random.Random(0))
    assert (move.operator, move.parents) == ("turn", ("a turned",))
    (move,) = policy("pattern").select(barren(swept({"a": 0.9, "b": 0.5}), 4), 1, random.Random(0))
    assert (move.operator, move.parents) == ("mutate", ("base",))


def test_a_large_space_leaves_some_of_the_budget_for_joins() -> None:
    view = swept({"a": 1.1, "b": 1.2, "c": 0.9, "d": 0.8}, budget=8, sweep=0.5)
    assert policy("pattern").select(view, 1, random.Random(0))[0].action["choices"] == {"a": 1, "b": 1}
