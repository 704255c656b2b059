"""Evolution of the meta-prompt and of the schedule of operators, beside that of programs, after KernelFoundry.

A genome is how to vary programs: a weight for each operator, the share of children that follow its guidance, and the
guidance, up to three named moves (search/moves.py). A model's prompt quotes the guidance, the engine's author changes
the choices of one of its moves. Every child carries its genome in its action, so the population is rebuilt from the
log. A genome's fitness is the mean of its children's max(ln(parent's time / child's time), 0), PRIOR counted as one
child. A new genome, a mutation of one of the better half, is tried with the probability BIRTH while there are fewer
than MOST; else the genome with the highest fitness + C sqrt(ln(children of all) / its own) writes the next child.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hipwright.records import Decision, Evaluation, Expansion
from hipwright.search.moves import EVERY_MOVE, MOVE
from hipwright.search.policies.common import (
    OPERATOR_WEIGHTS,
    by_program,
    expansion,
    keep_if_best,
    log_gain,
    opening,
    parent_of,
    ranked,
)
from hipwright.search.view import SearchView, Trial

GENOME = "genome"
"""The key of an action with the genome that wrote it."""
BIRTH, MOST, PRIOR, C = 0.3, 12, 0.05, 0.1
OPERATORS = (*OPERATOR_WEIGHTS, "turn")
GUIDED, GUIDANCE = 0.4, 3


@dataclass
class Genome:
    """One way to vary programs. children: the gains of its children, and PRIOR."""

    number: int
    weights: dict[str, float]
    guided: float
    guidance: tuple[str, ...]
    children: list[float]

    @property
    def fitness(self) -> float:
        """The mean gain of a child."""
        return sum(self.children) / len(self.children)

    def action(self) -> dict[str, Any]:
        """The genome as it stands in an action."""
        rounded = {name: round(weight, 3) for name, weight in self.weights.items()}
        return {
            "number": self.number,
            "weights": rounded,
            "guided": round(self.guided, 3),
            "guidance": [*self.guidance],
        }


class ScheduleEvolution:
    """Run setting "genomes": the most genomes (12)."""

    def select(self, view: SearchView, k: int, rng: random.Random) -> list[Expansion]:
        """A parent by rank r with weight 1 / r^2, varied as the chosen genome says."""
        genomes, elites = population(view), ranked(view.verified)
        selected = []
        for number in range(view.next_number, view.next_number + k):
            start = opening(view, number)
            if start is None:
                genome = _choose(genomes, int(view.settings.get("genomes", MOST)), rng)
                start = _child(view, number, genome, elites, rng)
                genome.children.append(0.0)  # until it is known, so that a round spreads over the genomes
            selected.append(start)
        return selected

    def accept(self, view: SearchView, trial: Trial, evaluation: Evaluation) -> Decision:
        """Keeps what is faster than the best so far."""
        return keep_if_best(view, trial, evaluation, "the best")


def population(view: SearchView) -> list[Genome]:
    """The genomes of all trials with their fitness; the first has the weights that all policies share."""
    found = {0: Genome(0, {**OPERATOR_WEIGHTS, "turn": 0.1}, 0.0, (), [PRIOR])}
    known = by_program(view)
    for trial in view.trials:
        written = trial.proposed.expansion.action.get(GENOME)
        if not isinstance(written, Mapping):
            continue
        genome = found.setdefault(int(written["number"]), _read(written))
        parent = parent_of(trial, known)
        genome.children.append(max(log_gain(trial, parent), 0.0) if parent is not None and trial.passed else 0.0)
    return list(found.values())


def mutated(genome: Genome, number: int, rng: random.Random) -> Genome:
    """A child of a genome: weights times a factor of up to e, and one sentence of the guidance another."""
    weights = {name: weight * math.exp(rng.uniform(-1.0, 1.0)) for name, weight in genome.weights.items()}
    others = [name for name in EVERY_MOVE if name not in genome.guidance]
    guidance = [*genome.guidance, rng.choice(others)]
    while len(guidance) > GUIDANCE:
        guidance.pop(rng.randrange(len(guidance) - 1))
    guided = min(max(genome.guided or GUIDED, 0.1) * math.exp(rng.uniform(-0.5, 0.5)), 0.9)
    return Genome(number, weights, guided, tuple(guidance), [PRIOR])


def _choose(genomes: list[Genome], most: int, rng: random.Random) -> Genome:
    if len(genomes) < most and rng.random() < BIRTH:
        better = sorted(genomes, key=lambda one: (-one.fitness, one.number))[: (len(genomes) + 1) // 2]
        genomes.append(mutated(rng.choice(better), max(one.number for one in genomes) + 1, rng))
        return genomes[-1]
    total = sum(len(one.children) for one in genomes)
    return max(genomes, key=lambda one: one.fitness + C * math.sqrt(math.log(total) / len(one.children)))


def _child(view: SearchView, number: int, genome: Genome, elites: list[Trial], rng: random.Random) -> Expansion:
    parent = rng.choices(elites, [rank**-2.0 for rank in range(1, len(elites) + 1)])[0]
    program, action = parent.proposed.program, {GENOME: genome.action()}
    if genome.guidance and rng.random() < genome.guided:
        return expansion(view, number, "mutate", (program,), **{MOVE: rng.choice(genome.guidance)}, **action)
    operator = rng.choices(list(genome.weights), list(genome.weights.values()))[0]
    others = [one.proposed.program for one in elites if one is not parent]
    if operator == "crossover" and others:
        return expansion(view, number, operator, (program, rng.choice(others)), **action)
    return expansion(view, number, "mutate" if operator == "crossover" else operator, (program,), **action)


def _read(written: Mapping[str, Any]) -> Genome:
    weights = {name: float(written["weights"].get(name, 0.0)) for name in OPERATORS}
    return Genome(int(written["number"]), weights, float(written["guided"]), tuple(written["guidance"]), [PRIOR])
