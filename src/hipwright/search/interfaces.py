"""The four roles of a search and how they are split: policies think, sources write, evaluators judge, the loop acts."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec

from hipwright.records import Decision, Evaluation, Expansion, Program, Record
from hipwright.search.view import SearchView, Trial

# Faults that say nothing about the program: tried again, and never a score.
INFRASTRUCTURE = ("device", "toolchain", "service", "provider")


class Proposal(Record, frozen=True, kw_only=True):
    """A program and the choices that it was written from; parents are handed to operators in this form.

    notes: how it came about, in plain JSON types, kept with the proposal. redraw: False where the source would give
    the same again, so that a program that is already known is not asked for another time.
    """

    program: Program
    choices: dict[str, Any] = msgspec.field(default_factory=dict)
    notes: dict[str, Any] = msgspec.field(default_factory=dict)
    redraw: bool = True


@dataclass(frozen=True)
class ProposalRequest:
    """What a source is asked for: one expansion, its parents, and the trials so far (those of completed rounds)."""

    expansion: Expansion
    parents: tuple[Proposal, ...]
    view: SearchView


class NoProposal(Exception):
    """The source has no program for an ask, and asking again would not help. notes: as in Candidate."""

    def __init__(self, message: str, notes: Mapping[str, Any] | None = None) -> None:
        super().__init__(message)
        self.notes = dict(notes or {})


class SearchPolicy(Protocol):
    """What to try and what to keep. Pure: the view and the random numbers handed in decide, nothing else.

    Every policy passes tests/search/policy_contract.py.
    """

    def select(self, view: SearchView, k: int, rng: random.Random) -> list[Expansion]:
        """Exactly `k` expansions, numbered from `view.next_number`; parents are verified programs of the view."""
        ...

    def accept(self, view: SearchView, trial: Trial, evaluation: Evaluation) -> Decision:
        """Whether to keep a new program. Only a program that passed may be kept or the best."""
        ...


class ProposalSource(Protocol):
    """Writes programs. Need not be thread-safe: proposals are made one after another."""

    def initial(self) -> Sequence[dict[str, Any]]:
        """The actions to try first, as expansions with operator "default"; at least one."""
        ...

    def prepare(self, asks: Sequence[ProposalRequest]) -> None:
        """Called before the proposals of a round are made: slow work, such as asking models, runs here side by side.

        Raises only what should end the run.
        """
        ...

    def propose(self, ask: ProposalRequest, rng: random.Random) -> Proposal:
        """A program for one ask. The same arguments give the same program. May raise: a failed proposal (Declined:
        without another draw), or an InfrastructureError, which pauses the run."""
        ...


class EvaluatorLike(Protocol):
    """Judges programs; `evaluate` may be called from several threads at once.

    One that also has `evaluate_many(programs) -> [Evaluation]`, in their order, is given each round whole.
    """

    @property
    def fingerprint(self) -> str:
        """What an Evaluation depends on besides the task, the program and the targets."""
        ...

    def evaluate(self, program: Program) -> Evaluation:
        """Every failure of the program comes back inside the Evaluation. Raises only what should end the run."""
        ...
