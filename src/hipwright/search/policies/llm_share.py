"""Wraps a policy so that language models write a share of its expansions; both authors share one population.

The run setting "agents" configures it: {"llm": true, "share": 0.5, "repairs": 5}; without "llm" it changes nothing.
The first proposals are the engine's, which gives the run a verified first parent. A model's expansion gets an operator:

    "repair"     a failed program of a model, with the verifier's evidence; at most `repairs` tries in a chain
    "translate"  from the reference alone, while nothing is verified
    "plan"       a quarter of the others: a strategy first, then the code (MTMC, CudaForge: docs/agents.md)
    "improve"    the rest: one change to the parent that the policy chose

Children of a model's program are always written by a model: the engine's operators work on choices, not on text.
"""

from __future__ import annotations

import random
from typing import Any

import msgspec

from hipwright.records import Decision, Evaluation, Expansion
from hipwright.search import fitness
from hipwright.search.interfaces import SearchPolicy
from hipwright.search.view import SearchView, Trial

MODEL_OPERATORS = ("translate", "repair", "improve", "plan")
SHARE, REPAIRS, PLANS = 0.5, 5, 0.25
BUCKET = 1.3
"""The least ratio of the times of two exemplars: they come from different performance buckets."""


class LlmShare:
    """`inner` selects parents and accepts programs; this wrapper assigns expansions to models. Pure, as `inner` is."""

    def __init__(self, inner: SearchPolicy) -> None:
        self.inner = inner

    def select(self, view: SearchView, k: int, rng: random.Random) -> list[Expansion]:
        """The inner policy's expansions, some of them assigned to a model."""
        chosen = self.inner.select(view, k, rng)
        if not _settings(view).get("llm"):
            return chosen
        unrepaired = _unrepaired(view)
        return [self._assigned(view, expansion, unrepaired) for expansion in chosen]

    def accept(self, view: SearchView, trial: Trial, evaluation: Evaluation) -> Decision:
        """The inner policy's decision, whoever wrote the program."""
        return self.inner.accept(view, trial, evaluation)

    def _assigned(self, view: SearchView, expansion: Expansion, unrepaired: list[Trial]) -> Expansion:
        number = expansion.number
        if number < len(view.initial):
            return expansion
        llm_programs = _written_by_models(view)
        rng = random.Random(f"{view.seed}/agents/{number}")  # a separate stream: it does not change the inner policy
        drawn, kind = rng.random(), rng.random()
        if drawn >= float(_settings(view).get("share", SHARE)) and not set(expansion.parents) & llm_programs:
            return expansion
        if unrepaired:
            failed = unrepaired.pop(0)
            tries = int(failed.proposed.expansion.action.get("tries", 0)) + 1
            return _model(expansion, "repair", (), failed=failed.proposed.program, of=failed.number, tries=tries)
        if not view.verified:
            return _model(expansion, "translate", ())
        parent = expansion.parents[:1] or ((view.best or view.verified[-1]).proposed.program,)
        operator = "plan" if kind < PLANS else "improve"
        assigned = _model(expansion, operator, parent)
        return msgspec.structs.replace(assigned, inspirations=exemplars(view, parent[0]))


def exemplars(view: SearchView, parent: str) -> tuple[str, ...]:
    """Returns at most two verified programs from different performance buckets, the faster first."""
    ranked = []
    for trial in view.verified:
        score = fitness.score(trial.evaluation)
        if score is not None and trial.proposed.program != parent and trial.evaluation:
            ranked.append((score.value, trial.number, trial.proposed.program))
    ranked.sort()
    if not ranked:
        return ()
    slower = [program for value, _, program in ranked if value >= BUCKET * ranked[0][0]]
    return (ranked[0][2], *slower[:1])


def _settings(view: SearchView) -> dict[str, Any]:
    return dict(view.settings.get("agents") or {})


def _model(expansion: Expansion, operator: str, parents: tuple[str, ...], **action: Any) -> Expansion:
    kept = {key: value for key, value in expansion.action.items() if key != "choices"}
    return msgspec.structs.replace(expansion, operator=operator, parents=parents, action={**kept, **action})


def _written_by_models(view: SearchView) -> set[str]:
    return {t.proposed.program for t in view.trials if t.proposed.author == "llm"}


def _unrepaired(view: SearchView) -> list[Trial]:
    """Failed programs of models that no repair has tried yet, the latest first; machine faults are left out."""
    most = int(_settings(view).get("repairs", REPAIRS))
    seen = {t.proposed.expansion.action.get("of") for t in view.trials if t.proposed.expansion.operator == "repair"}
    return [
        trial
        for trial in reversed(view.trials)
        if trial.proposed.author == "llm"
        and trial.evaluation is not None
        and not trial.passed
        and trial.evaluation.fault == "candidate"
        and trial.number not in seen
        and int(trial.proposed.expansion.action.get("tries", 0)) < most
    ]
