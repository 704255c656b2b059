"""Masked UCB: a bandit over the ways to change a program; arms that cannot work are masked.

UCB1 (Auer, Cesa-Bianchi and Fischer 2002) with arms and masks after KernelBand (arXiv:2511.18868), whose arms are
optimisation strategies and whose mask comes from profiles. Here the arms are

    neighbour, mutate, crossover, random    the operators
    swap KEY                                one choice of the parent set to a value seen elsewhere in the run

"crossover" is masked without a second program, "swap KEY" when every value seen was tried with the parent's other
choices. The reward of a try is log2(parent's time / child's time) clipped to [0, 1]: a program twice as fast earns 1.
"random" is compared with the best so far.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Mapping
from typing import Any

from hipwright.records import Decision, Evaluation, Expansion, content_key
from hipwright.search.policies.common import by_program, expansion, keep_if_best, opening, parent_of, ranked, time_of
from hipwright.search.view import SearchView, Trial

C = 0.5
PRIOR = 0.25
"""An arm's reward before its first pull."""
OPERATORS = ("neighbour", "mutate", "crossover", "random")

Swaps = dict[str, list[Any]]


class Ucb:
    """Run setting "ucb_c": the weight of exploration (0.5)."""

    def select(self, view: SearchView, k: int, rng: random.Random) -> list[Expansion]:
        """A parent by rank r with weight 1 / r^2, then the arm with the largest mean + C sqrt(ln(T + 1) / n)."""
        pulls, selected = _pulls(view), []
        elites = ranked(view.verified)
        for number in range(view.next_number, view.next_number + k):
            start = opening(view, number)
            selected.append(start or _pull(view, number, elites, pulls, rng))
        return selected

    def accept(self, view: SearchView, trial: Trial, evaluation: Evaluation) -> Decision:
        """Keeps what is faster than the best so far; any verified program may be a parent."""
        return keep_if_best(view, trial, evaluation, "the best")


def arm_of(trial: Trial) -> str:
    """The arm that a trial pulled; a model's operator counts as an arm of its own, which is never pulled here."""
    expansion = trial.proposed.expansion
    swapped = str(expansion.action.get("arm", ""))
    return swapped if expansion.operator == "default" and swapped else expansion.operator


def swaps(view: SearchView, parent: Trial) -> Swaps:
    """For each choice of the parent, the values seen in the run but not yet tried with its other choices."""
    choices = parent.proposed.choices
    tried = {_signature(trial.proposed.choices) for trial in view.trials}
    found: Swaps = {}
    for key in sorted(choices):
        seen = _distinct(t.proposed.choices[key] for t in view.trials if key in t.proposed.choices)
        fresh = [value for value in seen if _signature({**choices, key: value}) not in tried]
        if fresh:
            found[key] = fresh
    return found


def _pull(
    view: SearchView, number: int, elites: list[Trial], pulls: dict[str, tuple[float, int]], rng: random.Random
) -> Expansion:
    parent = rng.choices(elites, [rank**-2.0 for rank in range(1, len(elites) + 1)])[0]
    program, swap = parent.proposed.program, swaps(view, parent)
    arms = [name for name in OPERATORS if name != "crossover" or len(elites) > 1] + [f"swap {key}" for key in swap]
    total = sum(n for _, n in pulls.values())
    weight = float(view.settings.get("ucb_c", C))
    rng.shuffle(arms)  # breaks ties at random
    arm = max(arms, key=lambda name: _bound(*pulls.get(name, (0.0, 0)), total, weight))
    reward, n = pulls.get(arm, (0.0, 0))
    pulls[arm] = (reward, n + 1)  # counted with reward 0, so that a round spreads over the arms
    if arm.startswith("swap "):
        key = arm.removeprefix("swap ")
        return expansion(view, number, "default", (program,), arm=arm, choices={key: rng.choice(swap[key])})
    if arm == "crossover":
        other = rng.choice([t.proposed.program for t in elites if t is not parent])
        return expansion(view, number, arm, (program, other))
    return expansion(view, number, arm, () if arm == "random" else (program,))


def _pulls(view: SearchView) -> dict[str, tuple[float, int]]:
    """Returns (sum of rewards, number of pulls) of each arm."""
    pulls: dict[str, tuple[float, int]] = {}
    known, best = by_program(view), math.inf
    for trial in view.trials[len(view.initial) :]:
        above = parent_of(trial, known)
        before = time_of(above) if above else best
        reward = min(max(math.log2(before / time_of(trial)), 0.0), 1.0) if _timed(before, time_of(trial)) else 0.0
        total, n = pulls.get(arm_of(trial), (0.0, 0))
        pulls[arm_of(trial)] = (total + reward, n + 1)
        best = min(best, time_of(trial))
    return pulls


def _timed(*times: float) -> bool:
    return all(0 < time < math.inf for time in times)


def _bound(reward: float, n: int, total: int, weight: float) -> float:
    return (reward + PRIOR) / (n + 1) + weight * math.sqrt(math.log(total + 1) / (n + 1))


def _signature(choices: Mapping[str, Any]) -> str:
    return content_key(repr(sorted(choices.items())))


def _distinct(values: Iterable[Any]) -> list[Any]:
    return list({repr(value): value for value in values}.values())
