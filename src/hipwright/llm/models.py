"""Opens the model of a spec as a pydantic-ai model, with the SDK's retries off: client.py retries."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hipwright.errors import BadInput
from hipwright.llm.checkpoint import check
from hipwright.llm.specs import KEYS, ModelSpec, parse_spec

if TYPE_CHECKING:
    import httpx2
    from pydantic_ai.models import Model

CONNECT_SECONDS = 15.0
"""The timeout for opening a connection. Reading has none: client.py watches the stream."""

NO_KEY = "no-key"
"""The key for self-hosted servers that need none; the SDK requires some text."""


def open_model(spec: str | ModelSpec) -> Model:
    """Opens the model of a spec; sends nothing.

    Raises BadInput if the spec is invalid, the provider's package is missing, or no key is set.
    """
    spec = parse_spec(spec) if isinstance(spec, str) else spec
    try:
        return _OPEN[spec.provider](spec)
    except ImportError as error:
        raise _not_installed(spec, error.name or "pydantic-ai") from error


def check_model(spec: str | ModelSpec) -> None:
    """Raises BadInput if `open_model` would find no key, package or checkpoint; quick, for use before any work."""
    spec = parse_spec(spec) if isinstance(spec, str) else spec
    if importlib.util.find_spec("pydantic_ai") is None:
        raise _not_installed(spec, "pydantic-ai")
    if spec.provider == "local":
        check(Path(spec.model))
    key_of(spec)


def _not_installed(spec: ModelSpec, package: str) -> BadInput:
    extra = spec.provider if spec.provider in ("google", "bedrock") else "llm"
    return BadInput(
        f"{spec.provider} needs a Python package that is not installed ({package})",
        hint=f"pip install 'hipwright[{extra}]'",
    )


async def close_model(model: Model) -> None:
    """Closes a model's connections; runs in the event loop that used them."""
    client: Any = getattr(model, "client", None)
    close = getattr(getattr(client, "aio", None), "aclose", None) or getattr(client, "close", None)
    if close is not None and inspect.isawaitable(closing := close()):
        await closing


def key_of(spec: ModelSpec) -> str:
    """The key from the provider's environment variable; "" for a server of one's own. Raises BadInput without one."""
    for name in KEYS[spec.provider]:
        if value := os.environ.get(name, "").strip():
            return value
    own_server = spec.provider == "openai" and spec.base_url  # it may need no key; one that does says so
    if spec.provider in ("openai", "anthropic", "google") and not own_server:
        raise BadInput(f"no key for {spec.provider}", hint=f"set {' or '.join(KEYS[spec.provider])}")
    return ""


def _timeout() -> httpx2.Timeout:
    import httpx2

    return httpx2.Timeout(None, connect=CONNECT_SECONDS, write=60.0)


def _openai(spec: ModelSpec) -> Model:
    """OpenAI's chat completions API, which self-hosted servers offer too."""
    from openai import AsyncOpenAI
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.profiles.openai import OpenAIModelProfile
    from pydantic_ai.providers.ollama import OllamaProvider
    from pydantic_ai.providers.openai import OpenAIProvider
    from pydantic_ai.providers.openai_compatible import OpenAICompatibleProvider
    from pydantic_ai.providers.vllm import VLLMProvider

    client = AsyncOpenAI(
        base_url=spec.address or None, api_key=key_of(spec) or NO_KEY, max_retries=0, timeout=_timeout()
    )
    if spec.provider == "openai":
        return OpenAIChatModel(spec.model, provider=OpenAIProvider(openai_client=client))
    provider: Any
    if spec.provider == "vllm":
        provider = VLLMProvider(openai_client=client)
    elif spec.provider == "ollama":
        provider = OllamaProvider(openai_client=client)
    else:
        provider = OpenAICompatibleProvider(spec.provider, openai_client=client)
    # all such servers accept `max_tokens`, only newer ones `max_completion_tokens`
    older = OpenAIModelProfile(openai_chat_supports_max_completion_tokens=False)
    return OpenAIChatModel(spec.model, provider=provider, profile=older)


def _anthropic(spec: ModelSpec) -> Model:
    from anthropic import AsyncAnthropic
    from pydantic_ai.models.anthropic import AnthropicModel
    from pydantic_ai.providers.anthropic import AnthropicProvider

    # the SDK appends /v1/messages itself
    address = spec.base_url.removesuffix("/v1") or None
    client = AsyncAnthropic(base_url=address, api_key=key_of(spec), max_retries=0, timeout=_timeout())
    return AnthropicModel(spec.model, provider=AnthropicProvider(anthropic_client=client))


def _google(spec: ModelSpec) -> Model:
    types: Any = importlib.import_module("google.genai.types")
    from pydantic_ai.models.google import GoogleModel
    from pydantic_ai.providers.google import GoogleProvider

    once = types.HttpRetryOptions(attempts=1)
    provider = GoogleProvider(api_key=key_of(spec), base_url=spec.base_url or None, retry_options=once)
    return GoogleModel(spec.model, provider=provider)


def _bedrock(spec: ModelSpec) -> Model:
    """boto3 finds keys and region in the usual places, including AWS_BEARER_TOKEN_BEDROCK."""
    boto3: Any = importlib.import_module("boto3")
    botocore: Any = importlib.import_module("botocore.exceptions")
    config: Any = importlib.import_module("botocore.config")
    from pydantic_ai.models.bedrock import BedrockConverseModel
    from pydantic_ai.providers.bedrock import BedrockProvider

    once = config.Config(connect_timeout=CONNECT_SECONDS, read_timeout=900, retries={"total_max_attempts": 1})
    try:
        client = boto3.client("bedrock-runtime", endpoint_url=spec.base_url or None, config=once)
    except botocore.NoRegionError as error:
        raise BadInput("no AWS region for bedrock", hint="set AWS_DEFAULT_REGION") from error
    return BedrockConverseModel(spec.model, provider=BedrockProvider(bedrock_client=client))


def _local(spec: ModelSpec) -> Model:
    from hipwright.llm.local import open_local

    return open_local(spec.model)


_OPEN = {
    "openai": _openai,
    "vllm": _openai,
    "sglang": _openai,
    "ollama": _openai,
    "compatible": _openai,
    "anthropic": _anthropic,
    "google": _google,
    "bedrock": _bedrock,
    "local": _local,
}
