"""A local checkpoint as a model of the agents: `--llm local:PATH` (docs/llm.md).

It has the pydantic-ai interface of a provider's model. Answers are generated one at a time in a background thread.
Imported lazily: pydantic-ai takes a second.
"""

from __future__ import annotations

import asyncio
import itertools
import re
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic_ai.exceptions import ModelContextWindowExceededError
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    ModelResponseStreamEvent,
    SystemPromptPart,
    TextPart,
    UserPromptPart,
)
from pydantic_ai.models import Model, ModelRequestParameters, StreamedResponse
from pydantic_ai.profiles import ModelProfile
from pydantic_ai.settings import ModelSettings
from pydantic_ai.usage import RequestUsage

from hipwright.llm import compact
from hipwright.llm.checkpoint import Checkpoint, load

KEEP_ALIVE_SECONDS = 5.0
"""Interval of keep-alive events while an answer waits or is generated, so that silence means a hang."""

_BLOCK = re.compile(r"^(`{3,})python\n(.*?)^\1`*[ \t]*$", re.MULTILINE | re.DOTALL)
_one_at_a_time = ThreadPoolExecutor(1, "hipwright-local")
"""Generates one answer at a time: two would share the same cores or GPU."""
_numbers = itertools.count()
"""Numbers the answers of a process: the default seeds."""


@dataclass(frozen=True)
class LocalAnswer:
    """A generated answer. ended: by itself, not at a token limit."""

    text: str
    input_tokens: int
    output_tokens: int
    ended: bool


class LocalModel(Model):
    """A checkpoint with pydantic-ai's model interface; its price is 0."""

    def __init__(self, path: str, checkpoint: Checkpoint) -> None:
        super().__init__(profile=ModelProfile())
        self._path, self._checkpoint = path, checkpoint

    @property
    def model_name(self) -> str:
        """The path as given."""
        return self._path

    @property
    def system(self) -> str:
        """The provider's name."""
        return "local"

    async def request(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
    ) -> ModelResponse:
        """Returns a whole answer."""
        async with self.request_stream(messages, model_settings, model_request_parameters) as stream:
            async for _ in stream:
                pass
            return stream.get()

    @asynccontextmanager
    async def request_stream(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
        run_context: Any = None,
    ) -> AsyncGenerator[StreamedResponse]:
        """Streams keep-alive events, then the whole answer. Leaving the context early stops generation."""
        settings: dict[str, Any] = dict(model_settings or {})
        stop, seed = threading.Event(), settings.get("seed", next(_numbers))
        work = _one_at_a_time.submit(self._write, _plain(messages), settings, seed, stop)
        stream = LocalStream(model_request_parameters=model_request_parameters, path=self._path)
        stream.written = asyncio.wrap_future(work)
        try:
            yield stream
        finally:
            stop.set()
            work.cancel()

    def _write(
        self, messages: list[dict[str, str]], settings: dict[str, Any], seed: int, stop: threading.Event
    ) -> LocalAnswer:
        """Generates an answer, in the background thread. ModelContextWindowExceededError if the prompt is too long."""
        checkpoint, most = self._checkpoint, int(settings.get("max_tokens") or self._checkpoint.context)
        asked = messages
        if checkpoint.form == "compact":
            source = reference(messages)
            if source is None:
                return LocalAnswer("(this model only writes programs for a reference)", 0, 1, True)
            asked = [{"role": "user", "content": compact.prompt(source)}]
        prompt = checkpoint.encode(asked)
        if len(prompt) >= checkpoint.context:
            if checkpoint.form == "compact":  # a small context is normal here: the engine proposes instead
                return LocalAnswer("(the reference is too long for this model)", len(prompt), 1, True)
            raise ModelContextWindowExceededError(
                self._path, f"the prompt has {len(prompt)} tokens, the model takes {checkpoint.context}"
            )
        sampling = checkpoint.sampling
        if (temperature := settings.get("temperature")) is not None:
            sampling = replace(sampling, temperature=float(temperature))
        tokens, ended = checkpoint.generate(prompt, most=most, sampling=sampling, seed=seed, stop=stop)
        text = checkpoint.decode(tokens)
        if checkpoint.form == "compact":
            text = fenced(compact.expand(text))
        return LocalAnswer(text, len(prompt), len(tokens) + ended, ended)


@dataclass
class LocalStream(StreamedResponse):
    """The stream of `request_stream`."""

    path: str
    written: asyncio.Future[LocalAnswer] = field(init=False, repr=False)
    begun: datetime = field(default_factory=lambda: datetime.now(UTC))

    async def _get_event_iterator(self) -> AsyncIterator[ModelResponseStreamEvent]:
        while not (await asyncio.wait({self.written}, timeout=KEEP_ALIVE_SECONDS))[0]:
            for event in self._parts_manager.handle_thinking_delta(vendor_part_id="waiting", content=""):
                yield event
        answer = self.written.result()
        for event in self._parts_manager.handle_text_delta(vendor_part_id="answer", content=answer.text):
            yield event
        self._usage = RequestUsage(input_tokens=answer.input_tokens, output_tokens=answer.output_tokens)
        self.finish_reason = "stop" if answer.ended else "length"
        self.provider_details = {"finish_reason": self.finish_reason}

    @property
    def model_name(self) -> str:
        """The path as given."""
        return self.path

    @property
    def provider_name(self) -> str:
        """The provider's name."""
        return "local"

    @property
    def provider_url(self) -> None:
        """Always None: there is no URL."""
        return

    @property
    def timestamp(self) -> datetime:
        """The time of the request."""
        return self.begun


def open_local(path: str) -> LocalModel:
    """Opens the model of a folder. BadInput if it holds no checkpoint."""
    return LocalModel(path, load(Path(path)))


def reference(messages: Sequence[dict[str, str]]) -> str | None:
    """The reference of a conversation: the first one in the last user message that has any."""
    for message in reversed(messages):
        if message["role"] == "user":
            for block in _BLOCK.finditer(message["content"]):
                if "class Model" in block[2]:
                    return block[2]
    return None


def fenced(text: str) -> str:
    """A program as one Markdown block whose fence is longer than any run of backticks in it."""
    marks = "`" * max([3, *(len(run) + 1 for run in re.findall(r"`+", text))])
    return f"{marks}python\n{text.strip(chr(10))}\n{marks}\n"


def _plain(messages: Sequence[ModelMessage]) -> list[dict[str, str]]:
    """Messages as {"role", "content"}, the form of chat templates."""
    found: list[dict[str, str]] = []
    for message in messages:
        if isinstance(message, ModelRequest):
            for part in message.parts:
                if isinstance(part, (SystemPromptPart, UserPromptPart)):
                    role = "system" if isinstance(part, SystemPromptPart) else "user"
                    found.append({"role": role, "content": str(part.content)})
        else:
            text = "".join(part.content for part in message.parts if isinstance(part, TextPart))
            found.append({"role": "assistant", "content": text})
    return found
