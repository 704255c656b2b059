"""Classifies failed attempts: whether to retry, whether they may have been billed, what the user should do."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hipwright.llm.secrets import redact
from hipwright.llm.specs import KEYS, ModelSpec

UNBILLED = (425, 429, 500, 503, 529)
"""Statuses with which a provider refuses before running the model. 408, 502 and 504 come from proxies: the model may
have run, so they count as billed."""

CROWDED = (429, 500, 502, 503, 504, 529)
"""Statuses that reduce the concurrency of calls."""


class BrokenStream(Exception):
    """A stream that ended early."""


class SilentStream(Exception):
    """A stream that was silent for too long."""


@dataclass(frozen=True)
class CallFailure:
    """One failed attempt.

    kind: crowded (429, 5xx), network (connections, cuts), stall, garbage (200, but no answer); without a retry: key,
    quota, model, context, request, package. wait: seconds that the provider asked for.
    """

    kind: str
    message: str
    retryable: bool
    billed: bool
    hint: str = ""
    wait: float | None = None
    evidence: dict[str, Any] = field(default_factory=dict)

    @property
    def crowded(self) -> bool:
        """Whether fewer concurrent calls may help."""
        return self.kind == "crowded"


def failure_of(error: Exception, spec: ModelSpec) -> CallFailure:
    """Classifies an exception of a call to `spec`. The text holds no secret."""
    from pydantic_ai import exceptions as ai

    text = _short(error)
    if isinstance(error, SilentStream):
        return CallFailure("stall", text, retryable=True, billed=True)
    if isinstance(error, ai.ModelConnectionError):
        sent = error.phase not in ("pool", "connect")
        return CallFailure("network", f"no connection: {text}", retryable=True, billed=sent, hint=_reach(spec))
    if isinstance(error, ai.ModelQuotaExceededError):
        hint = f"the account at {spec.provider} has run out: top it up; a run that paused goes on by `hipwright resume`"
        return CallFailure("quota", text, retryable=False, billed=False, hint=hint)
    if isinstance(error, ai.ModelHTTPError) and (error.status_code >= 500 or error.status_code in (408, 409, 425, 429)):
        billed = error.in_stream or error.status_code not in UNBILLED
        kind = "crowded" if error.status_code in CROWDED else "network"
        return CallFailure(
            kind, text, retryable=True, billed=billed, wait=error.retry_after, evidence={"http": error.status_code}
        )
    if isinstance(error, ai.ModelRateLimitError | ai.ModelUnavailableError | ai.ModelServerError):
        return CallFailure("crowded", text, retryable=True, billed=True, wait=error.retry_after)
    if isinstance(error, ai.ModelRequestRejectedError | ai.ModelHTTPError):
        return _rejected(error, spec, text)
    if isinstance(error, ai.UserError):
        return CallFailure("package", text, retryable=False, billed=False, hint="see docs/llm.md")
    if isinstance(error, ai.UnexpectedModelBehavior | ai.ModelAPIError | BrokenStream | ValueError):
        return CallFailure("garbage", text, retryable=True, billed=True, hint=_reach(spec))
    if isinstance(error, OSError) or _transport(error):
        return CallFailure("network", text, retryable=True, billed=True, hint=_reach(spec))
    keys = KEYS[spec.provider]
    hint = f"{spec.provider} takes its key from {' or '.join(keys)}; see docs/llm.md" if keys else "see docs/llm.md"
    return CallFailure("package", f"{type(error).__name__}: {text}", retryable=False, billed=True, hint=hint)


def _rejected(error: Exception, spec: ModelSpec, text: str) -> CallFailure:
    from pydantic_ai import exceptions as ai

    if isinstance(error, ai.ModelAuthenticationError):
        hint = (
            f"{spec.provider} refused the key: set {' or '.join(KEYS[spec.provider])} to one that may use {spec.model}"
        )
        kind = "key"
    elif isinstance(error, ai.ModelNotFoundError):
        kind, hint = "model", f"{spec.provider} has no model {spec.model!r}: change --llm"
        if spec.address:
            hint += f", or its base URL {spec.address}"
    elif isinstance(error, ai.ModelContextWindowExceededError):
        kind, hint = "context", f"the prompt is too long for {spec.model}: name a model with a larger context by --llm"
    else:
        kind, hint = "request", f"{spec.model} does not take this request: name another model by --llm"
    status = getattr(error, "status_code", 0)
    return CallFailure(
        kind, text, retryable=False, billed=False, hint=hint, evidence={"http": status} if status else {}
    )


def _reach(spec: ModelSpec) -> str:
    if spec.address:
        return f"is {spec.address} right, and does a server answer there?"
    return "is the network up, and does a proxy stand in between?"


def _transport(error: Exception) -> bool:
    import httpx2

    return isinstance(error, httpx2.HTTPError | httpx2.StreamError)


def _short(error: Exception) -> str:
    """The error's message in one line, without secrets."""
    body = getattr(error, "body", None)
    words = str(error) or type(error).__name__
    if isinstance(body, dict):
        inner = body.get("error", body)
        message = inner.get("message") if isinstance(inner, dict) else inner
        status = getattr(error, "status_code", None)
        if message:
            words = f"{status}: {message}" if status else str(message)
    return redact(" ".join(words.split()))[:500]
