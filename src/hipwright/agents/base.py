"""Shared by all roles: authors, switches, the tools of a role that asks a language model, and prompt templates."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, Protocol

from hipwright.archive import Archive
from hipwright.errors import HipwrightError
from hipwright.llm.records import ModelAnswer, Request
from hipwright.records import Task

if TYPE_CHECKING:
    from jinja2 import Environment

Author = Literal["engine", "llm"]
"""Who does a role's work: the built-in engine or a language model."""


ROLES = ("task_generator", "translator", "optimizer", "planner", "judge", "lessons", "screener", "auditor")
"""The roles that a model may play: what `--llm ROLE=PROVIDER:MODEL` names."""

SWITCHES = (
    "tuned",
    "archive_parents",
    "retrieval",
    "failure_memory",
    "screener",
    "planner",
    "judge",
    "lessons",
    "counters",
)
"""Roles and parts that `--without` may switch off; the others are needed to find or to verify a program."""


class Role(Protocol):
    """One of the cooperating roles. name: as in `--without` and `--llm ROLE=...`."""

    @property
    def name(self) -> str:
        """The role's name."""
        ...


class Asker(Protocol):
    """The part of `hipwright.llm.client.Client` that roles use."""

    def ask(self, request: Request) -> ModelAnswer:
        """Returns the answer to one request. Raises OutOfBudget or ProviderError."""
        ...

    def ask_all(self, requests: Sequence[Request]) -> list[ModelAnswer | HipwrightError]:
        """Sends requests concurrently; returns answers in their order, or the error of a failed call in its place."""
        ...


class Chooser(Protocol):
    """The part of `hipwright.llm.specs.Lineup` that roles use."""

    def choose(self, role: str, rng: random.Random) -> str:
        """Draws the model that a role asks."""
        ...


@dataclass(frozen=True)
class PromptLimits:
    """Size limits of prompts and answers.

    prompt_tokens: of a prompt, estimated (context.py). answer_tokens: of an answer. format_tries: extra calls after an
    unusable answer. exemplars, pages, kernels, failures: the most that one prompt shows.
    """

    prompt_tokens: int = 16_000
    answer_tokens: int = 8192
    format_tries: int = 2
    exemplars: int = 2
    pages: int = 3
    kernels: int = 2
    failures: int = 6


@dataclass(frozen=True)
class Tools:
    """The dependencies of a role that asks a language model.

    graph_text: the reference's source as prompts show it. without: roles and parts that are switched off.
    llm_roles: optional roles that ask a model instead of the engine ("judge", "lessons").
    """

    client: Asker
    lineup: Chooser
    task: Task
    graph_text: str
    targets: tuple[str, ...]
    archive: Archive
    limits: PromptLimits = PromptLimits()
    without: frozenset[str] = frozenset()
    llm_roles: frozenset[str] = field(default_factory=frozenset)


def render(name: str, **values: Any) -> str:
    """Renders the template `prompts/NAME.md`; a missing value is an error."""
    return _environment().get_template(f"{name}.md").render(**values).strip() + "\n"


def fence(text: str, language: str = "") -> str:
    """Returns `text` as a Markdown code block whose fence is longer than any run of backticks in the text."""
    longest = run = 0
    for sign in text:
        run = run + 1 if sign == "`" else 0
        longest = max(longest, run)
    marks = "`" * max(3, longest + 1)
    return f"{marks}{language}\n{text.rstrip()}\n{marks}"


@cache
def _environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    return Environment(
        loader=PackageLoader("hipwright.agents", "prompts"),
        undefined=StrictUndefined,
        autoescape=False,  # prompts are plain text
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
