"""What every role shares: its name, its minds, the tools that a role with a language model gets, and its prompts."""

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
"""Who does a role's work: hipwright itself, or a language model."""


ROLES = ("task_generator", "translator", "optimizer", "planner", "judge", "lessons", "screener", "auditor")
"""The roles that a model may play: what `--llm ROLE=PROVIDER:MODEL` names."""

SWITCHES = ("tuned", "archive_parents", "retrieval", "failure_memory", "screener", "planner", "judge", "lessons")
"""What `--without` may leave out. The rest is not to be left out: nothing is found without it, or nothing is true."""


class Role(Protocol):
    """One of the cooperating roles. name: as `--without` and `--llm ROLE=...` say it."""

    @property
    def name(self) -> str:
        """The role's name."""
        ...


class Asker(Protocol):
    """What a role needs of `hipwright.llm.client.Client`."""

    def ask(self, request: Request) -> ModelAnswer:
        """The answer to one request; raises OutOfBudget or ProviderError."""
        ...

    def ask_all(self, requests: Sequence[Request]) -> list[ModelAnswer | HipwrightError]:
        """The answers in the requests' order, asked for side by side; a failed call's error in its place."""
        ...


class Chooser(Protocol):
    """What a role needs of `hipwright.llm.specs.Lineup`."""

    def choose(self, role: str, rng: random.Random) -> str:
        """The model that a role asks this time."""
        ...


@dataclass(frozen=True)
class PromptLimits:
    """How much is asked, and how often.

    prompt_tokens: what a prompt may hold, estimated (context.py). answer_tokens: what an answer may hold. format_tries:
    extra calls for an answer that cannot be used. exemplars, pages, kernels, failures: how many a prompt shows at most.
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
    """What a role with a language model works with.

    graph_text: the reference's source as prompts show it. without: roles and parts that are switched off.
    llm_roles: further roles that ask a model instead of the engine mind ("judge", "lessons").
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
    """The prompt `prompts/NAME.md` with its values; a value that it needs and lacks is an error."""
    return _environment().get_template(f"{name}.md").render(**values).strip() + "\n"


def fence(text: str, language: str = "") -> str:
    """`text` as a Markdown code block that it cannot close: the fence is longer than any run of backticks in it."""
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
