"""Draws one proposal from a source, again while it repeats a known program."""

from __future__ import annotations

import random
from collections.abc import Container

from hipwright.archive import Proposed
from hipwright.errors import InfrastructureError
from hipwright.search.interfaces import NoProposal, Proposal, ProposalRequest, ProposalSource

TRIES = 16
"""Draws for one proposal before a duplicate is recorded."""


def draw(source: ProposalSource, ask: ProposalRequest, known: Container[str]) -> tuple[Proposal | None, Proposed]:
    """Returns the first new program, else the last duplicate, else None with the failed proposal."""
    made: Proposal | None = None
    failed = Proposed(expansion=ask.expansion, round=0)
    for attempt in range(TRIES):
        rng = random.Random(f"{ask.view.seed}/propose/{ask.expansion.number}/{attempt}")
        try:
            made = source.propose(ask, rng)
            if made.program.key not in known or not made.redraw:
                break
        except InfrastructureError:
            raise
        except NoProposal as problem:
            failed = Proposed(expansion=ask.expansion, round=0, error=str(problem)[:500], notes=problem.notes)
            return None, failed
        except Exception as problem:  # a source's failure is one bad proposal, not the end of the search
            made, error = None, f"{type(problem).__name__}: {problem}"[:500]
            failed = Proposed(expansion=ask.expansion, round=0, error=error)
    return made, failed
