"""The LLM mind as a source of proposals: the asks of a round are worked on side by side before any is handed out."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from hipwright.agents.base import Tools
from hipwright.agents.desk import PromptSession, Steps, WritingRole
from hipwright.agents.optimizer import Optimizer
from hipwright.agents.planner import StrategyPlanner
from hipwright.agents.translator import Translator
from hipwright.errors import HipwrightError, OutOfBudget
from hipwright.llm.records import ModelAnswer, Request
from hipwright.records import Expansion
from hipwright.search.interfaces import Proposal, ProposalRequest

Outcome = Proposal | Exception
WRITERS: Mapping[str, Callable[[], WritingRole]] = {
    "translate": Translator,
    "repair": Translator,
    "improve": Optimizer,
    "plan": StrategyPlanner,
}
"""Which role answers an operator; any other operator is an "improve" where there is a parent."""


@dataclass
class _Talk:
    """One proposal's conversation: what it asks next, or how it ended."""

    ask: ProposalRequest
    steps: Steps[Proposal] | None = None
    request: Request | None = None
    outcome: Outcome | None = None

    def forward(self, answer: ModelAnswer | None) -> None:
        """Up to the next request or the end. None starts it."""
        if self.steps is None:
            return
        try:
            self.request = next(self.steps) if answer is None else self.steps.send(answer)
        except StopIteration as end:
            self.request, self.outcome = None, end.value
        except Exception as problem:  # kept: propose raises it, and the round's other proposals still count
            self.request, self.outcome = None, problem

    def failed(self, error: Exception) -> None:
        """A call brought no answer; the conversation ends with that."""
        self.request, self.outcome = None, error


@dataclass
class LlmSource:
    """A ProposalSource for "translate", "repair", "improve" and "plan". Pure in (ask, answers).

    prepare sends the first call of every ask at once, and goes on with each conversation in a thread of its own. A
    fault of the provider ends the round and is raised by prepare, when every other conversation has ended and its calls
    are logged; all else is raised by propose, for its own proposal: Declined, OutOfBudget.
    """

    tools: Tools
    writers: Mapping[str, Callable[[], WritingRole]] = field(default_factory=lambda: WRITERS)
    _outcomes: dict[int, tuple[Expansion, Outcome]] = field(default_factory=dict)

    def initial(self) -> Sequence[dict[str, Any]]:
        """One action, from the reference alone."""
        return [{}]

    def prepare(self, asks: Sequence[ProposalRequest]) -> None:
        """Have every ask of a round answered. Raises ProviderError and other faults that are not the models'."""
        self._outcomes = {}
        talks = [_Talk(ask, self._steps(ask)) for ask in asks]
        for talk in talks:
            talk.forward(None)
        self._first([talk for talk in talks if talk.request is not None])
        going = [talk for talk in talks if talk.request is not None]
        if going:
            with ThreadPoolExecutor(len(going)) as pool:
                list(pool.map(self._to_the_end, going))
        for talk in talks:
            if talk.outcome is not None:
                self._outcomes[talk.ask.expansion.number] = (talk.ask.expansion, talk.outcome)
        for talk in talks:
            if isinstance(talk.outcome, HipwrightError) and not isinstance(talk.outcome, OutOfBudget):
                raise talk.outcome

    def propose(self, ask: ProposalRequest, rng: random.Random) -> Proposal:
        """What prepare got for this ask; an ask that it has not seen is answered now. rng is not used."""
        number = ask.expansion.number
        if number not in self._outcomes or self._outcomes[number][0] != ask.expansion:
            kept = self._outcomes
            self.prepare([ask])
            self._outcomes = {**kept, **self._outcomes}
        _, outcome = self._outcomes[number]
        if isinstance(outcome, Proposal):
            return outcome
        raise outcome

    # ---------------------------------------------------------------- conversations

    def _steps(self, ask: ProposalRequest) -> Steps[Proposal]:
        usual = "improve" if ask.parents else "translate"
        name = ask.expansion.operator if ask.expansion.operator in self.writers else usual
        return self.writers[name]().talk(PromptSession(self.tools, ask))

    def _first(self, talks: Sequence[_Talk]) -> None:
        """The first call of each, side by side."""
        requests = [talk.request for talk in talks if talk.request is not None]
        answers = self.tools.client.ask_all(requests) if requests else []
        for talk, answer in zip(talks, answers, strict=True):
            if isinstance(answer, ModelAnswer):
                talk.forward(answer)
            else:
                talk.failed(answer)

    def _to_the_end(self, talk: _Talk) -> None:
        while talk.request is not None:
            try:
                answer = self.tools.client.ask(talk.request)
            except Exception as error:  # an error of one call is the end of its own conversation only
                talk.failed(error)
            else:
                talk.forward(answer)
