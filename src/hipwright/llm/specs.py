"""Model specs of the command line (`--llm`), and the choice of a model for a role.

    SPEC     = [ROLE "="] PROVIDER ":" MODEL ["@" BASE_URL] ["*" WEIGHT]
    ROLE     = a lower-case word ("translator"): the spec is for that role only
    PROVIDER = one of `PROVIDERS`
    MODEL    = text without blanks and without "@http://" or "@https://"; of `local` the path of a checkpoint's folder
    BASE_URL = "http://" or "https://", a host, a path; no user, password, query or fragment
    WEIGHT   = a decimal number above 0, 1 by default

Read from the outside in: a final "*" with a number behind it is always the weight, and the first "@http://" or
"@https://" always begins the base URL. So a model may hold ":", "/", "=", "@" and "*" ("qwen3:8b", "claude@20250805"),
and one whose name ends in "*2" is written with its weight: "compatible:odd*2*1".
"""

from __future__ import annotations

import math
import random
import re
from collections.abc import Collection, Iterable
from typing import Literal, get_args
from urllib.parse import urlsplit

from hipwright.errors import BadInput
from hipwright.records import Record

Provider = Literal["openai", "anthropic", "google", "bedrock", "vllm", "sglang", "ollama", "compatible", "local"]
PROVIDERS: tuple[str, ...] = get_args(Provider)

KEYS: dict[str, tuple[str, ...]] = {
    "openai": ("OPENAI_API_KEY",),
    "anthropic": ("ANTHROPIC_API_KEY",),
    "google": ("GOOGLE_API_KEY", "GEMINI_API_KEY"),
    "bedrock": ("AWS_BEARER_TOKEN_BEDROCK", "AWS_ACCESS_KEY_ID", "AWS_PROFILE"),
    "vllm": ("VLLM_API_KEY",),
    "sglang": ("SGLANG_API_KEY",),
    "ollama": ("OLLAMA_API_KEY",),
    "compatible": ("COMPATIBLE_API_KEY",),
    "local": (),
}
"""The environment variables of a provider's key; the first one that is set counts."""

ADDRESSES: dict[str, str] = {
    "vllm": "http://localhost:8000/v1",
    "sglang": "http://localhost:30000/v1",
    "ollama": "http://localhost:11434/v1",
}
"""Default base URLs of self-hosted servers."""

FORM = "[ROLE=]PROVIDER:MODEL[@BASE_URL][*WEIGHT]"

_OUTER = re.compile(r"(?:(?P<role>[a-z][a-z_]*)=)?(?P<provider>[a-z]+):(?P<rest>.+)", re.DOTALL)
_WEIGHT = re.compile(r"\*([0-9]+(?:\.[0-9]+)?|\.[0-9]+)\Z")
_URL = re.compile(r"@(?=https?://)")


class ModelSpec(Record, frozen=True, kw_only=True):
    """One parsed spec. base_url: "" for the provider's own address."""

    provider: Provider
    model: str
    base_url: str = ""
    role: str = ""
    weight: float = 1.0

    @property
    def name(self) -> str:
        """The spec without role and weight, as in a Request; `parse_spec` reads it back."""
        text = f"{self.provider}:{self.model}{'@' + self.base_url if self.base_url else ''}"
        return f"{text}*1" if _WEIGHT.search(text) else text

    @property
    def address(self) -> str:
        """The base URL in use; "" if the provider's SDK has it."""
        return self.base_url or ADDRESSES.get(self.provider, "")

    @property
    def loopback(self) -> bool:
        """Whether the model runs on this machine."""
        host = urlsplit(self.address).hostname or ""
        here = host == "localhost" or host == "::1" or host.startswith("127.")
        return here or self.provider == "local"

    def __str__(self) -> str:
        """The spec in the form of the command line."""
        text = f"{self.provider}:{self.model}{'@' + self.base_url if self.base_url else ''}"
        plain = self.weight == 1.0 and not _WEIGHT.search(text)
        return f"{self.role + '=' if self.role else ''}{text}{'' if plain else '*' + _decimal(self.weight)}"


