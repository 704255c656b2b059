"""Operators: functions from the parents' choices to new choices. A new one is a function and a line in OPERATORS."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Protocol

from hipwright.engine.knobs import GIVEN_UP
from hipwright.errors import BadInput

KNOB_SHARE = 0.7
"""The probability that a mutation changes a knob, not the structure: knobs are cheap to try and seldom break."""

Choices = dict[str, Any]


class ChoiceLike(Protocol):
    """One choice of the engine. kind: "knob" or "structure"."""

    @property
    def options(self) -> Sequence[Any]:
        """The possible values, in their natural order if any."""
        ...

    @property
    def default(self) -> Any:
        """The engine's default."""
        ...

    @property
    def kind(self) -> str:
        """Either "knob" or "structure"."""
        ...


Space = Mapping[str, ChoiceLike]
Operator = Callable[[Space, Sequence[Choices], random.Random], Choices]


def default(space: Space, parents: Sequence[Choices], rng: random.Random) -> Choices:
    """The first parent's choices, or the engine's defaults without a parent."""
    return complete(space, parents[0] if parents else {})


def sample(space: Space, parents: Sequence[Choices], rng: random.Random) -> Choices:
    """Draws every choice uniformly."""
    return {key: rng.choice(list(space[key].options)) for key in sorted(space)}


def mutate(space: Space, parents: Sequence[Choices], rng: random.Random) -> Choices:
    """Redraws one or two choices of the first parent."""
    choices = default(space, parents, rng)
    changed: set[str] = set()
    for _ in range(1 if rng.random() < 0.6 else 2):
        key = _pick(space, rng, changed)
        if key is not None:
            changed.add(key)
            choices[key] = rng.choice([option for option in space[key].options if option != choices[key]])
    return choices


def turn(space: Space, parents: Sequence[Choices], rng: random.Random) -> Choices:
    """Changes one choice of the first parent; every single change is equally likely."""
    choices = default(space, parents, rng)
    changes = [(key, option) for key in sorted(space) for option in space[key].options if option != choices[key]]
    return {**choices, **dict([rng.choice(changes)])} if changes else choices


def neighbour(space: Space, parents: Sequence[Choices], rng: random.Random) -> Choices:
    """Moves one choice of the first parent one step along its options."""
    choices = default(space, parents, rng)
    key = _pick(space, rng)
    if key is not None:
        options = list(space[key].options)
        place = options.index(choices[key])
        steps = [options[i] for i in (place - 1, place + 1) if 0 <= i < len(options)]
        choices[key] = rng.choice(steps)
    return choices


def crossover(space: Space, parents: Sequence[Choices], rng: random.Random) -> Choices:
    """Takes each choice from one of two parents by a fair coin; with fewer than two parents, a mutation."""
    if len(parents) < 2:
        return mutate(space, parents, rng)
    first, second = (complete(space, parent) for parent in parents[:2])
    mixed = {key: (first if rng.random() < 0.5 else second)[key] for key in sorted(space)}
    given_up = first.get(GIVEN_UP) or second.get(GIVEN_UP)
    return {**mixed, GIVEN_UP: given_up} if given_up else mixed


def universal(space: Space, parents: Sequence[Choices], rng: random.Random) -> Choices:
    """Changes one to three choices of the first parent, each to another parent's value or to another option.

    Fewer change the more the parents agree: what fast programs share is kept.
    """
    choices = default(space, parents, rng)
    others = [complete(space, parent) for parent in parents[1:]]
    differing = [key for key in sorted(space) if any(other[key] != choices[key] for other in others)]
    changed: set[str] = set()
    for _ in range(rng.randint(1, 1 + min(len(differing), 2))):
        if differing and rng.random() < 0.5:
            key = rng.choice(differing)
            choices[key] = rng.choice([other[key] for other in others if other[key] != choices[key]] or [choices[key]])
        elif (picked := _pick(space, rng, changed)) is not None:
            key = picked
            choices[key] = rng.choice([option for option in space[key].options if option != choices[key]])
        else:
            continue
        changed.add(key)
    return choices


OPERATORS: dict[str, Operator] = {
    "default": default,
    "random": sample,
    "mutate": mutate,
    "neighbour": neighbour,
    "turn": turn,
    "crossover": crossover,
    "universal": universal,
}


def operator(name: str) -> Operator:
    """Returns the operator called `name`. BadInput for an unknown one."""
    if name not in OPERATORS:
        raise BadInput(f"unknown operator {name!r}", hint=f"operators: {', '.join(OPERATORS)}")
    return OPERATORS[name]


def complete(space: Space, choices: Mapping[str, Any]) -> Choices:
    """Returns a full set of choices: missing or invalid ones take the engine's default; `given_up` is kept."""
    full = {
        key: choices[key] if key in choices and choices[key] in choice.options else choice.default
        for key, choice in sorted(space.items())
    }
    return full | {GIVEN_UP: choices[GIVEN_UP]} if GIVEN_UP in choices else full


def _pick(space: Space, rng: random.Random, without: Collection[str] = ()) -> str | None:
    """Draws the key of a choice with several options, its kind first; None when nothing can vary."""
    kind = "knob" if rng.random() < KNOB_SHARE else "structure"
    varied = [key for key in sorted(space) if len(space[key].options) > 1 and key not in without]
    return rng.choice([key for key in varied if space[key].kind == kind] or varied) if varied else None
