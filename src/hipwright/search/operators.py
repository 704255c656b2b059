"""How a new set of choices comes from those of its parents. One function and one line in OPERATORS each."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Protocol

from hipwright.errors import BadInput

KNOB_SHARE = 0.7
"""How often a mutation turns a knob rather than changes the structure: knobs are cheap to try and seldom break."""

Choices = dict[str, Any]


class ChoiceLike(Protocol):
    """One thing to vary; `hipwright.engine` makes these. kind: "knob" or "structure"."""

    @property
    def options(self) -> Sequence[Any]:
        """The values it may take, in order where they have one."""
        ...

    @property
    def default(self) -> Any:
        """The engine's own choice."""
        ...

    @property
    def kind(self) -> str:
        """Knob or structure."""
        ...


Space = Mapping[str, ChoiceLike]
Operator = Callable[[Space, Sequence[Choices], random.Random], Choices]


def default(space: Space, parents: Sequence[Choices], rng: random.Random) -> Choices:
    """The engine's own choices, or the first parent's as they are."""
    return complete(space, parents[0] if parents else {})


def sample(space: Space, parents: Sequence[Choices], rng: random.Random) -> Choices:
    """Every choice drawn uniformly."""
    return {key: rng.choice(list(space[key].options)) for key in sorted(space)}


def mutate(space: Space, parents: Sequence[Choices], rng: random.Random) -> Choices:
    """One or two choices of the first parent drawn anew."""
    choices = default(space, parents, rng)
    changed: set[str] = set()
    for _ in range(1 if rng.random() < 0.6 else 2):
        key = _pick(space, rng, changed)
        if key is not None:
            changed.add(key)
            choices[key] = rng.choice([option for option in space[key].options if option != choices[key]])
    return choices


def turn(space: Space, parents: Sequence[Choices], rng: random.Random) -> Choices:
    """One choice of the first parent changed, every change alike."""
    choices = default(space, parents, rng)
    changes = [(key, option) for key in sorted(space) for option in space[key].options if option != choices[key]]
    return {**choices, **dict([rng.choice(changes)])} if changes else choices


def neighbour(space: Space, parents: Sequence[Choices], rng: random.Random) -> Choices:
    """One choice of the first parent moved one step along its options."""
    choices = default(space, parents, rng)
    key = _pick(space, rng)
    if key is not None:
        options = list(space[key].options)
        place = options.index(choices[key])
        steps = [options[i] for i in (place - 1, place + 1) if 0 <= i < len(options)]
        choices[key] = rng.choice(steps)
    return choices


def crossover(space: Space, parents: Sequence[Choices], rng: random.Random) -> Choices:
    """Each choice from one of the first two parents, by a fair coin; with fewer than two, a mutation."""
    if len(parents) < 2:
        return mutate(space, parents, rng)
    first, second = (complete(space, parent) for parent in parents[:2])
    return {key: (first if rng.random() < 0.5 else second)[key] for key in sorted(space)}


OPERATORS: dict[str, Operator] = {
    "default": default,
    "random": sample,
    "mutate": mutate,
    "neighbour": neighbour,
    "turn": turn,
    "crossover": crossover,
}


def operator(name: str) -> Operator:
    """The operator called `name`. BadInput for one that does not exist."""
    if name not in OPERATORS:
        raise BadInput(f"unknown operator {name!r}", hint=f"operators: {', '.join(OPERATORS)}")
    return OPERATORS[name]


def complete(space: Space, choices: Mapping[str, Any]) -> Choices:
    """`choices` within the space: what it does not name, or names wrongly, takes the engine's choice."""
    return {
        key: choices[key] if key in choices and choices[key] in choice.options else choice.default
        for key, choice in sorted(space.items())
    }


def _pick(space: Space, rng: random.Random, without: Collection[str] = ()) -> str | None:
    """A choice with more than one option, of a kind drawn first; None when nothing (more) can vary."""
    kind = "knob" if rng.random() < KNOB_SHARE else "structure"
    varied = [key for key in sorted(space) if len(space[key].options) > 1 and key not in without]
    return rng.choice([key for key in varied if space[key].kind == kind] or varied) if varied else None
