"""The built-in engine as a source of proposals: choices in, program out."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hipwright.records import Program
from hipwright.search.interfaces import Proposal, ProposalRequest
from hipwright.search.operators import Space, complete, operator

Write = Callable[[Mapping[str, Any]], Program]


class EngineSource:
    """Programs by varying what the engine may choose.

    space: from `engine.space(graph)`. write: choices -> Program, e.g. `functools.partial(engine.write, graph)`.
    An expansion's action may hold {"choices": {...}}, values that are set whatever the operator drew.
    """

    def __init__(self, space: Space, write: Write) -> None:
        self.space = space
        self._write = write

    def initial(self) -> Sequence[dict[str, Any]]:
        """One action: the engine's own choices."""
        return [{}]

    def prepare(self, asks: Sequence[ProposalRequest]) -> None:
        """Nothing here takes long enough."""

    def propose(self, ask: ProposalRequest, rng: random.Random) -> Proposal:
        """Apply the expansion's operator to the parents' choices and write the program."""
        expansion, parents = ask.expansion, ask.parents
        drawn = operator(expansion.operator)(self.space, [parent.choices for parent in parents], rng)
        return self.written({**drawn, **expansion.action.get("choices", {})})

    def written(self, choices: Mapping[str, Any]) -> Proposal:
        """The program for these choices; what they do not name, or name wrongly, takes the engine's choice."""
        known = complete(self.space, choices)
        return Proposal(program=self._write(known), choices=known)
