"""Islands of MAP-Elites grids (Mouret & Clune 2015, arXiv:1504.04909; islands as in FunSearch, Nature 2024).

Each island holds a 4 x 4 x 4 grid by the descriptor; a cell keeps the fastest verified program of its kind, so that one
good program does not displace those that use the hardware differently. Parents are drawn

    0.2 explore   any elite of the island, each cell alike
    0.7 exploit   the better half of the island's elites, rank r with weight 1 / r^2
    0.1 random    any verified program of the run

and every `migrate` rounds the fastest program of each island is copied to the next. The grids are not stored: they
are rebuilt from the view, which makes the policy a pure function of the log.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from hipwright.records import Decision, Evaluation, Expansion
from hipwright.search.descriptor import Coords, coords
from hipwright.search.policies.common import beats, beats_best, breed, comparison, expansion, first, ranked, rejected
from hipwright.search.view import SearchView, Trial

EXPLORE, EXPLOIT = 0.2, 0.7  # the rest is random
EVALUATIONS_AN_ISLAND, MOST_ISLANDS = 24, 3

Grid = dict[Coords, Trial]


class Islands:
    """Run settings "islands" (default: one per 24 evaluations of the budget, at most 3) and "migrate" (4 rounds).

    A small budget spread over several islands finds less (tests/search/test_policies.py).
    """

    def select(self, view: SearchView, k: int, rng: random.Random) -> list[Expansion]:
        """Serves the islands in turn by proposal number; each starts with a random program beside the shared start."""
        count = _islands(view)
        grids = rebuild(view)
        seeds = len(view.initial) + count - 1
        selected = []
        for number in range(view.next_number, view.next_number + k):
            island = number % count
            if number < len(view.initial):
                selected.append(first(view, number, island=island))
            elif number < seeds or not view.verified:
                selected.append(expansion(view, number, "random", island=island))
            else:
                selected.append(_breed(view, number, island, grids[island], rng))
        return selected

    def accept(self, view: SearchView, trial: Trial, evaluation: Evaluation) -> Decision:
        """Keeps what opens a cell of its island or is faster than the cell's elite."""
        if not evaluation.passed:
            return rejected(trial, evaluation)
        island = int(trial.proposed.expansion.action.get("island", 0))
        cell = coords(evaluation)
        elite = rebuild(view)[island].get(cell)
        best = beats_best(view, evaluation)
        opens = elite is None or elite.evaluation is None
        kept = best or opens or beats(view, evaluation, elite)
        place = f"cell {cell} of island {island}"
        if best:
            reason = comparison(view, evaluation, view.best, "the best")
        elif opens:
            reason = f"opens {place}"
        else:
            reason = comparison(view, evaluation, elite, f"{place},")
        return Decision(number=trial.number, program=evaluation.program, kept=kept, best=best, reason=reason)


def rebuild(view: SearchView) -> list[Grid]:
    """Rebuilds the islands' grids from all decided trials: kept programs and migrants."""
    count, period = _islands(view), max(int(view.settings.get("migrate", 4)), 1)
    grids: list[Grid] = [{} for _ in range(count)]
    current = 0
    for trial in view.trials:
        while current < trial.proposed.round:
            current += 1
            if current % period == 0:
                _migrate(view, grids)
        if trial.decision is not None and trial.decision.kept and trial.evaluation is not None:
            _settle(view, grids[int(trial.proposed.expansion.action.get("island", 0)) % count], trial)
    return grids


def _islands(view: SearchView) -> int:
    return max(int(view.settings.get("islands", min(view.budget // EVALUATIONS_AN_ISLAND, MOST_ISLANDS))), 1)


def _migrate(view: SearchView, grids: Sequence[Grid]) -> None:
    leaders = [ranked(grid.values())[0] if grid else None for grid in grids]
    for island, leader in enumerate(leaders):
        if leader is not None:
            _settle(view, grids[(island + 1) % len(grids)], leader)


def _settle(view: SearchView, grid: Grid, trial: Trial) -> None:
    if trial.evaluation is None:
        return
    cell = coords(trial.evaluation)
    if cell not in grid or beats(view, trial.evaluation, grid[cell]):
        grid[cell] = trial


def _breed(view: SearchView, number: int, island: int, grid: Grid, rng: random.Random) -> Expansion:
    elites = ranked(grid.values()) or list(view.verified)
    first, strategy = _parent(view, elites, rng)
    return breed(view, number, first, elites, rng, island=island, strategy=strategy)


def _parent(view: SearchView, elites: Sequence[Trial], rng: random.Random) -> tuple[Trial, str]:
    draw = rng.random()
    if draw < EXPLORE:
        return rng.choice(list(elites)), "explore"
    if draw < EXPLORE + EXPLOIT:
        better = elites[: (len(elites) + 1) // 2]
        return rng.choices(better, [rank**-2.0 for rank in range(1, len(better) + 1)])[0], "exploit"
    return rng.choice(view.verified), "random"
