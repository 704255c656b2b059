"""What every policy must do. `PolicyContract` runs any registered one through made-up histories."""

from __future__ import annotations

import random
from typing import Any

import msgspec
from landscape import Judge, source

from hipwright.archive import Proposed
from hipwright.records import Decision, Evaluation, Expansion, Program
from hipwright.search import Proposal, ProposalRequest, SearchView, Trial, policy


def judged(view: SearchView, expansion: Expansion, round: int, evaluation: Evaluation | None, name: str) -> Trial:
    """A trial of `expansion`, decided by the policy called `name`."""
    program = evaluation.program if evaluation else ""
    trial = Trial(Proposed(expansion=expansion, round=round, program=program), evaluation)
    if evaluation is None:
        decision = Decision(number=trial.number, program="", kept=False, reason="no program")
    else:
        decision = policy(name).accept(view, trial, evaluation)
    return Trial(trial.proposed, evaluation, decision)


def history(name: str, seed: int, rounds: int, fail: float = 0.2, **settings: Any) -> SearchView:
    """Rounds of four under the policy, some of them failing."""
    rng, judge, writer = random.Random(seed), Judge(), source()
    view = SearchView(seed, 4 * rounds, settings=settings)
    choices: dict[str, dict[str, Any]] = {}
    for current in range(rounds):
        trials: list[Trial] = []
        for expansion in policy(name).select(view, 4, random.Random(f"{seed}/{current}")):
            parents = [Proposal(program=Program(text=""), choices=choices[key]) for key in expansion.parents]
            made = writer.propose(ProposalRequest(expansion, tuple(parents), view), rng)
            choices[made.program.key] = made.choices
            evaluation = None if rng.random() < fail / 2 else judge.evaluate(made.program)
            if evaluation and rng.random() < fail:
                wrong = {**evaluation.to_dict(), "status": "timeout", "score": None, "score_kind": "none"}
                evaluation = Evaluation.from_dict(wrong)
            trials.append(judged(view.with_trials(trials), expansion, current, evaluation, name))
        view = view.with_trials(trials)
    return view


MODEL_OPERATORS = ("translate", "repair", "improve", "plan")


def with_models(view: SearchView) -> SearchView:
    """The view as if two of three trials had been a model's: its operators, no choices, what the action holds."""
    trials = []
    for trial in view.trials:
        if trial.number % 3:
            operator = MODEL_OPERATORS[trial.number % 4]
            parents = trial.proposed.expansion.parents[:1] if operator in ("improve", "plan") else ()
            action = {"failed": "0" * 20, "tries": 1} if operator == "repair" else trial.proposed.expansion.action
            expansion = msgspec.structs.replace(
                trial.proposed.expansion, operator=operator, parents=parents, action=action
            )
            proposed = msgspec.structs.replace(
                trial.proposed, expansion=expansion, choices={}, notes={"mind": "llm", "model": "openai:any"}
            )
            trial = Trial(proposed, trial.evaluation, trial.decision)
        trials.append(trial)
    return SearchView(view.seed, view.budget, tuple(trials), view.initial, view.settings)


class PolicyContract:
    """The subclass names the policy."""

    name: str

    def views(self) -> list[SearchView]:
        """An empty one, ones where nothing or little passed, and long ones."""
        return [
            SearchView(3, 40),
            history(self.name, 1, 2, fail=1.0),
            *(history(self.name, seed, rounds) for seed in range(4) for rounds in (1, 3, 9)),
        ]

    def test_selects_exactly_k_numbered_expansions(self) -> None:
        for view in self.views():
            for k in (1, 4, 7):
                expansions = policy(self.name).select(view, k, random.Random(5))
                assert [e.number for e in expansions] == list(range(view.next_number, view.next_number + k))
                assert all(e.seed == view.seed for e in expansions)

    def test_starts_with_the_sources_own_actions(self) -> None:
        view = SearchView(1, 20, initial=({"choices": {"BLOCK": 64}}, {"choices": {"BLOCK": 128}}))
        first = policy(self.name).select(view, 4, random.Random(0))
        assert [e.operator for e in first[:2]] == ["default", "default"]
        assert [e.action["choices"] for e in first[:2]] == [{"BLOCK": 64}, {"BLOCK": 128}]

    def test_parents_are_verified_programs(self) -> None:
        for view in self.views():
            good = {t.proposed.program for t in view.verified}
            for expansion in policy(self.name).select(view, 20, random.Random(8)):
                assert set(expansion.parents) <= good

    def test_is_a_pure_function_of_view_and_random_numbers(self) -> None:
        for view in self.views():
            twin = SearchView(view.seed, view.budget, view.trials, view.initial, view.settings)
            one = policy(self.name).select(view, 6, random.Random(2))
            assert policy(self.name).select(twin, 6, random.Random(2)) == one
            for trial in view.trials:
                if trial.evaluation is not None:
                    past = SearchView(view.seed, view.budget, view.trials[: trial.number], view.initial, view.settings)
                    undecided = Trial(trial.proposed, trial.evaluation)
                    assert policy(self.name).accept(past, undecided, trial.evaluation) == trial.decision

    def test_lives_with_programs_that_a_model_wrote(self) -> None:
        for view in self.views():
            theirs = with_models(view)
            expansions = policy(self.name).select(theirs, 9, random.Random(6))
            assert [e.number for e in expansions] == list(range(view.next_number, view.next_number + 9))
            assert {p for e in expansions for p in e.parents} <= {t.proposed.program for t in view.verified}
            for trial in theirs.trials:
                if trial.evaluation is not None:
                    past = SearchView(
                        view.seed, view.budget, theirs.trials[: trial.number], view.initial, view.settings
                    )
                    decision = policy(self.name).accept(past, Trial(trial.proposed, trial.evaluation), trial.evaluation)
                    assert trial.passed or not (decision.kept or decision.best)

    def test_keeps_only_what_passed_and_says_why(self) -> None:
        for view in self.views():
            for trial in view.trials:
                assert trial.decision is not None and trial.decision.reason
                if trial.decision.kept or trial.decision.best:
                    assert trial.passed

    def test_best_is_never_slower_than_the_one_before(self) -> None:
        for view in self.views():
            bests = [t.evaluation.score for t in view.trials if t.decision and t.decision.best and t.evaluation]
            assert bests == sorted(bests, reverse=True)  # type: ignore[type-var]
            scores = [t.evaluation.score for t in view.verified if t.evaluation]
            assert not scores or bests[-1] <= min(scores) / 0.98  # type: ignore[operator, type-var]
