"""The read-only view that policies get: the run's decided trials in proposal order."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from hipwright.archive import Counted, Proposed
from hipwright.records import Decision, Evaluation

FALLBACK = "fallback"
"""The operator of proposals that give up groups of a refused first answer; they do not count against the budget."""
START = "start"
"""The operator of the caller's own program, the first proposal of a run; it does not count against the budget."""
UNCOUNTED = (FALLBACK, START)
"""The operators whose evaluations the budget does not count."""


@dataclass(frozen=True)
class Trial:
    """One proposal with its outcome; `evaluation` is None for duplicates and failed proposals."""

    proposed: Proposed
    evaluation: Evaluation | None = None
    decision: Decision | None = None

    @property
    def number(self) -> int:
        """The proposal's number."""
        return self.proposed.number

    @property
    def passed(self) -> bool:
        """True for a verified program."""
        return self.evaluation is not None and self.evaluation.passed


@dataclass(frozen=True)
class SearchView:
    """The decided trials of a run. initial: the source's actions to try first; settings: the run's.

    counted: what limits the programs that were parents, by program key; {} in a run without counters.
    """

    seed: int
    budget: int
    trials: tuple[Trial, ...] = ()
    initial: tuple[Mapping[str, Any], ...] = ({},)
    settings: Mapping[str, Any] = field(default_factory=dict)
    counted: Mapping[str, Counted] = field(default_factory=dict)

    @cached_property
    def next_number(self) -> int:
        """The number of the next proposal."""
        return max((t.number for t in self.trials), default=-1) + 1

    @cached_property
    def next_round(self) -> int:
        """The index of the next round."""
        return max((t.proposed.round for t in self.trials), default=-1) + 1

    @cached_property
    def evaluations(self) -> int:
        """Evaluations that count against the budget."""
        counted = (t for t in self.trials if t.proposed.expansion.operator not in UNCOUNTED)
        return sum(t.evaluation is not None for t in counted)

    @cached_property
    def spent(self) -> int:
        """What counts against the budget: evaluations, and the price of profiles in evaluations."""
        return self.evaluations + sum(one.cost for one in self.counted.values())

    @cached_property
    def best(self) -> Trial | None:
        """The last trial that was decided to be the best."""
        return next((t for t in reversed(self.trials) if t.decision is not None and t.decision.best), None)

    @cached_property
    def verified(self) -> tuple[Trial, ...]:
        """The trials that passed, in proposal order: the only ones that may be parents."""
        return tuple(t for t in self.trials if t.passed)

    @cached_property
    def barren(self) -> int:
        """The number of latest consecutive proposals without a new program."""
        count = 0
        for trial in reversed(self.trials):
            if trial.proposed.evaluable:
                break
            count += 1
        return count

    @cached_property
    def stale_rounds(self) -> int:
        """Rounds since the one that found the best (0 when there is none yet or it was the last one)."""
        if self.best is None:
            return 0
        return self.next_round - 1 - self.best.proposed.round

    def with_trials(self, trials: Iterable[Trial]) -> SearchView:
        """Returns the view with more trials appended."""
        return replace(self, trials=(*self.trials, *trials))

    def with_counted(self, counted: Mapping[str, Counted]) -> SearchView:
        """Returns the view with what limits further programs."""
        return replace(self, counted={**self.counted, **counted})
