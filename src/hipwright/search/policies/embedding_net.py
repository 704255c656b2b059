"""An epsilon-net over embeddings of programs with a summarizer, after POLCA (arXiv:2603.14769).

The embedding of a program is a vector of DIMENSIONS numbers of length 1: its choices, and the instructions and
resources of its build by powers of two, hashed with signs (Weinberger et al. 2009). A program belongs to the first ball
whose centre's cosine distance is below epsilon, else it opens a ball of its own; the queue orders balls as
`epsilon_heap` does, whose space is the descriptor's three axes instead.

The summarizer keeps what the run has learned in a few lines: for each choice, the value with the lowest mean log time
among at least two programs. A model's prompt quotes it; for the engine, with the probability ADVISED, a child takes one
of these values that its parent lacks.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from hashlib import blake2b
from typing import Any

from hipwright.records import Decision, Evaluation, Expansion
from hipwright.search.policies.common import (
    breed,
    by_program,
    expansion,
    keep_if_best,
    opening,
    parent_of,
    ranked,
    time_of,
)
from hipwright.search.policies.epsilon_heap import Ball
from hipwright.search.view import SearchView, Trial

DIMENSIONS = 64
EPSILON, C, ADVISED = 0.25, 0.5, 0.35
LINES = 8
"""Choices that a summary names at most."""

Vector = tuple[float, ...]


class EmbeddingNet:
    """Run settings "net_epsilon" (0.25) and "heap_c" (0.5)."""

    def select(self, view: SearchView, k: int, rng: random.Random) -> list[Expansion]:
        """Varies the fastest member of the first ball, which then counts one more try."""
        balls, advice = net(view), summary(view)
        values = [-math.log(time_of(trial)) for trial in view.verified if time_of(trial) < math.inf]
        spread, weight = max(values, default=0.0) - min(values, default=0.0), float(view.settings.get("heap_c", C))
        total, selected = len(view.trials), []
        for number in range(view.next_number, view.next_number + k):
            start = opening(view, number)
            if start is None:
                ball = max(balls, key=lambda one: one.priority(total, spread, weight))
                ball.tries, total = ball.tries + 1, total + 1
                start = _child(view, number, ranked(ball.members)[0], advice, rng)
            selected.append(start)
        return selected

    def accept(self, view: SearchView, trial: Trial, evaluation: Evaluation) -> Decision:
        """Every verified program joins the net; what is faster than the best so far is kept."""
        return keep_if_best(view, trial, evaluation, "the best")


def net(view: SearchView) -> list[Ball]:
    """The balls over all verified programs, in the order they were opened, with their tries."""
    epsilon, balls, home = float(view.settings.get("net_epsilon", EPSILON)), list[Ball](), dict[str, Ball]()
    for trial in view.verified:
        point = embedding(trial)
        near = next((ball for ball in balls if _distance(ball.centre, point) < epsilon), None)
        if near is None:
            near = Ball(point, [])
            balls.append(near)
        near.members.append(trial)
        home[trial.proposed.program] = near
    known = by_program(view)
    for trial in view.trials:
        parent = parent_of(trial, known)
        if parent is not None:
            home[parent.proposed.program].tries += 1
    return balls


def embedding(trial: Trial) -> Vector:
    """The program's vector; of length 1, or zero for a program of which nothing is known."""
    found = [0.0] * DIMENSIONS
    for name, weight in _features(trial):
        digest = blake2b(name.encode(), digest_size=4).digest()
        found[digest[0] % DIMENSIONS] += weight if digest[1] & 1 else -weight
    length = math.sqrt(sum(value * value for value in found))
    return tuple(value / length for value in found) if length else tuple(found)


def summary(view: SearchView) -> dict[str, tuple[Any, float]]:
    """For each choice, the best value and how many times its mean time is below that of the other values."""
    logs: dict[str, dict[str, list[float]]] = {}
    values: dict[tuple[str, str], Any] = {}
    for trial in (one for one in view.verified if time_of(one) < math.inf):
        for key, value in trial.proposed.choices.items():
            logs.setdefault(key, {}).setdefault(repr(value), []).append(math.log(time_of(trial)))
            values[key, repr(value)] = value
    found = {}
    for key, by_value in sorted(logs.items()):
        means = sorted((sum(some) / len(some), name) for name, some in by_value.items() if len(some) > 1)
        if len(means) > 1:
            found[key] = (values[key, means[0][1]], math.exp(means[1][0] - means[0][0]))
    best = sorted(found.items(), key=lambda one: (-one[1][1], one[0]))[:LINES]
    return dict(best)


def summary_text(found: dict[str, tuple[Any, float]]) -> str:
    """The summary as a line for a prompt."""
    return "; ".join(
        f"{key} = {value}: {factor:.2f} times as fast as the next" for key, (value, factor) in found.items()
    )


def _child(
    view: SearchView, number: int, parent: Trial, advice: dict[str, tuple[Any, float]], rng: random.Random
) -> Expansion:
    now = parent.proposed.choices
    lacks = {key: value for key, (value, _) in advice.items() if key in now and now[key] != value}
    text = {"summary": summary_text(advice)} if advice else {}
    if lacks and rng.random() < ADVISED:
        key = rng.choice(sorted(lacks))
        return expansion(view, number, "default", (parent.proposed.program,), choices={key: lacks[key]}, **text)
    return breed(view, number, parent, view.verified, rng, **text)


def _features(trial: Trial) -> Iterator[tuple[str, float]]:
    for key, value in sorted(trial.proposed.choices.items()):
        yield f"{key}={value}", 1.0
    targets = trial.evaluation.targets if trial.evaluation else {}
    build = next((targets[name].build for name in sorted(targets) if targets[name].build), None)
    for kernel in build.kernels if build else ():
        for name, count in (*kernel.instructions.items(), ("vgpr", kernel.vgpr), ("lds", kernel.lds_bytes)):
            yield f"{name}:{count.bit_length()}", 0.5


def _distance(a: Vector, b: Vector) -> float:
    return 1.0 - sum(x * y for x, y in zip(a, b, strict=True))
