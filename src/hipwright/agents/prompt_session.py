"""A prompt session: the calls to models for one proposal, repairs of unusable answers, and the proposal's notes.

A conversation is a generator that yields requests and is sent answers. It depends on the ask, the run's archive and the
answers alone, so the same answers give the same requests byte for byte, which replay relies on.
"""

from __future__ import annotations

import random
from collections.abc import Generator, Sequence
from typing import Any, Protocol, TypeVar

from hipwright.agents.base import Role, Tools, render
from hipwright.archive.log import AUTHOR_NOTE
from hipwright.llm.answers.read import UnusableAnswer, read_answer
from hipwright.llm.records import Message, ModelAnswer, Request
from hipwright.program.hazards.report import hazards
from hipwright.records import Evaluation, Program
from hipwright.search.interfaces import NoProposal, Proposal, ProposalRequest
from hipwright.search.view import Trial
from hipwright.targets import NVIDIA, OFFLINE, TARGETS

T = TypeVar("T")
Conversation = Generator[Request, ModelAnswer, T]
"""A conversation, or a part of one, that returns a T."""

SHORT_TOKENS = 4096
"""The token limit of an answer without a program."""


class PromptSession:
    """The state that the roles of one proposal share. notes: of the proposal, in plain JSON types."""

    def __init__(self, tools: Tools, ask: ProposalRequest) -> None:
        self.tools = tools
        self.ask = ask
        settings = dict(ask.view.settings.get("agents") or {})
        self.settings: dict[str, Any] = settings
        self.without = tools.without | frozenset(settings.get("without") or ())
        self.notes: dict[str, Any] = {AUTHOR_NOTE: "llm", "role": "", "model": "", "calls": []}
        self._asked = 0

    # ---------------------------------------------------------------- the run so far

    @property
    def number(self) -> int:
        """The proposal's number."""
        return self.ask.expansion.number

    def enabled(self, name: str) -> bool:
        """Whether a role or part is switched on in this run."""
        return name not in self.without

    def trial(self, program: str) -> Trial | None:
        """The trial that proposed a program."""
        found = (t for t in self.ask.view.trials if t.proposed.program == program and t.proposed.evaluable)
        return next(found, None)

    def evaluation(self, program: str) -> Evaluation | None:
        """A program's evaluation in this run."""
        trial = self.trial(program)
        return trial.evaluation if trial is not None else None

    def hazard_lines(self, program: Program) -> list[str]:
        """The linter's findings in a program, one line each with the fix."""
        found = hazards(program.text, self.tools.targets)
        return [f"{one.name} in line {one.line}: {one.message}. {one.fix}".strip() for one in found]

    # ---------------------------------------------------------------- calls

    def model(self, role: str) -> str:
        """Draws the model that a role asks for this proposal, from the run's seed and the number alone."""
        rng = random.Random(f"{self.ask.view.seed}/llm/{role}/{self.number}")
        return self.tools.lineup.choose(role, rng)

    def ask_model(
        self, role: str, messages: Sequence[Message], max_tokens: int = SHORT_TOKENS
    ) -> Conversation[ModelAnswer]:
        """Makes one call."""
        request = Request(
            role=role,
            number=self.number,
            index=self._asked,
            model=self.model(role),
            messages=tuple(messages),
            max_tokens=min(max_tokens, self.tools.limits.answer_tokens),
        )
        self._asked += 1
        answer = yield request
        self.notes["calls"].append(answer.request)  # the key in the log: the client may have taken a secret out
        return answer

    def write_program(self, role: str, prompt: str) -> Conversation[Proposal]:
        """Asks for a program; an unusable answer is followed by a repair prompt, up to `format_tries` times.

        NoProposal when no answer is usable.
        """
        self.notes |= {"role": role, "model": self.model(role)}
        opening = (Message(role="system", text=system(self.tools.targets)), Message(role="user", text=prompt))
        messages: tuple[Message, ...] = opening
        problem = ""
        for _ in range(1 + self.tools.limits.format_tries):
            answer = yield from self.ask_model(role, messages, self.tools.limits.answer_tokens)
            read = read_answer(answer.text, answer.finish, task_source=self.tools.task.source)
            if not isinstance(read, UnusableAnswer):
                return self._proposal(read.program, read.mended)
            problem = f"{read.kind}: {read.message}"
            self.notes.setdefault("unusable", []).append(read.kind)
            refused_answer = Message(role="assistant", text=answer.text if answer.text.strip() else "(nothing)")
            messages = (*opening, refused_answer, Message(role="user", text=read.repair))
        raise NoProposal(f"no usable answer in {len(self.notes['unusable'])} tries: {problem}"[:500], self.notes)

    def _proposal(self, program: Program, mended: Sequence[str]) -> Proposal:
        if mended:
            self.notes["mended"] = list(mended)
        if found := hazards(program.text, self.tools.targets):
            self.notes["hazards"] = [one.name for one in found]
        return Proposal(program=program, notes=self.notes, redraw=False)


class WritingRole(Role, Protocol):
    """A role that writes programs by asking a model."""

    def converse(self, session: PromptSession) -> Conversation[Proposal]:
        """The conversation for one proposal. Raises NoProposal when it yields no program."""
        ...


def system(targets: Sequence[str]) -> str:
    """The system prompt: the program form, an example, common mistakes on these targets, how to answer."""
    known = [OFFLINE[name] for name in targets if name in OFFLINE]
    # the same source, built by NVRTC: 32 lanes, 48 KiB of LDS unless a kernel opts in to more
    nvidia = any(one.vendor == NVIDIA for one in map(TARGETS.get, targets) if one)
    waves = sorted({target.wave for target in known} | ({32} if nvidia else set())) or [64]
    lds = min([target.lds_per_block >> 10 for target in known] + [48 if nvidia else 64])
    names = [name for name in targets if not TARGETS.is_host(name)]
    return render("system", targets=names, waves=waves, lds_kib=lds, nvidia=nvidia)
