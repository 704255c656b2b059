"""The mechanism of each policy that learns: what evidence changes in what it selects next."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from landscape import SPACE, Judge, begin
from policy_histories import history

from hipwright.agents.learned import learned_setting
from hipwright.agents.optimizer import policy_text
from hipwright.archive import Archive, Counted, Proposed
from hipwright.errors import BadInput
from hipwright.records import Decision, Estimate, Evaluation, Expansion, TargetResult
from hipwright.search import SearchView, Trial, policy
from hipwright.search.moves import EVERY_MOVE, MOVES
from hipwright.search.operators import operator
from hipwright.search.policies import (
    embedding_net,
    feature_search,
    gradient_elites,
    learned_planner,
    schedule_evolution,
    value_memory,
    world_model,
)
from hipwright.search.policies.optimisers.known_space import known_space
from hipwright.search.stop import done


def trial(
    number: int,
    time: float | None,
    choices: dict[str, Any] | None = None,
    parent: Trial | None = None,
    operator: str = "mutate",
    status: str = "wrong_value",
    features: dict[str, float] | None = None,
    **action: Any,
) -> Trial:
    """A trial with an estimate of `time` microseconds; a failed one without."""
    key = f"{number:020d}"
    parents = (parent.proposed.program,) if parent else ()
    made = Proposed(
        expansion=Expansion(number=number, operator=operator, parents=parents, action=action),
        round=number,
        program=key,
        choices=choices or {},
    )
    passed = time is not None
    evaluation = Evaluation(
        task="t",
        program=key,
        status="pass" if passed else status,  # type: ignore[arg-type]
        fault=None if passed else "candidate",
        score=time,
        score_kind="estimate" if passed else "none",
        features=features or {},
    )
    return Trial(made, evaluation, Decision(number=number, program=key, kept=passed, best=passed))


def view(*trials: Trial, limit: str = "", **settings: Any) -> SearchView:
    counted = {
        t.proposed.program: Counted(program=t.proposed.program, round=0, source="ncu", limit=limit) for t in trials
    }
    return SearchView(0, 60, trials, settings=settings, counted=counted if limit else {})


# ---------------------------------------------------------------- world model


def test_the_world_model_begins_with_the_limit_s_first_move() -> None:
    for limit, moves in MOVES.items():
        (chosen,) = policy("world_model").select(view(trial(0, 10.0), limit=limit), 1, random.Random(0))
        assert chosen.action["move"] == moves[0].name


def test_the_world_model_gives_up_what_never_gained() -> None:
    base, first = trial(0, 10.0), MOVES["memory"][0].name
    failures = [trial(n, 11.0, parent=base, move=first) for n in range(1, 4)]
    seen = view(base, *failures, limit="memory")
    assert world_model.observed(seen).predicted("memory", first) < world_model.prior("memory", first) / 2
    chosen = policy("world_model").select(seen, 4, random.Random(0))
    assert not any(e.parents == (base.proposed.program,) and e.action["move"] == first for e in chosen)


def test_the_world_model_carries_a_gain_to_another_limit_by_half() -> None:
    base = trial(0, 10.0)
    gained = trial(1, 5.0, parent=base, move="shuffles")
    model = world_model.observed(view(base, gained, limit="memory"))
    assert model.predicted("memory", "shuffles") > model.predicted("tail", "shuffles") > world_model.OTHER


# ---------------------------------------------------------------- value memory


def test_values_follow_their_stages_rewards() -> None:
    base = trial(0, 10.0, {"VEC": 1, "BLOCK": 64}, operator="random")
    failed = trial(1, None, {"VEC": 8, "BLOCK": 64}, operator="random")
    faster = trial(2, 5.0, {"VEC": 4, "BLOCK": 64}, base)
    slower = trial(3, 20.0, {"VEC": 1, "BLOCK": 128}, base)
    values = value_memory.learned(view(base, failed, faster, slower))
    assert values["draft"]["VEC=8"] == pytest.approx(-0.3) and values["draft"]["VEC=1"] == pytest.approx(0.3)
    assert values["refine"]["VEC=4"] == pytest.approx(0.3 * 0.6)  # tanh(ln 2) = 0.6
    assert values["refine"]["BLOCK=128"] == pytest.approx(-0.3 * 0.6)
    assert "BLOCK=64" not in values["refine"], "only what changed has a share"


def test_retrieval_prefers_high_values() -> None:
    base = trial(0, 10.0, {"VEC": 1, "BLOCK": 64})
    others = [trial(n, 10.0, {"VEC": 1, "BLOCK": 64}) for n in (1, 2)]
    taught = {"values": {"refine": {"VEC=4": 0.9, "VEC=2": -0.9, "BLOCK=64": 0.9}, "draft": {}}}
    seen = view(base, *others, learned=taught)
    chosen = [e for seed in range(40) for e in policy("value_memory").select(seen, 4, random.Random(seed))]
    drawn = [e.action["choices"] for e in chosen if "choices" in e.action and e.action["stage"] == "refine"]
    assert len(drawn) > 60
    assert sum(d == {"VEC": 4} for d in drawn) > 0.95 * len(drawn), "BLOCK = 64 changes nothing"


def test_values_are_shared_across_tasks_by_the_archive(archive: Archive) -> None:
    assert learned_setting(archive, "value_memory") == {}
    begin(archive, policy="value_memory", budget=40)
    taught = learned_setting(archive, "value_memory")["learned"]["values"]
    assert taught["refine"] and taught["draft"]
    assert learned_setting(archive, "islands") == {}
    again = begin(
        archive, Judge(mark="judge-2"), policy="value_memory", budget=12, settings={"learned": {"values": taught}}
    )
    assert again.evaluation is not None


# ---------------------------------------------------------------- embeddings and summary


def test_like_programs_share_a_ball_and_unlike_ones_do_not() -> None:
    same = {f"K{n}": 1 for n in range(12)}
    near, far = {**same, "K0": 2}, {f"K{n}": 2 for n in range(12)}
    balls = embedding_net.net(view(trial(0, 9.0, same), trial(1, 8.0, near), trial(2, 7.0, far)))
    assert [len(ball.members) for ball in balls] == [2, 1]


def test_the_summary_names_what_fast_programs_share() -> None:
    slow = [trial(n, 20.0 + n, {"VEC": 1, "BLOCK": 64}) for n in range(2)]
    fast = [trial(n, 10.0 + n, {"VEC": 4, "BLOCK": 64}) for n in range(2, 4)]
    found = embedding_net.summary(view(*slow, *fast))
    assert set(found) == {"VEC"} and found["VEC"][0] == 4 and 1.6 < found["VEC"][1] < 2.1
    chosen = policy("embedding_net").select(view(*slow, *fast), 6, random.Random(1))
    assert all("VEC = 4" in e.action["summary"] for e in chosen)
    assert "VEC = 4" in policy_text(chosen[0].action)


# ---------------------------------------------------------------- genomes


def test_the_genome_whose_children_gain_writes_more() -> None:
    def genome(number: int, operator: str) -> dict[str, Any]:
        weights = {name: float(name == operator) for name in schedule_evolution.OPERATORS}
        return {"number": number, "weights": weights, "guided": 0.0, "guidance": []}

    base = trial(0, 10.0)
    good = [trial(n, 5.0, parent=base, genome=genome(1, "turn")) for n in range(1, 7)]
    bad = [trial(n, 12.0, parent=base, genome=genome(2, "neighbour")) for n in range(7, 13)]
    seen = view(base, *good, *bad, genomes=3)
    fit = {one.number: one.fitness for one in schedule_evolution.population(seen)}
    assert fit[1] > 0.5 > 0.1 > fit[2]
    written = [
        e.action["genome"]["number"]
        for s in range(20)
        for e in policy("schedule_evolution").select(seen, 2, random.Random(s))
    ]
    assert written.count(1) > written.count(2)


def test_a_genome_s_mutation_changes_schedule_and_guidance() -> None:
    (first,) = schedule_evolution.population(view(trial(0, 10.0)))
    child = schedule_evolution.mutated(first, 1, random.Random(3))
    assert child.weights != first.weights and len(child.guidance) == 1 and 0 < child.guided <= 0.9
    text = policy_text({"genome": child.action()})
    assert EVERY_MOVE[child.guidance[0]].what in text


# ---------------------------------------------------------------- gradient


def test_the_hint_follows_the_gradient() -> None:
    places = [(0.1, 20.0), (0.3, 16.0), (0.5, 12.0), (0.7, 10.0), (0.9, 8.0)]
    trials = [trial(n, t, features={"memory_level": x, "compute_level": 0.5}) for n, (x, t) in enumerate(places)]
    slopes = gradient_elites.gradient(trials)
    assert slopes[0] < -0.3 and abs(slopes[1]) < 1e-6
    assert gradient_elites.hint(trials[0], slopes) == ("memory_level", True)
    chosen = [e for s in range(20) for e in policy("gradient_elites").select(view(*trials), 4, random.Random(s))]
    hinted = {e.action["move"] for e in chosen if "axis" in e.action}
    assert hinted == {"wider accesses", "staging"}
    assert {e.operator for e in chosen} >= {"mutate", "turn"}, "template parameters are tuned too"


def test_no_gradient_is_fitted_to_few_programs() -> None:
    assert gradient_elites.gradient([trial(0, 1.0), trial(1, 2.0)]) == (0.0, 0.0, 0.0)


# ---------------------------------------------------------------- universal operator


def test_the_universal_operator_keeps_what_its_parents_share() -> None:
    base = {"BLOCK": 64, "UNROLL": 1, "vector": 1, "fuse": False, "order": "rows"}
    other = {**base, "vector": 4, "fuse": True}
    made = [operator("universal")(SPACE, [base, other], random.Random(s)) for s in range(300)]
    inherited = sum(one["vector"] == 4 for one in made)
    alone = sum(operator("universal")(SPACE, [base], random.Random(s))["vector"] == 4 for s in range(300))
    assert inherited > 2 * alone
    assert all(1 <= sum(one[k] != base[k] for k in base) <= 3 for one in made if one != base)


@pytest.mark.parametrize("name", ["universal_greedy", "universal_uct", "universal_evolution"])
def test_one_operator_writes_every_child(name: str) -> None:
    seen = history(name, 3, 6)
    assert {t.proposed.expansion.operator for t in seen.trials if t.proposed.expansion.parents} == {"universal"}
    bases = {t.proposed.expansion.parents[0] for t in seen.trials if t.proposed.expansion.parents}
    assert (len(bases) > 3) or name == "universal_greedy"


# ---------------------------------------------------------------- learned planner


def test_the_planner_learns_which_plan_pays_against_which_limit() -> None:
    rows = []
    for _ in range(30):
        rows.append((learned_planner.features("wider accesses", "memory", 0), True))
        rows.append((learned_planner.features("wider accesses", "issue", 0), False))
        rows.append((learned_planner.features("mutate", "memory", 0), False))
    weights = learned_planner.train(rows, {})

    def chance(plan: str, limit: str) -> float:
        return learned_planner.chance(weights, learned_planner.features(plan, limit, 0))

    assert chance("wider accesses", "memory") > 0.8 > 0.3 > chance("wider accesses", "issue")
    assert chance("mutate", "memory") < 0.3
    seen = view(trial(0, 10.0), limit="memory", learned={"planner": weights})
    plans = [
        e.action.get("move") for s in range(50) for e in policy("learned_planner").select(seen, 4, random.Random(s))
    ]
    assert plans.count("wider accesses") > 3 * plans.count("padding")


def test_the_planner_is_trained_on_the_archive(archive: Archive) -> None:
    begin(archive, policy="learned_planner", budget=40)
    taught = learned_setting(archive, "learned_planner")["learned"]
    assert taught["rows"] > 10 and len(taught["planner"]) > 5
    assert json.loads(json.dumps(taught)) == taught


# ---------------------------------------------------------------- feature search


def test_features_that_do_not_compile_or_pass_lower_the_worth() -> None:
    seen = view(
        trial(0, 10.0, {"VEC": 1, "fuse": False}),
        trial(1, None, {"VEC": 8, "fuse": False}, status="compile_error"),
        trial(2, None, {"VEC": 4, "fuse": False}, status="wrong_value"),
        trial(3, 6.0, {"VEC": 2, "fuse": True}),
    )
    tallies = feature_search.tally(seen)
    worth = {v: feature_search.worth({"VEC": v, "fuse": True}, tallies, 2.0) for v in (1, 2, 4, 8)}
    assert worth[2] > worth[1] > max(worth[4], worth[8])
    assert tallies["VEC", "8"].chances()[0] < tallies["VEC", "4"].chances()[0]
    (chosen,) = policy("feature_search").select(seen, 1, random.Random(0))
    base = next(t for t in seen.trials if t.proposed.program == chosen.parents[0])
    made = {**base.proposed.choices, **chosen.action["choices"]}
    assert made in ({"VEC": 1, "fuse": True}, {"VEC": 2, "fuse": False}), "an untried candidate of what passed"


# ---------------------------------------------------------------- stop at the roofline


def test_a_run_ends_near_its_roofline() -> None:
    near = trial(0, 10.0)
    assert near.evaluation is not None
    for share, reason in ((0.93, "roofline"), (0.7, None)):
        made = Estimate(target="gfx942", microseconds=10.0, bound="memory", roofline_fraction=share)
        evaluation = Evaluation.from_dict(
            {**near.evaluation.to_dict(), "targets": {"gfx942": TargetResult(target="gfx942", estimate=made).to_dict()}}
        )
        seen = SearchView(0, 60, (Trial(near.proposed, evaluation, near.decision),), settings={"roofline": 0.9})
        assert done(seen) == reason
        assert done(SearchView(0, 60, seen.trials)) is None, "only where it is asked for"


def test_estimates_without_a_roofline_never_stop_a_run(archive: Archive) -> None:
    assert begin(archive, budget=8, settings={"roofline": 0.9}).reason == "budget"


def test_an_optimiser_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hipwright.search.policies.optimisers.known_space.find_spec", lambda _: None)
    with pytest.raises(BadInput, match="needs the package optuna") as caught:
        policy("optuna_tpe")
    assert "hipwright[arms]" in str(caught.value.hint)


@pytest.mark.parametrize("name", ["optuna_tpe", "optuna_nsga2", "pyribs"])
def test_an_optimiser_asks_for_values_that_the_run_has_seen(name: str) -> None:
    seen = history("best_of_n", 2, 9)
    space = known_space(seen)
    assert space is not None and set(space.values) == set(SPACE)
    assert space.values["BLOCK"] == tuple(sorted(space.values["BLOCK"])) and len(space.values["BLOCK"]) > 2
    asked = policy(name).select(seen, 6, random.Random(4))
    own = [one for one in asked if one.operator == "default"]
    assert len(own) >= 2
    for one in own:
        assert one.parents == (space.base.proposed.program,)
        assert all(value in space.values[key] for key, value in one.action["choices"].items())
