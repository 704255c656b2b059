"""Counters in the search: which parents are profiled, what that costs, and what the log keeps of it.

The run setting "counters" holds the source of profiles ("ncu", "rocprofv3", "simulated", "static"); without it a run
has none. Every parent has its static record, which is free. Profiles are sampled: at most one a round, of the fastest
parent without one, and one for each SHARE evaluations of the budget; each is paid with `price` evaluations.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec

from hipwright.archive import Counted
from hipwright.events import Listener
from hipwright.records import Evaluation, Expansion, Program
from hipwright.search.policies.common import ranked
from hipwright.search.view import SearchView, Trial

SETTING = "counters"
"""The run setting with the source of profiles."""
SHARE = 8
"""Evaluations of the budget for each profile."""
FAILURES = 2
"""Profiles that failed after which a run asks for no more."""


class CountersLike(Protocol):
    """Reads what limits a program."""

    @property
    def price(self) -> int:
        """Evaluations that a profile costs; 0 where there are static records only."""
        ...

    def profile(self, program: Program, evaluation: Evaluation) -> Counted:
        """A profile of a verified program; where it fails, the static record with `error`. Raises what ends the run."""
        ...

    def static(self, evaluation: Evaluation) -> Counted:
        """The static record: of the build, the estimate or the timing that the evaluation holds."""
        ...


def wanted(view: SearchView, expansions: Sequence[Expansion]) -> list[Trial]:
    """The parents of the expansions without a record, the fastest first."""
    keys = {expansion.parents[0] for expansion in expansions if expansion.parents}
    return [trial for trial in ranked(view.verified) if trial.proposed.program in keys]


def to_profile(view: SearchView, expansions: Sequence[Expansion], price: int) -> Trial | None:
    """The parent that is worth a profile now; None where the sample or the budget is spent."""
    made = [one for one in view.counted.values() if one.profiled]
    failed = sum(bool(one.error) for one in view.counted.values())
    most = max(view.budget // SHARE, 1) if view.budget > 2 * price else 0
    left = view.budget - view.spent
    if not price or failed >= FAILURES or len(made) >= most or left <= price:
        return None
    profiled = {one.program for one in view.counted.values() if one.profiled or one.error}
    return next((t for t in wanted(view, expansions) if t.proposed.program not in profiled), None)


def read(
    view: SearchView,
    expansions: Sequence[Expansion],
    counters: CountersLike,
    program: Callable[[str], Program],
    listener: Listener,
) -> list[tuple[int, Counted]]:
    """(number, record) of each parent that has none yet, and of the one to profile. program: of a key."""
    chosen, found = to_profile(view, expansions, counters.price), list[tuple[int, Counted]]()
    for trial in wanted(view, expansions):
        key, evaluation = trial.proposed.program, trial.evaluation
        if evaluation is None or (key in view.counted and trial is not chosen):
            continue
        if trial is chosen:
            listener("stage", {"text": f"counting what limits #{trial.number}"})
            made = counters.profile(program(key), evaluation)
        else:
            made = counters.static(evaluation)
        found.append((trial.number, msgspec.structs.replace(made, program=key, round=view.next_round)))
    return found