class Lineup(Record, frozen=True, kw_only=True):
    """The models of a run."""

    members: tuple[ModelSpec, ...]

    def choose(self, role: str, rng: random.Random) -> str:
        """Draws a model by weight among those for this role, else among those for every role.

        Always takes one draw from rng. Raises BadInput if no model may play the role.
        """
        able = self._able(role)
        if not able:
            raise BadInput(f"no model for the role {role!r}", hint="add --llm PROVIDER:MODEL, which is for every role")
        return rng.choices([one.name for one in able], [one.weight for one in able])[0]

    def specs(self) -> list[str]:
        """The specs in the form of the command line, in the given order."""
        return [str(one) for one in self.members]

    def _able(self, role: str) -> list[ModelSpec]:
        own = [one for one in self.members if one.role == role]
        return own or [one for one in self.members if not one.role]


def parse_specs(specs: Iterable[str], roles: Collection[str] | None = None) -> Lineup:
    """Reads the values of --llm. Raises BadInput. roles: the known ones, None for any."""
    members = tuple(parse_spec(text) for text in specs)
    for one in members:
        if roles is not None and one.role and one.role not in roles:
            raise _bad(str(one), f"there is no role {one.role!r}", f"roles: {', '.join(sorted(roles))}")
    return Lineup(members=members)


def parse_spec(text: str) -> ModelSpec:
    """Reads one spec. Raises BadInput."""
    outer = _OUTER.fullmatch(text.strip())
    if outer is None:
        raise _bad(text, f"the form is {FORM}", "for example --llm openai:gpt-5 or --llm vllm:my-model")
    provider = outer["provider"]
    if provider not in PROVIDERS:
        raise _bad(text, f"there is no provider {provider!r}", f"providers: {', '.join(PROVIDERS)}")
    rest, weight = _weight(outer["rest"], text)
    model, *urls = _URL.split(rest, maxsplit=1)
    if not model or not model.isprintable() or " " in model:
        raise _bad(text, "the model's name is empty or has blanks in it", f"the form is {FORM}")
    base_url = _base_url(urls[0], text) if urls else ""
    if provider == "compatible" and not base_url:
        raise _bad(text, "a compatible server needs its base URL", "compatible:MODEL@http://HOST:PORT/v1")
    if provider == "local" and base_url:
        raise _bad(text, "a local checkpoint has no base URL", "local:PATH, the folder of a checkpoint")
    return ModelSpec.from_dict(
        {"provider": provider, "model": model, "base_url": base_url, "role": outer["role"] or "", "weight": weight}
    )


def _weight(rest: str, text: str) -> tuple[str, float]:
    found = _WEIGHT.search(rest)
    if found is None:
        return rest, 1.0
    weight = float(found[1])
    if not 0 < weight < math.inf:
        raise _bad(text, "a weight is a number above 0", "leave a model out rather than give it the weight 0")
    return rest[: found.start()], weight


def _base_url(url: str, text: str) -> str:
    """Checks a URL; drops a final "/", so that equal servers have equal names."""
    try:
        parts = urlsplit(url)
        sound = bool(parts.hostname) and url.isprintable() and " " not in url and parts.port != 0
    except ValueError:
        sound = False
    if not sound:
        raise _bad(text, "the base URL is not a URL", "for example http://localhost:8000/v1")
    if "@" in parts.netloc:
        raise BadInput(
            "a base URL may not hold a user or a password",
            hint="put the key into the provider's environment variable (docs/llm.md)",
        )
    if "?" in url or "#" in url:
        raise BadInput(
            "a base URL may not hold a query or a fragment",
            hint="put the key into the provider's environment variable (docs/llm.md)",
        )
    return url.rstrip("/")


def _decimal(weight: float) -> str:
    """Formats a positive float exactly in decimals; repr would write 1e-07."""
    from decimal import Decimal

    text = format(Decimal(repr(weight)), "f")
    return text.removesuffix(".0")


def _bad(text: str, why: str, hint: str) -> BadInput:
    from hipwright.llm.secrets import redact

    return BadInput(f"--llm {redact(text)}: {why}", hint=hint)
