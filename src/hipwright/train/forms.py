"""Prompt forms: a problem as prompt tokens, and answer tokens as text. `ChatForm` serves chat models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from hipwright.agents.prompt_session import system
from hipwright.dataset.export.chat import INSTRUCTIONS, SHAPES_NOTE, answer, fence
from hipwright.records import Program
from hipwright.targets import TARGETS
from hipwright.train.records import AnswerOutcome, TrainingProblem, Turn


class PromptForm(Protocol):
    """Encodes prompts and answers. Equal arguments give equal tokens."""

    def encode(self, problem: TrainingProblem, history: Sequence[Turn] = (), context: str = "") -> list[int]:
        """The prompt's tokens. history: earlier answers with their outcomes; context: exemplars and lessons."""
        ...

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of an answer, without its end token."""
        ...

    def target(self, problem: TrainingProblem, program_text: str) -> list[int]:
        """The tokens of the answer to imitate, the end token last."""
        ...


REPAIR_REQUEST = (
    "The verifier refused this program, or it can be better. Give the whole program again, with one change."
)


def repair_message(outcome: AnswerOutcome) -> dict[str, str]:
    """The user message after an answer: the verifier's findings, and the request for a repair."""
    found = outcome.evidence.strip() or outcome.message.strip() or outcome.status
    return {"role": "user", "content": f"## What the verifier found\n{found}\n\n{REPAIR_REQUEST}"}


class ChatForm:
    """Conversations in a tokenizer's chat template, with the prompts of `hipwright dataset` and of the agents.

    tokenizer: a transformers tokenizer with a chat template; None where only `messages` is used. targets: the targets
    that the system prompt names.
    """

    def __init__(self, tokenizer: Any, targets: Sequence[str] = TARGETS.default_offline) -> None:
        self.tokenizer = tokenizer
        self.system = system(targets)

    def messages(
        self, problem: TrainingProblem, history: Sequence[Turn] = (), context: str = ""
    ) -> list[dict[str, str]]:
        """The system and user messages, and for each earlier turn the answer and what the verifier found."""
        parts = [
            INSTRUCTIONS["translate"],
            f"## The reference\n{fence(problem.source, 'python')}",
            context.strip(),
            SHAPES_NOTE,
        ]
        messages = [
            {"role": "system", "content": self.system},
            {"role": "user", "content": "\n\n".join(part for part in parts if part)},
        ]
        for turn in history:
            messages += [{"role": "assistant", "content": turn.completion}, repair_message(turn.outcome)]
        return messages

    def encode(self, problem: TrainingProblem, history: Sequence[Turn] = (), context: str = "") -> list[int]:
        """The prompt's tokens, up to the beginning of the assistant's answer."""
        text = self._text(self.messages(problem, history, context))
        return list(self.tokenizer.encode(text, add_special_tokens=False))

    def decode(self, tokens: Sequence[int]) -> str:
        """The answer's text."""
        return str(self.tokenizer.decode(list(tokens), skip_special_tokens=True))

    def target(self, problem: TrainingProblem, program_text: str) -> list[int]:
        """The tokens of one code block with the program, and the end token."""
        tokens = self.tokenizer.encode(answer(Program(text=program_text)), add_special_tokens=False)
        return [*tokens, int(self.tokenizer.eos_token_id)]

    def _text(self, messages: list[dict[str, str]]) -> str:
        return str(self.tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True))
