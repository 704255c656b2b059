"""A memory of values for each stage, shared across tasks, after EvoKernel.

An item is a choice's kind with a value ("VEC=4"). It has a value Q for each stage, updated by Q <- Q + RATE (r - Q):

    draft    programs without a parent; r = 1 where the program passed, -1 where it did not
    refine   children, for each choice in which they differ from the parent; r = tanh(ln(parent's time / their time)),
             -1 where they did not pass

A run begins with the values that the archive's earlier runs taught (the run setting "learned": `values_of` each of
them in turn), so that they carry over to other tasks, and goes on from there by its own trials. Retrieval is by value:
an item is drawn with weight exp(Q / HEAT) among those that fit the parent and would change it; with the probability
FRESH, and where no item fits, an operator makes a new one.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Mapping
from typing import Any

from hipwright.records import Decision, Evaluation, Expansion
from hipwright.search.moves import choice_kind
from hipwright.search.policies.common import (
    LEARNED,
    breed,
    by_program,
    expansion,
    keep_if_best,
    log_gain,
    opening,
    parent_of,
    ranked,
)
from hipwright.search.view import SearchView, Trial

DRAFT, REFINE = "draft", "refine"
RATE, HEAT, FRESH = 0.3, 0.25, 0.4
DRAFTS = 2
"""Programs without a parent after the source's own actions."""

Values = dict[str, dict[str, float]]
"""Q by stage and item."""


class ValueMemory:
    """Run setting "learned": {"values": {stage: {item: Q}}} of earlier runs."""

    def select(self, view: SearchView, k: int, rng: random.Random) -> list[Expansion]:
        """Drafts first, then refinements of a parent of rank r with weight 1 / r^2."""
        values = learned(view)
        elites, seen = ranked(view.verified), _seen(view.trials)
        selected = []
        for number in range(view.next_number, view.next_number + k):
            if number < len(view.initial) or not elites:
                selected.append(opening(view, number) or expansion(view, number, "random"))
            elif number < len(view.initial) + DRAFTS:
                drawn = _draw(values[DRAFT], elites[0].proposed.choices, seen, rng, all_keys=True)
                selected.append(expansion(view, number, "random", stage=DRAFT, choices=drawn))
            else:
                parent = rng.choices(elites, [rank**-2.0 for rank in range(1, len(elites) + 1)])[0]
                selected.append(_refine(view, number, parent, elites, values, seen, rng))
        return selected

    def accept(self, view: SearchView, trial: Trial, evaluation: Evaluation) -> Decision:
        """Keeps what is faster than the best so far."""
        return keep_if_best(view, trial, evaluation, "the best")


def learned(view: SearchView) -> Values:
    """The values after all decided trials, from those that the run began with."""
    begun = (view.settings.get(LEARNED) or {}).get("values") or {}
    return values_of(view, {stage: dict(begun.get(stage, {})) for stage in (DRAFT, REFINE)})


def values_of(view: SearchView, values: Values) -> Values:
    """`values`, updated by the view's trials in their order. Trials whose fault is the machine's teach nothing."""
    known = by_program(view)
    for trial in view.trials:
        evaluation, parent = trial.evaluation, parent_of(trial, known)
        if evaluation is None or evaluation.fault not in (None, "candidate"):
            continue
        if parent is None:
            _update(values[DRAFT], items(trial.proposed.choices), 1.0 if trial.passed else -1.0)
        elif parent.proposed.choices:
            before = parent.proposed.choices
            changed = {key: v for key, v in trial.proposed.choices.items() if before.get(key) != v}
            reward = math.tanh(log_gain(trial, parent)) if trial.passed else -1.0
            _update(values[REFINE], items(changed), reward)
    return values


def items(choices: Mapping[str, Any]) -> list[str]:
    """The items of some choices, each once."""
    return sorted({f"{choice_kind(key)}={value}" for key, value in choices.items()})


def _update(values: dict[str, float], found: Iterable[str], reward: float) -> None:
    for item in found:
        before = values.get(item, 0.0)
        values[item] = before + RATE * (reward - before)


def _refine(
    view: SearchView,
    number: int,
    parent: Trial,
    elites: list[Trial],
    values: Values,
    seen: Mapping[str, Any],
    rng: random.Random,
) -> Expansion:
    drawn = _draw(values[REFINE], parent.proposed.choices, seen, rng) if rng.random() >= FRESH else {}
    if not drawn:
        return breed(view, number, parent, elites, rng, stage=REFINE)
    return expansion(view, number, "default", (parent.proposed.program,), stage=REFINE, choices=drawn)


def _draw(
    values: Mapping[str, float],
    choices: Mapping[str, Any],
    seen: Mapping[str, Any],
    rng: random.Random,
    *,
    all_keys: bool = False,
) -> dict[str, Any]:
    """Values for one choice (`all_keys`: for every one) that the memory has items for, by their Q."""
    offers = []
    for key, now in sorted(choices.items()):
        kind = choice_kind(key)
        found = [(seen.get(item, _read(item)), q) for item, q in sorted(values.items()) if item.startswith(f"{kind}=")]
        options = [(value, q) for value, q in found if all_keys or value != now]
        if options:
            offers.append((key, options))
    if all_keys:
        return {key: rng.choices([v for v, _ in found], [_weight(q) for _, q in found])[0] for key, found in offers}
    flat = [(key, value, q) for key, found in offers for value, q in found]
    if not flat:
        return {}
    key, value, _ = rng.choices(flat, [_weight(q) for _, _, q in flat])[0]
    return {key: value}


def _weight(q: float) -> float:
    return math.exp(q / HEAT)


def _seen(trials: Iterable[Trial]) -> dict[str, Any]:
    """The value of each item that the run itself has used."""
    return {f"{choice_kind(key)}={value}": value for t in trials for key, value in t.proposed.choices.items()}


def _read(item: str) -> Any:
    """An item's value from its text: a number, true or false, else the text."""
    text = item.partition("=")[2]
    return {"True": True, "False": False}.get(text, int(text) if text.lstrip("-").isdigit() else text)
