"""A proposal source over the engine: an operator makes choices, the engine writes the program."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hipwright.records import Program
from hipwright.search.interfaces import Proposal, ProposalRequest
from hipwright.search.operators import Space, complete, operator

Write = Callable[[Mapping[str, Any]], Program]


class EngineSource:
    """A ProposalSource that varies the engine's choices.

    space: from `engine.space(graph)`. write: choices -> Program, e.g. `functools.partial(engine.write, graph)`.
    An expansion's action may hold {"choices": {...}}, which override what the operator drew.
    """

    def __init__(self, space: Space, write: Write) -> None:
        self.space = space
        self._write = write

    def initial(self) -> Sequence[dict[str, Any]]:
        """Returns one action: the engine's defaults."""
        return [{}]

    def prepare(self, asks: Sequence[ProposalRequest]) -> None:
        """Does nothing: writing is fast."""

    def propose(self, ask: ProposalRequest, rng: random.Random) -> Proposal:
        """Applies the expansion's operator to the parents' choices and writes the program."""
        expansion, parents = ask.expansion, ask.parents
        drawn = operator(expansion.operator)(self.space, [parent.choices for parent in parents], rng)
        return self.written({**drawn, **expansion.action.get("choices", {})})

    def written(self, choices: Mapping[str, Any]) -> Proposal:
        """Writes the program for some choices; missing or invalid ones take the engine's default."""
        known = complete(self.space, choices)
        return Proposal(program=self._write(known), choices=known)
