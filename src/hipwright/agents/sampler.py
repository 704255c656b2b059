"""Samples a model for a benchmark: K answers per task, one call each, without repair or verification in between.

An answer is parsed, never executed. A request depends on the task, the sample's number and the settings alone, so an
answered call is found again in the log.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from msgspec.structs import replace

from hipwright.agents.base import Asker, Chooser, Tools, render
from hipwright.agents.context import task_text
from hipwright.agents.task_generator import code_of
from hipwright.archive import Archive
from hipwright.errors import HipwrightError, OutOfBudget
from hipwright.evaluation.bench import ModelSample
from hipwright.llm.call_log import CallLog
from hipwright.llm.records import Message, ModelAnswer, Request, Reserved
from hipwright.program.modelnew.check import form_of
from hipwright.records import Expansion, Program, Task, content_key
from hipwright.search import ProposalRequest, SearchView

Form = Literal["program", "modelnew"]
ROLE = "translator"
ANSWER_TOKENS = 8192


@dataclass(frozen=True)
class SampleRequest:
    """One sample to ask for. number: among this task's samples; model: a spec without role and weight."""

    task: Task
    number: int
    model: str


@dataclass(frozen=True)
class SampleResult:
    """The result of one sample: a program, or why there is none (`message`), or the error of the call."""

    sample: SampleRequest
    asked: ModelSample
    program: Program | None = None
    message: str = ""
    error: HipwrightError | None = None


Prompt = Callable[[Task], Sequence[Message]]


def sample_model(lineup: Chooser, seed: int, task: str, number: int) -> str:
    """Draws the model of a sample by weight; the same arguments give the same model."""
    return lineup.choose(ROLE, random.Random(content_key("bench sample", str(seed), task, str(number))))


def draw(
    client: Asker,
    log: CallLog,
    samples: Sequence[SampleRequest],
    prompt: Prompt,
    *,
    form: Form = "program",
    max_tokens: int = ANSWER_TOKENS,
    temperature: float | None = None,
) -> list[SampleResult]:
    """Asks for all samples concurrently; results are in the order of `samples`, with the error of a failed call."""
    prompts = {sample.task.key: tuple(prompt(sample.task)) for sample in samples}
    requests = [
        Request(
            role=ROLE,
            number=sample.number,
            model=sample.model,
            messages=prompts[sample.task.key],
            max_tokens=max_tokens,
            temperature=temperature,
        )
        for sample in samples
    ]
    answers = client.ask_all(requests)
    lost = _by_key(log.lost())
    return [
        _result(sample, answer, lost.get(request.key, []), form)
        for sample, request, answer in zip(samples, requests, answers, strict=True)
    ]


def program_prompt(targets: Sequence[str], archive: Archive) -> Prompt:
    """Returns the translator's prompt for a first try: with knowledge pages, without anything from earlier runs."""

    def prompt(task: Task) -> Sequence[Message]:
        from hipwright.agents.prompt_session import PromptSession
        from hipwright.agents.translator import Translator

        tools = Tools(_UnusedClient(), _UnusedClient(), task, task.source, tuple(targets), archive)
        ask = ProposalRequest(Expansion(number=0, operator="translate"), (), SearchView(seed=0, budget=1))
        return next(Translator().converse(PromptSession(tools, ask))).messages

    return prompt


class _UnusedClient:
    """A placeholder client: only the conversation's first request is used, and `draw` sends it."""

    def ask(self, request: Request) -> ModelAnswer:
        raise AssertionError("rendering a prompt calls no model")

    def ask_all(self, requests: Sequence[Request]) -> list[ModelAnswer | HipwrightError]:
        raise AssertionError("rendering a prompt calls no model")

    def choose(self, role: str, rng: random.Random) -> str:
        return "unused"


SAMPLE_NUMBERS = 10_000
"""The range of proposal numbers of one sample's search, so that no two samples share a call."""


