"""A run that begins with the caller's own program: it is judged first, and is the first parent of the search.

The run setting "start" holds the program's key, its name and form (docs/start.md). The program does not count against
the budget, so the engine's first answer is judged whatever the budget: the answer of the run is the better of both.
Children of the program by the engine's operators are the engine's programs; where the start has knobs, half of them are
the start with one knob changed.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from hipwright.archive.log import AUTHOR_NOTE
from hipwright.errors import ProgramError
from hipwright.program import Knob, parse
from hipwright.records import Program
from hipwright.search.interfaces import Proposal, ProposalRequest, ProposalSource
from hipwright.search.operators import OPERATORS
from hipwright.search.view import START

SETTING = "start"
"""The run setting of a run with a start."""
AUTHOR = "start"
KNOBS_SHARE = 0.5
"""The probability that a child of the start is the start with another knob, not a program of the engine."""


class StartSource:
    """A ProposalSource around another one. program: the start; name: of its file."""

    def __init__(self, inner: ProposalSource, program: Program, name: str) -> None:
        self.inner = inner
        self.program = program
        self.name = name
        self._knobs = {} if program.form != "program" else _knobs(program)

    @property
    def falls_back(self) -> bool:
        """Whether the inner source gives up parts of a refused first answer."""
        return bool(getattr(self.inner, "falls_back", False))

    def initial(self) -> Sequence[dict[str, Any]]:
        """Returns the start, then the inner source's actions."""
        return [{START: self.program.key}, *self.inner.initial()]

    def prepare(self, asks: Sequence[ProposalRequest]) -> None:
        """Prepares the inner source's part of a round."""
        self.inner.prepare([ask for ask in asks if ask.expansion.operator != START])

    def propose(self, ask: ProposalRequest, rng: random.Random) -> Proposal:
        """Returns the start, one with another knob, or the inner source's program."""
        if ask.expansion.operator == START:
            notes = {AUTHOR_NOTE: AUTHOR, "file": self.name}
            return Proposal(program=self.program, notes=notes, redraw=False)
        parent = ask.parents[0].program if ask.parents else None
        of_engine = ask.expansion.operator in OPERATORS and not ask.expansion.action.get("choices")
        varies = parent is not None and parent.text == self.program.text and self._knobs
        if parent is not None and of_engine and varies and rng.random() < KNOBS_SHARE:
            return self._turned(parent, rng)
        return self.inner.propose(ask, rng)

    def _turned(self, parent: Program, rng: random.Random) -> Proposal:
        """The parent with one knob changed."""
        name = rng.choice(sorted(self._knobs))
        knob = self._knobs[name]
        now = parent.knobs.get(name, int(knob.default))
        value = rng.choice([int(one) for one in knob.choices if int(one) != now])
        program = msgspec.structs.replace(parent, knobs={**parent.knobs, name: value})
        return Proposal(program=program, notes={AUTHOR_NOTE: AUTHOR, "knob": f"{name}={value}"})


def started(inner: ProposalSource, setting: Mapping[str, Any] | None, program: Program | None) -> ProposalSource:
    """The source of a run with this setting "start"; the inner one where there is no program to begin with."""
    return StartSource(inner, program, str(setting.get("name", ""))) if setting and program is not None else inner


def _knobs(program: Program) -> dict[str, Knob]:
    """The knobs with several choices of a program; {} for one that does not parse, which the judge will say."""
    try:
        return {name: knob for name, knob in parse(program.text).knobs.items() if len(knob.choices) > 1}
    except ProgramError:
        return {}
