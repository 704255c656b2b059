"""Makes one attempt: sends a request and reads its stream; detects silence and truncation."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hipwright.llm.call_failure import BrokenStream, SilentStream
from hipwright.llm.records import Finish, Request, Usage

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelMessage, ModelResponse
    from pydantic_ai.models import Model
    from pydantic_ai.settings import ModelSettings

_FINISHES: dict[str, Finish] = {"stop": "stop", "length": "length", "content_filter": "filtered"}


@dataclass(frozen=True)
class AttemptResult:
    """The answer of one attempt. usage: None if the provider counts no tokens."""

    text: str
    finish: Finish
    usage: Usage | None
    model: str


async def attempt(model: Model, request: Request, *, first_seconds: float, idle_seconds: float) -> AttemptResult:
    """Streams one answer. Raises SilentStream, BrokenStream, or an error of pydantic-ai (see call_failure.py).

    first_seconds: the longest silence before the answer begins, while the model queues or reasons; idle_seconds: the
    longest one afterwards.
    """
    from pydantic_ai.direct import model_request_stream

    now, patience = asyncio.get_running_loop().time, first_seconds
    watch = asyncio.timeout(patience)
    try:
        async with (
            watch,
            model_request_stream(model, _messages(request), model_settings=_settings(model, request)) as response,
        ):
            async for event in response:
                if _holds_answer_text(event):
                    patience = idle_seconds
                watch.reschedule(now() + patience)
    except TimeoutError:
        if not watch.expired():
            raise
        raise SilentStream(f"the stream was silent for {patience:g} s") from None
    return _attempt_result(model, response.get())


def _holds_answer_text(event: Any) -> bool:
    """Whether an event holds text of the answer, not of its reasoning."""
    from pydantic_ai.messages import PartDeltaEvent, PartStartEvent, TextPart, TextPartDelta

    if isinstance(event, PartStartEvent):
        return isinstance(event.part, TextPart)
    return isinstance(event, PartDeltaEvent) and isinstance(event.delta, TextPartDelta)


def _attempt_result(model: Model, response: ModelResponse) -> AttemptResult:
    from pydantic_ai.messages import TextPart

    counted = response.usage
    details = response.provider_details or {}
    # pydantic-ai reports "stop" if an OpenAI stream names no reason; usage comes last, so it proves the stream's end
    ended = "finish_reason" in details or response.finish_reason == "content_filter"
    if response.finish_reason is None or (model.system != "anthropic" and not ended and not counted.output_tokens):
        raise BrokenStream("the stream ended before the answer did")
    usage = Usage(
        input_tokens=counted.input_tokens,
        output_tokens=counted.output_tokens,
        cached_tokens=counted.cache_read_tokens,
    )
    return AttemptResult(
        text="".join(part.content for part in response.parts if isinstance(part, TextPart)),
        finish=_FINISHES.get(response.finish_reason, "other"),
        usage=usage if usage.input_tokens or usage.output_tokens else None,
        model=response.model_name or "",
    )


def _messages(request: Request) -> list[ModelMessage]:
    from pydantic_ai.messages import ModelRequest, ModelResponse, SystemPromptPart, TextPart, UserPromptPart

    found: list[ModelMessage] = []
    for message in request.messages:
        if message.role == "assistant":
            found.append(ModelResponse(parts=[TextPart(message.text)]))
            continue
        part = SystemPromptPart(message.text) if message.role == "system" else UserPromptPart(message.text)
        if found and isinstance(found[-1], ModelRequest):
            found[-1] = ModelRequest(parts=[*found[-1].parts, part])
        else:
            found.append(ModelRequest(parts=[part]))
    return found


def _settings(model: Model, request: Request) -> ModelSettings:
    from pydantic_ai.settings import ModelSettings

    settings = ModelSettings(max_tokens=request.max_tokens)
    # reasoning models refuse a temperature, or drop it with a warning
    profile: Any = model.profile
    fixed = profile.get("openai_supports_reasoning") or profile.get("anthropic_disallows_sampling_settings")
    if request.temperature is not None and not fixed:
        settings["temperature"] = request.temperature
    return settings
