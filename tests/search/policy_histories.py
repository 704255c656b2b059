"""Histories of simulated searches, for tests of policies."""

from __future__ import annotations

import random
from typing import Any

import msgspec
from landscape import Judge, source

from hipwright.archive import Proposed
from hipwright.records import Decision, Evaluation, Expansion, Program
from hipwright.search import Proposal, ProposalRequest, SearchView, Trial, policy
from hipwright.search.policies.llm_share import MODEL_OPERATORS


def judged(
    view: SearchView,
    expansion: Expansion,
    round: int,
    evaluation: Evaluation | None,
    name: str,
    choices: dict[str, Any] | None = None,
) -> Trial:
    """A trial of `expansion`, decided by the policy called `name`."""
    program = evaluation.program if evaluation else ""
    trial = Trial(Proposed(expansion=expansion, round=round, program=program, choices=choices or {}), evaluation)
    if evaluation is None:
        decision = Decision(number=trial.number, program="", kept=False, reason="no program")
    else:
        decision = policy(name).accept(view, trial, evaluation)
    return Trial(trial.proposed, evaluation, decision)


def history(name: str, seed: int, rounds: int, fail: float = 0.2, **settings: Any) -> SearchView:
    """A history of rounds of four under the policy; some proposals and evaluations fail."""
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
            trials.append(judged(view.with_trials(trials), expansion, current, evaluation, name, made.choices))
        view = view.with_trials(trials)
    return view


def with_models(view: SearchView) -> SearchView:
    """The view with two of three trials replaced by trials of a model: its operators, and no choices."""
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
                trial.proposed, expansion=expansion, choices={}, notes={"author": "llm", "model": "openai:any"}
            )
            trial = Trial(proposed, trial.evaluation, trial.decision)
        trials.append(trial)
    return SearchView(view.seed, view.budget, tuple(trials), view.initial, view.settings)
