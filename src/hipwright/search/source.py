"""A proposal source over the engine: an operator makes choices, the engine writes the program."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from hipwright.engine.knobs import GIVEN_UP
from hipwright.records import Program
from hipwright.search.fallback import NOTHING_LEFT, Fallback, notes
from hipwright.search.interfaces import NoProposal, Proposal, ProposalRequest
from hipwright.search.moves import EVERY_MOVE, MOVE, moved
from hipwright.search.operators import Choices, Space, complete, operator
from hipwright.search.view import FALLBACK, SearchView

Write = Callable[[Mapping[str, Any]], Program]


class EngineSource:
    """A ProposalSource that varies the engine's choices.

    space: from `engine.space(graph)`. write: choices -> Program, e.g. `functools.partial(engine.write, graph)`.
    fallback: what to give up when the first answer is refused. base: choices that every program has.
    An expansion's action may hold {"choices": {...}}, which override what the operator drew, or {"move": name}, whose
    change of a parent replaces it.
    """

    def __init__(
        self, space: Space, write: Write, fallback: Fallback | None = None, base: Choices | None = None
    ) -> None:
        self.space = space
        self._write = write
        self.fallback = fallback
        self._base = base or {}

    @property
    def falls_back(self) -> bool:
        """Whether the source answers the operator "fallback"."""
        return self.fallback is not None

    def initial(self) -> Sequence[dict[str, Any]]:
        """Returns one action: the engine's defaults."""
        return [{}]

    def prepare(self, asks: Sequence[ProposalRequest]) -> None:
        """Does nothing: writing is fast."""

    def propose(self, ask: ProposalRequest, rng: random.Random) -> Proposal:
        """Applies the expansion's operator to the parents' choices and writes the program."""
        expansion, parents = ask.expansion, ask.parents
        if expansion.operator == FALLBACK:
            return self._given_up(ask.view)
        named = EVERY_MOVE.get(str(expansion.action.get(MOVE, "")))
        aimed = moved(self.space, parents[0].choices, [named], rng) if named is not None and parents else None
        if aimed is not None:
            return self.written(aimed[0])
        drawn = operator(expansion.operator)(self.space, [parent.choices for parent in parents], rng)
        return self.written({**drawn, **expansion.action.get("choices", {})})

    def written(self, choices: Mapping[str, Any]) -> Proposal:
        """Writes the program for some choices; missing or invalid ones take the engine's default.

        Where operators are given up, other kernels have the names of the space's knobs, and defaults of their own.
        """
        known = complete(self.space, {**self._base, **choices})
        if known.get(GIVEN_UP) != self._base.get(GIVEN_UP):
            known = {key: value for key, value in known.items() if not self._is_default_knob(key, value)}
        return Proposal(program=self._write(known), choices=known)

    def _is_default_knob(self, key: str, value: Any) -> bool:
        choice = self.space.get(key)
        return choice is not None and choice.kind == "knob" and choice.default == value

    def _given_up(self, view: SearchView) -> Proposal:
        """The program of the next step of the fallback. NoProposal where nothing is left to give up, or it cannot be
        written."""
        step = self.fallback.next(view) if self.fallback else None
        if step is None:
            raise NoProposal(NOTHING_LEFT)
        try:
            return replace(self.written({GIVEN_UP: step.given_up}), notes=notes(step), redraw=False)
        except Exception as error:  # the engine's own fault, whatever it is; the next step follows
            raise NoProposal(f"{type(error).__name__}: {error}", notes(step)) from error
