"""The four roles of a search and how they are split: policies think, sources write, evaluators judge, the loop acts."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, Protocol

import msgspec

from hipwright.records import Decision, Evaluation, Expansion, Program, Record
from hipwright.search.view import Trial, View

# Faults that say nothing about the program: tried again, and never a score.
INFRASTRUCTURE = ("device", "toolchain", "service", "provider")


class Candidate(Record, frozen=True, kw_only=True):
    """A program and the choices that it was written from; parents are handed to operators in this form."""

    program: Program
    choices: dict[str, Any] = msgspec.field(default_factory=dict)


class Policy(Protocol):
    """What to try and what to keep. Pure: the view and the random numbers handed in decide, nothing else.

    Every policy passes tests/search/contract.py.
    """

    def select(self, view: View, k: int, rng: random.Random) -> list[Expansion]:
        """Exactly `k` expansions, numbered from `view.next_number`; parents are verified programs of the view."""
        ...

    def accept(self, view: View, trial: Trial, evaluation: Evaluation) -> Decision:
        """Whether to keep a new program. Only a program that passed may be kept or the best."""
        ...


class ProposalSource(Protocol):
    """Writes programs. Need not be thread-safe: proposals are made one after another."""

    def initial(self) -> Sequence[dict[str, Any]]:
        """The actions to try first, as expansions with operator "default"; at least one."""
        ...

    def propose(self, expansion: Expansion, parents: Sequence[Candidate], rng: random.Random) -> Candidate:
        """A program for one expansion. The same arguments give the same program. May raise: a failed proposal."""
        ...


class EvaluatorLike(Protocol):
    """Judges programs; `evaluate` may be called from several threads at once."""

    @property
    def fingerprint(self) -> str:
        """What an Evaluation depends on besides the task, the program and the targets."""
        ...

    def evaluate(self, program: Program) -> Evaluation:
        """Every failure of the program comes back inside the Evaluation. Raises only what should end the run."""
        ...