class SampleClient:
    """An Asker for one sample of the pipeline agent: keeps its calls apart from other samples' and counts them."""

    def __init__(self, client: Asker, log: CallLog, model: str, sample: int, temperature: float | None) -> None:
        self._client, self._log, self._model, self._temperature = client, log, model, temperature
        self._offset = sample * SAMPLE_NUMBERS
        self._answers: dict[str, ModelAnswer] = {}
        self._sent: set[str] = set()
        self._budget_spent = False

    def ask(self, request: Request) -> ModelAnswer:
        """As `Client.ask`."""
        try:
            return self._record(self._client.ask(self._renumbered(request)))
        except OutOfBudget:
            self._budget_spent = True
            raise

    def ask_all(self, requests: Sequence[Request]) -> list[ModelAnswer | HipwrightError]:
        """As `Client.ask_all`."""
        answers = self._client.ask_all([self._renumbered(request) for request in requests])
        self._budget_spent |= any(isinstance(one, OutOfBudget) for one in answers)
        return [self._record(one) if isinstance(one, ModelAnswer) else one for one in answers]

    def asked(self, found: bool) -> ModelSample:
        """The cost of the sample's calls."""
        lost = [one for one in self._log.lost() if one.request.key in self._sent]
        asked = _asked(self._model, list(self._answers.values()), lost)
        answer = "program" if found else "nothing verified"
        return replace(asked, agent="pipeline", answer=f"{answer}, budget spent" if self._budget_spent else answer)

    def _renumbered(self, request: Request) -> Request:
        temperature = self._temperature if request.temperature is None else request.temperature
        own = replace(request, number=self._offset + request.number, temperature=temperature)
        self._sent.add(own.key)
        return own

    def _record(self, answer: ModelAnswer) -> ModelAnswer:
        self._answers[answer.request] = answer
        return answer


def modelnew_prompt(targets: Sequence[str]) -> Prompt:
    """Returns the prompt for a file in KernelBench's form."""

    def prompt(task: Task) -> Sequence[Message]:
        system = render("bench_modelnew", targets=", ".join(targets))
        return Message(role="system", text=system), Message(role="user", text=task_text(task, task.source))

    return prompt


def read_modelnew(text: str, finish: str) -> tuple[Program | None, str, str]:
    """Returns (program, kind, why there is none) of an answer that should hold a class ModelNew; executes nothing."""
    code = code_of(text)
    if form_of(code) == "modelnew":
        return Program(form="modelnew", text=code), "modelnew", ""
    if finish == "length":
        return None, "truncated", "the answer ended at its token limit before a class ModelNew was there"
    return None, "no_modelnew", "the answer holds no class ModelNew"


def _result(
    sample: SampleRequest, answer: ModelAnswer | HipwrightError, lost: Sequence[Reserved], form: Form
) -> SampleResult:
    asked = _asked(sample.model, [answer] if isinstance(answer, ModelAnswer) else [], lost)
    if not isinstance(answer, ModelAnswer):
        return SampleResult(sample, asked, error=answer)
    program, kind, why, mended = _read(answer, form, sample.task.source)
    return SampleResult(sample, replace(asked, answer=kind, mended=mended), program, why)


def _read(answer: ModelAnswer, form: Form, source: str) -> tuple[Program | None, str, str, tuple[str, ...]]:
    if form == "modelnew":
        return (*read_modelnew(answer.text, answer.finish), ())
    from hipwright.llm.answers.read import read_answer
    from hipwright.llm.answers.repair import UnusableAnswer

    read = read_answer(answer.text, answer.finish, task_source=source)
    if isinstance(read, UnusableAnswer):
        return None, read.kind, read.message, ()
    return read.program, "program", "", read.mended


def _asked(model: str, answers: Sequence[ModelAnswer], lost: Sequence[Reserved]) -> ModelSample:
    """Sums the cost of calls. A lost attempt counts what it had reserved, all as output tokens."""
    return ModelSample(
        model=model,
        calls=len(answers) + len(lost),
        lost=len(lost),
        input_tokens=sum(one.usage.input_tokens for one in answers),
        output_tokens=sum(one.usage.output_tokens for one in answers) + sum(one.tokens for one in lost),
        cost_usd=sum(one.cost_usd for one in answers) + sum(one.cost_usd for one in lost),
        priced=all(one.priced for one in answers) and bool(answers),
    )


def _by_key(lost: Iterable[Reserved]) -> dict[str, list[Reserved]]:
    found: dict[str, list[Reserved]] = {}
    for one in lost:
        found.setdefault(one.request.key, []).append(one)
    return found
