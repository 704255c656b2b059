"""CompactForm: problems and programs in the short form of llm/compact, as tokens of the miniature's tokenizer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hipwright.errors import ProgramError
from hipwright.llm.answers.repair import UnusableAnswer
from hipwright.llm.compact import expand, prompt, shorten
from hipwright.program import parse
from hipwright.records import Program
from hipwright.train.mini.model import ANSWER
from hipwright.train.records import TrainingProblem, Turn

EVIDENCE = 120
"""Characters of the evidence's first line in a repair turn."""


class CompactForm:
    """A PromptForm (train/forms.py). An answer's text is a short program, which `read` expands."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        self._answer, self._end = tokenizer.convert_tokens_to_ids(ANSWER), tokenizer.eos_token_id

    def encode(self, problem: TrainingProblem, history: Sequence[Turn] = (), context: str = "") -> list[int]:
        """The prompt, each earlier answer with its status and first line of evidence, and the answer token."""
        return [*self._tokens(self.text(problem, history, context)), self._answer]

    def text(self, problem: TrainingProblem, history: Sequence[Turn] = (), context: str = "") -> str:
        """The prompt as text, without the answer token."""
        parts = [context.strip() + "\n" if context.strip() else "", prompt(problem.source)]
        for turn in history:
            found = (turn.outcome.evidence or turn.outcome.message).strip().splitlines() or [""]
            parts.append(f"{turn.completion.strip()}\n{turn.outcome.status} {found[0][:EVIDENCE]}".rstrip() + "\n")
        return "".join(parts)

    def decode(self, tokens: Sequence[int]) -> str:
        """The short program."""
        return str(self.tokenizer.decode(list(tokens), skip_special_tokens=True, clean_up_tokenization_spaces=False))

    def target(self, problem: TrainingProblem, program_text: str) -> list[int]:
        """The short program and the end token; a full program is shortened first."""
        return [*self._tokens(shorten(program_text)), self._end]

    def targets(self, short: Sequence[str]) -> list[list[int]]:
        """`target` of several short programs, in one call of the tokenizer."""
        if not short:
            return []
        return [[*ids, self._end] for ids in self.tokenizer(list(short), add_special_tokens=False)["input_ids"]]

    def _tokens(self, text: str) -> list[int]:
        return list(self.tokenizer.encode(text, add_special_tokens=False))


def read(text: str, problem: TrainingProblem) -> Program | UnusableAnswer:
    """The program that a short answer expands to, or why there is none. Never raises and executes nothing."""
    whole = expand(text)
    try:
        parse(whole)
    except ProgramError as error:
        return UnusableAnswer(kind="refused", message=str(error), repair="")
    return Program(text=whole)
