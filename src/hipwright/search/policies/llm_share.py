"""Any policy with a share of its expansions handed to the models: the population is common, the engine's and theirs.

The run setting "agents" says how: {"llm": true, "share": 0.5, "repairs": 5}. Without "llm" the policy is left as it is.

    0            the engine's own program: a verified first parent, so that a run never ends with nothing
    "repair"     a model's program that failed, with the verifier's evidence, up to `repairs` tries in a chain
    "translate"  from the reference alone: in the first round, and as long as nothing is verified
    "plan"       every fourth of the others: a strategy first, then the code (MTMC, CudaForge: docs/agents.md)
    "improve"    the rest: the parent that the policy chose, one change at a time

A child of a model's program is always a model's to write: the engine's operators know choices, not texts.
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
"""Exemplars come from different performance buckets: the slower one takes at least this much longer."""


class LlmShare:
    """`inner` chooses parents and accepts; this one decides which expansions a model writes. Pure, as `inner` is."""

    def __init__(self, inner: SearchPolicy) -> None:
        self.inner = inner

    def select(self, view: SearchView, k: int, rng: random.Random) -> list[Expansion]:
        """The inner policy's expansions, some of them turned into a model's."""
        chosen = self.inner.select(view, k, rng)
        if not _settings(view).get("llm"):
            return chosen
        waiting = _waiting(view)
        return [self._turned(view, expansion, waiting) for expansion in chosen]

    def accept(self, view: SearchView, trial: Trial, evaluation: Evaluation) -> Decision:
        """The inner policy's decision: who wrote a program does not matter."""
        return self.inner.accept(view, trial, evaluation)

    def _turned(self, view: SearchView, expansion: Expansion, waiting: list[Trial]) -> Expansion:
        number = expansion.number
        if number < len(view.initial):
            return expansion
        theirs = _written_by_models(view)
        rng = random.Random(f"{view.seed}/agents/{number}")  # a stream of its own: the inner policy's path is kept
        drawn, kind = rng.random(), rng.random()
        if drawn >= float(_settings(view).get("share", SHARE)) and not set(expansion.parents) & theirs:
            return expansion
        if waiting:
            failed = waiting.pop(0)
            tries = int(failed.proposed.expansion.action.get("tries", 0)) + 1
            return _model(expansion, "repair", (), failed=failed.proposed.program, of=failed.number, tries=tries)
        if not view.verified:
            return _model(expansion, "translate", ())
        parent = expansion.parents[:1] or ((view.best or view.verified[-1]).proposed.program,)
        operator = "plan" if kind < PLANS else "improve"
        turned = _model(expansion, operator, parent)
        return msgspec.structs.replace(turned, inspirations=exemplars(view, parent[0]))


def exemplars(view: SearchView, parent: str) -> tuple[str, ...]:
    """Two verified programs from different performance buckets, the faster first; fewer where there are none."""
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


def _waiting(view: SearchView) -> list[Trial]:
    """Models' programs that failed by their own fault and were not yet repaired, the latest first."""
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
