"""Prices of calls: what one cost, and the most it may cost.

Prices come from `--price`, else from the data bundled with the package genai-prices, never from the network. A run
keeps its initial tariffs (`Prices.snapshot`), so that a resumed or replayed run has the same prices.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from hipwright.errors import BadInput
from hipwright.llm.cost.budget import NANO, SpendingLimits
from hipwright.llm.cost.tariffs import FREE, LOCAL, UNKNOWN, Tariff, given_tariff, package_tariff, package_version
from hipwright.llm.records import Message, Usage
from hipwright.llm.specs import ModelSpec, parse_spec

REQUEST_TOKENS = 256
"""Tokens that a provider may add to a request (chat templates; a default system prompt)."""
MESSAGE_TOKENS = 16
"""Tokens that a provider may add around each message (role names, separators)."""


class Prices:
    """A price list. given: `--price` by spec or model name; frozen: tariffs by spec from a run's settings."""

    def __init__(self, given: Mapping[str, Tariff] | None = None, frozen: Mapping[str, Tariff] | None = None) -> None:
        self._given, self._known = dict(given or {}), dict(frozen or {})

    @classmethod
    def from_snapshot(cls, snapshot: Mapping[str, Any]) -> Prices:
        """Reads the price list from a run's settings. BadInput if it cannot be read."""
        try:
            return cls(frozen={spec: Tariff.from_dict(tariff) for spec, tariff in snapshot["tariffs"].items()})
        except (msgspec.ValidationError, KeyError, TypeError, AttributeError) as error:
            raise BadInput(f"the run's record of prices cannot be read: {error}") from error

    def snapshot(self, specs: Iterable[str], *, now: datetime | None = None) -> dict[str, Any]:
        """The tariff of each spec with its source, as plain JSON for Run.settings."""
        tariffs = {parse_spec(spec).name: self.tariff(spec, now=now).to_dict() for spec in specs}
        return {"package": package_version(), "tariffs": tariffs}

    def tariff(self, spec: str, *, now: datetime | None = None) -> Tariff:
        """The tariff of a model; constant for the life of this list. now: for tests."""
        parsed = parse_spec(spec)
        if parsed.name not in self._known:
            self._known[parsed.name] = self._find(parsed, now)
        return self._known[parsed.name]

    def price(self, spec: str, usage: Usage) -> tuple[float, bool]:
        """(dollars of one call, whether its price is known); (0.0, False) without a price."""
        tariff = self.tariff(spec)
        cached = min(usage.cached_tokens, usage.input_tokens)
        nano = tariff.nano(usage.input_tokens - cached, cached, usage.output_tokens)
        return nano / NANO, tariff.priced

    def bound(self, spec: str, messages: Sequence[Message], max_tokens: int) -> tuple[float, int, bool]:
        """The upper bound (dollars, tokens in and out, priced) of one call.

        A token stands for at least one byte of text. Dollars: at the dearest kind of input token and the dearest tier
        that the tokens can reach.
        """
        tariff, tokens = self.tariff(spec), input_bound(messages)
        return tariff.most(tokens, max_tokens) / NANO, tokens + max_tokens, tariff.priced

    def _find(self, spec: ModelSpec, now: datetime | None) -> Tariff:
        for name in (spec.name, spec.model):
            if name in self._given:
                return self._given[name]
        if spec.provider == "local":
            return FREE
        if spec.loopback and spec.provider in ("vllm", "sglang", "ollama", "compatible"):
            return LOCAL
        return package_tariff(spec, now=now)


def input_bound(messages: Sequence[Message]) -> int:
    """An upper bound of the input tokens for any tokenizer: bytes of UTF-8, plus what providers add."""
    return REQUEST_TOKENS + sum(MESSAGE_TOKENS + _bytes(message.text) for message in messages)


def _bytes(text: str) -> int:
    """Bytes of a text, or of its NFKC form, which some tokenizers use: one ligature can become 18 letters."""
    plain = len(text.encode("utf-8", "replace"))
    return plain if text.isascii() else max(plain, len(unicodedata.normalize("NFKC", text).encode("utf-8", "replace")))


def parse_prices(values: Iterable[str]) -> dict[str, Tariff]:
    """Reads the values of `--price MODEL=IN,OUT` (dollars per million tokens). BadInput for anything else.

    MODEL: a model's name or a whole spec without role and weight.
    """
    return dict(given_tariff(value) for value in values)


def require_prices(specs: Iterable[str], given: Mapping[str, Tariff] | Prices, limits: SpendingLimits) -> None:
    """Raises BadInput if a dollar limit cannot be enforced because a model's price is unknown."""
    if limits.usd is None:
        return
    prices = given if isinstance(given, Prices) else Prices(given)
    unknown = sorted({parse_spec(spec).name for spec in specs if prices.tariff(spec).source == UNKNOWN.source})
    if unknown:
        raise BadInput(
            f"--max-usd cannot be kept: no price is known for {', '.join(unknown)}",
            hint=f"give it in dollars a million tokens: --price '{unknown[0]}=IN,OUT', or limit by --max-tokens",
        )


_default = Prices()
price = _default.price
bound = _default.bound
snapshot = _default.snapshot
