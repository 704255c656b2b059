"""The screener ranks only while its predictions of a run's own events beat the base rate."""

from __future__ import annotations

from typing import Any

import pytest

from hipwright.agents.screening.screener import EngineScreener
from hipwright.agents.screening.skill import LEAST, skill
from hipwright.archive import Proposed
from hipwright.records import Evaluation, Expansion, Program
from hipwright.search import Proposal, ProposalRequest, SearchView, Trial


def trial(number: int, passes: float, happened: bool, fault: Any = None) -> Trial:
    notes = {"screener": {"author": "engine", "passes": passes}}
    key = f"p{number}"
    made = Proposed(expansion=Expansion(number=number, operator="random"), round=0, program=key, notes=notes)
    status: Any = "pass" if happened else "wrong_value"
    return Trial(
        made, Evaluation(task="t", program=key, status=status, fault=fault or (None if happened else "candidate"))
    )


def view(good: float, n: int = 20) -> SearchView:
    """Every second program passes; `good` is the probability that was predicted for those, 1 - good for the others."""
    return SearchView(0, 40, tuple(trial(i, good if i % 2 else 1 - good, bool(i % 2)) for i in range(n)))


def test_skill_is_measured_against_the_base_rate() -> None:
    able, unable = skill(view(0.9)), skill(view(0.2))
    assert able.shown and not unable.shown
    assert able.predictions == unable.predictions == 20
    assert able.brier == pytest.approx((0.01, 0.25))
    assert not skill(view(0.9, LEAST - 1)).shown, "too few events to trust"
    assert skill(SearchView(0, 40)).brier is None
    alike = SearchView(0, 40, tuple(trial(i, 0.99, True) for i in range(20)))
    assert skill(alike).predictions == 0, "where all pass, nothing is told apart"


def test_faults_of_the_machine_are_no_events() -> None:
    broken = SearchView(0, 40, tuple(trial(i, 0.9, False, "device") for i in range(20)))
    assert skill(broken).predictions == 0


@pytest.mark.parametrize(("good", "chosen"), [(0.9, 1), (0.2, 0)])
def test_draws_are_ranked_only_with_skill(monkeypatch: pytest.MonkeyPatch, good: float, chosen: int) -> None:
    from hipwright.agents.screening.screener import Prediction

    screener = EngineScreener({}, lambda program: "")
    worth = {1: 0.1, 2: 0.9}
    monkeypatch.setattr(
        screener, "predict", lambda ask, draws: [Prediction("engine", passes=worth[d["VEC"]]) for d in draws]
    )
    ask = ProposalRequest(Expansion(number=20, operator="random"), (), view(good))

    def write(choices: dict[str, Any]) -> Proposal:
        return Proposal(program=Program(text=str(choices)), choices=choices)

    assert screener.choose(ask, [{"VEC": 1}, {"VEC": 2}], write)[0] == chosen
