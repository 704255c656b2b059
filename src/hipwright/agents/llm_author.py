"""Language models as a proposal source: the conversations of a round run concurrently."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from hipwright.agents.base import Tools
from hipwright.agents.optimizer import Optimizer
from hipwright.agents.planner import StrategyPlanner
from hipwright.agents.prompt_session import Conversation, PromptSession, WritingRole
from hipwright.agents.translator import Translator
from hipwright.errors import HipwrightError, OutOfBudget
from hipwright.llm.records import ModelAnswer, Request
from hipwright.records import Expansion
from hipwright.search.interfaces import Proposal, ProposalRequest

Outcome = Proposal | Exception
WRITING_ROLES: Mapping[str, Callable[[], WritingRole]] = {
    "translate": Translator,
    "repair": Translator,
    "improve": Optimizer,
    "plan": StrategyPlanner,
}
"""The role for each operator; any other operator counts as "improve" with a parent, else as "translate"."""


@dataclass
class _ProposalConversation:
    """One proposal's conversation: its next request, or its outcome."""

    ask: ProposalRequest
    steps: Conversation[Proposal] | None = None
    request: Request | None = None
    outcome: Outcome | None = None

    def advance(self, answer: ModelAnswer | None) -> None:
        """Runs to the next request or the end; None starts it."""
        if self.steps is None:
            return
        try:
            self.request = next(self.steps) if answer is None else self.steps.send(answer)
        except StopIteration as end:
            self.request, self.outcome = None, end.value
        except Exception as problem:  # kept for propose, so that the round's other proposals still count
            self.request, self.outcome = None, problem

    def fail(self, error: Exception) -> None:
        """Ends the conversation with the error of a failed call."""
        self.request, self.outcome = None, error


@dataclass
class LlmAuthor:
    """A ProposalSource for "translate", "repair", "improve" and "plan". Pure in (ask, answers).

    `prepare` sends the first calls of all asks together and continues each conversation in its own thread. It raises a
    provider's fault after all conversations have ended and their calls are logged; `propose` raises the other errors of
    its own proposal: NoProposal, OutOfBudget.
    """

    tools: Tools
    roles: Mapping[str, Callable[[], WritingRole]] = field(default_factory=lambda: WRITING_ROLES)
    _outcomes: dict[int, tuple[Expansion, Outcome]] = field(default_factory=dict)

    def initial(self) -> Sequence[dict[str, Any]]:
        """Returns one action: a translation of the reference."""
        return [{}]

    def prepare(self, asks: Sequence[ProposalRequest]) -> None:
        """Runs the conversations of a round. Raises ProviderError and other faults that no answer caused."""
        self._outcomes = {}
        conversations = [_ProposalConversation(ask, self._steps(ask)) for ask in asks]
        for conversation in conversations:
            conversation.advance(None)
        self._send_first_calls([conversation for conversation in conversations if conversation.request is not None])
        going = [conversation for conversation in conversations if conversation.request is not None]
        if going:
            with ThreadPoolExecutor(len(going)) as pool:
                list(pool.map(self._run_to_end, going))
        for conversation in conversations:
            if conversation.outcome is not None:
                self._outcomes[conversation.ask.expansion.number] = (conversation.ask.expansion, conversation.outcome)
        for conversation in conversations:
            if isinstance(conversation.outcome, HipwrightError) and not isinstance(conversation.outcome, OutOfBudget):
                raise conversation.outcome

    def propose(self, ask: ProposalRequest, rng: random.Random) -> Proposal:
        """Returns what `prepare` got for this ask; an ask that it has not seen is answered now. rng is unused."""
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

    def _steps(self, ask: ProposalRequest) -> Conversation[Proposal]:
        usual = "improve" if ask.parents else "translate"
        name = ask.expansion.operator if ask.expansion.operator in self.roles else usual
        return self.roles[name]().converse(PromptSession(self.tools, ask))

    def _send_first_calls(self, conversations: Sequence[_ProposalConversation]) -> None:
        """Sends the first request of each conversation, all concurrently."""
        requests = [conversation.request for conversation in conversations if conversation.request is not None]
        answers = self.tools.client.ask_all(requests) if requests else []
        for conversation, answer in zip(conversations, answers, strict=True):
            if isinstance(answer, ModelAnswer):
                conversation.advance(answer)
            else:
                conversation.fail(answer)

    def _run_to_end(self, conversation: _ProposalConversation) -> None:
        while conversation.request is not None:
            try:
                answer = self.tools.client.ask(conversation.request)
            except Exception as error:  # the error of one call ends its own conversation only
                conversation.fail(error)
            else:
                conversation.advance(answer)
