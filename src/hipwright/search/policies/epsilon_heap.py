"""A priority heap over an epsilon-net of programs, after POLCA (arXiv:2603.14769).

A program belongs to the first ball whose centre is nearer than epsilon, else it is the centre of a new ball. POLCA
measures distance between embeddings; here it is Euclidean on the axes of the MAP-Elites descriptor (memory, compute and
parallelism level, each 0 to 1), which every verified program has. The heap returns the ball with the highest

    mean + C * sqrt(ln(T + 1) / n) * range

of -ln(time): the mean over the ball's members, n the number of members and of tries from the ball, T all tries, range
that of all verified programs. The fastest member is the parent. With C = 0 only the mean counts.
"""

from __future__ import annotations

import heapq
import math
import random
from dataclasses import dataclass

from hipwright.records import Decision, Evaluation, Expansion
from hipwright.search.descriptor import AXES
from hipwright.search.policies.common import (
    beats,
    beats_best,
    breed,
    by_program,
    comparison,
    opening,
    parent_of,
    ranked,
    rejected,
    time_of,
)
from hipwright.search.view import SearchView, Trial

EPSILON = 0.15
C = 0.5

Point = tuple[float, ...]


@dataclass
class Ball:
    """Programs nearer than epsilon to the first of them. tries: children made from a member."""

    centre: Point
    members: list[Trial]
    tries: int = 0

    def priority(self, total: int, spread: float, weight: float) -> float:
        """The upper bound by which balls are ordered."""
        values = [_value(trial) for trial in self.members]
        n = len(values) + self.tries
        return sum(values) / len(values) + weight * math.sqrt(math.log(total + 1) / n) * spread


class EpsilonHeap:
    """Run settings "epsilon" (0.15) and "heap_c" (0.5)."""

    def select(self, view: SearchView, k: int, rng: random.Random) -> list[Expansion]:
        """Pops the first ball, varies its fastest member, and pushes it back with one more try."""
        balls = net(view)
        values = [_value(trial) for trial in view.verified]
        spread, weight = max(values, default=0.0) - min(values, default=0.0), float(view.settings.get("heap_c", C))
        total = len(view.trials)
        heap = [(-ball.priority(total, spread, weight), index) for index, ball in enumerate(balls)]
        heapq.heapify(heap)
        selected = []
        for number in range(view.next_number, view.next_number + k):
            start = opening(view, number)
            if start is None:
                _, index = heap[0]
                ball = balls[index]
                ball.tries, total = ball.tries + 1, total + 1
                heapq.heapreplace(heap, (-ball.priority(total, spread, weight), index))
                leaders = [ranked(other.members)[0] for other in balls]
                start = breed(view, number, leaders[index], leaders, rng, ball=index)
            selected.append(start)
        return selected

    def accept(self, view: SearchView, trial: Trial, evaluation: Evaluation) -> Decision:
        """Keeps what opens a ball or is faster than the fastest of its ball."""
        if not evaluation.passed:
            return rejected(trial, evaluation)
        best = beats_best(view, evaluation)
        ball = _near(net(view), point(evaluation), _epsilon(view))
        leader = ranked(ball.members)[0] if ball else None
        if best:
            reason = comparison(view, evaluation, view.best, "the best")
        elif leader is None:
            reason = "opens a ball of the net"
        else:
            reason = comparison(view, evaluation, leader, "its ball's fastest,")
        kept = best or beats(view, evaluation, leader)
        return Decision(number=trial.number, program=evaluation.program, kept=kept, best=best, reason=reason)


def net(view: SearchView) -> list[Ball]:
    """Returns the balls after all decided trials, in the order they were opened."""
    balls: list[Ball] = []
    known, home = by_program(view), dict[str, Ball]()
    for trial in view.trials:
        above = parent_of(trial, known)
        if above is not None and above.proposed.program in home:
            home[above.proposed.program].tries += 1
        if not trial.passed or trial.evaluation is None:
            continue
        ball = _near(balls, point(trial.evaluation), _epsilon(view))
        if ball is None:
            ball = Ball(point(trial.evaluation), [])
            balls.append(ball)
        ball.members.append(trial)
        home[trial.proposed.program] = ball
    return balls


def point(evaluation: Evaluation) -> Point:
    """A program's place in descriptor space; a missing or NaN feature counts as 0."""
    figures = (evaluation.features.get(axis, 0.0) for axis in AXES)
    return tuple(min(max(figure, 0.0), 1.0) if figure == figure else 0.0 for figure in figures)


def _near(balls: list[Ball], place: Point, epsilon: float) -> Ball | None:
    return next((ball for ball in balls if math.dist(ball.centre, place) < epsilon), None)


def _epsilon(view: SearchView) -> float:
    return float(view.settings.get("epsilon", EPSILON))


def _value(trial: Trial) -> float:
    time = time_of(trial)
    return -math.log(time) if 0 < time < math.inf else -math.log(1e12)
