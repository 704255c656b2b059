"""Beam search (Lowerre 1976): the few fastest programs stay and are varied in turn; the rest is dropped.

Greedy, but on several programs, unlike (1+1). The beam is rebuilt from the log.
"""

from __future__ import annotations

import random

from hipwright.records import Decision, Evaluation, Expansion
from hipwright.search.policies.common import beats, beats_best, breed, comparison, opening, ranked, rejected
from hipwright.search.view import SearchView, Trial

WIDTH = 3


class Beam:
    """Run setting "beam": the number of programs that stay (3)."""

    def select(self, view: SearchView, k: int, rng: random.Random) -> list[Expansion]:
        """Varies the members in turn by proposal number, so that each is varied equally often."""
        members = beam(view) or list(view.verified)
        return [
            opening(view, number) or breed(view, number, members[number % len(members)], members, rng)
            for number in range(view.next_number, view.next_number + k)
        ]

    def accept(self, view: SearchView, trial: Trial, evaluation: Evaluation) -> Decision:
        """Keeps a program that fills the beam or is faster than its slowest member."""
        if not evaluation.passed:
            return rejected(trial, evaluation)
        members = beam(view)
        best = beats_best(view, evaluation)
        full = len(members) >= _width(view)
        kept = best or not full or beats(view, evaluation, members[-1])
        if best:
            reason = comparison(view, evaluation, view.best, "the best")
        elif not full:
            reason = f"place {len(members) + 1} of {_width(view)} in the beam was free"
        else:
            reason = comparison(view, evaluation, members[-1], "the beam's slowest")
        return Decision(number=trial.number, program=evaluation.program, kept=kept, best=best, reason=reason)


def beam(view: SearchView) -> list[Trial]:
    """The members after all decided trials, fastest first."""
    kept = (t for t in view.verified if t.decision is not None and t.decision.kept)
    return ranked(kept)[: _width(view)]


def _width(view: SearchView) -> int:
    return max(int(view.settings.get("beam", WIDTH)), 1)
