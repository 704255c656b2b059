"""Protocols of the search: a policy selects and accepts, a source writes programs, an evaluator judges them."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec

from hipwright.records import Decision, Evaluation, Expansion, Program, Record
from hipwright.search.view import SearchView, Trial

INFRASTRUCTURE = ("device", "toolchain", "service", "provider")
"""Faults that say nothing about the program: the evaluation is repeated, and never becomes a score."""


class Proposal(Record, frozen=True, kw_only=True):
    """A program and the choices that it was written from; operators get parents in this form.

    notes: the proposal's origin in plain JSON types, stored with it. redraw: False where another draw would give the
    same program, so that a duplicate is not drawn again.
    """

    program: Program
    choices: dict[str, Any] = msgspec.field(default_factory=dict)
    notes: dict[str, Any] = msgspec.field(default_factory=dict)
    redraw: bool = True


@dataclass(frozen=True)
class ProposalRequest:
    """A request for one program: the expansion, its parents, and the trials of all completed rounds."""

    expansion: Expansion
    parents: tuple[Proposal, ...]
    view: SearchView


class NoProposal(Exception):
    """Raised by a source that has no program for a request; another draw would not help. notes: as in Proposal."""

    def __init__(self, message: str, notes: Mapping[str, Any] | None = None) -> None:
        super().__init__(message)
        self.notes = dict(notes or {})


class SearchPolicy(Protocol):
    """Selects what to try and accepts what to keep. Pure: a function of the view and the given random numbers.

    Every policy passes tests/search/test_policy_contract.py.
    """

    def select(self, view: SearchView, k: int, rng: random.Random) -> list[Expansion]:
        """Returns `k` expansions, numbered from `view.next_number`; parents are verified programs of the view."""
        ...

    def accept(self, view: SearchView, trial: Trial, evaluation: Evaluation) -> Decision:
        """Decides whether to keep a new program. Only a program that passed may be kept or be the best."""
        ...


class ProposalSource(Protocol):
    """Writes programs. Need not be thread-safe: `propose` is called for one request after another."""

    def initial(self) -> Sequence[dict[str, Any]]:
        """Returns the actions to try first, for expansions with operator "default"; at least one.

        An action that holds "start" is for one with operator "start": the caller's own program."""
        ...

    def prepare(self, asks: Sequence[ProposalRequest]) -> None:
        """Called once a round, before `propose`: slow work, such as calls to models, runs concurrently here.

        Raises only what should end the run.
        """
        ...

    def propose(self, ask: ProposalRequest, rng: random.Random) -> Proposal:
        """Returns a program for one request; the same arguments give the same program.

        An exception is a failed proposal (NoProposal: without another draw); an InfrastructureError pauses the run.
        """
        ...


class EvaluatorLike(Protocol):
    """Judges programs; `evaluate` may be called from several threads at once.

    An evaluator with `evaluate_many(programs) -> [Evaluation]` (same order) gets each round as one batch.
    """

    @property
    def fingerprint(self) -> str:
        """Identifies all that an Evaluation depends on besides the task, the program and the targets."""
        ...

    def evaluate(self, program: Program) -> Evaluation:
        """Evaluates a program; its failures are part of the Evaluation. Raises only what should end the run."""
        ...
