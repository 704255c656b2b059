"""Tariffs: prices per million tokens of each kind, from genai-prices' bundled data or from `--price`."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any, Literal

from hipwright.errors import BadInput
from hipwright.llm.specs import ModelSpec
from hipwright.records import Record

_PROVIDERS = {"openai": "openai", "anthropic": "anthropic", "google": "google", "bedrock": "aws"}


class Tier(Record, frozen=True, kw_only=True):
    """Dollars per million tokens, for a whole call with more than `above` input tokens.

    cached: input read from the provider's cache. request: dollars per call.
    """

    above: int = -1
    input: float = 0.0
    cached: float = 0.0
    output: float = 0.0
    request: float = 0.0

    def nano(self, fresh: int, cached: int, output: int) -> int:
        """The price in billionths of a dollar, rounded up once."""
        tokens = ((fresh, self.input), (cached, self.cached), (output, self.output))
        # a dollar a million tokens is 1000 billionths a token
        exact = sum(count * _exact(rate) * 1000 for count, rate in tokens) + _exact(self.request) * 10**9
        return math.ceil(exact)


class Tariff(Record, frozen=True, kw_only=True):
    """The prices of one model. tiers: by `above`, ascending; none where nothing is charged or known.

    source: "given", "genai-prices PROVIDER/MODEL", "local" or "unknown".
    """

    source: str
    tiers: tuple[Tier, ...] = ()

    @property
    def priced(self) -> bool:
        """Whether the price is known in dollars."""
        return bool(self.tiers)

    def nano(self, fresh: int, cached: int, output: int) -> int:
        """The price of one call in billionths of a dollar; 0 if unknown."""
        tier = next((t for t in reversed(self.tiers) if fresh + cached > t.above), None)
        return tier.nano(fresh, cached, output) if tier else 0

    def most(self, input_tokens: int, output_tokens: int) -> int:
        """The highest price of a call with up to these tokens, whichever of them are cached."""
        reach = [tier for tier in self.tiers if input_tokens > tier.above]
        return max((_dearest(tier).nano(input_tokens, 0, output_tokens) for tier in reach), default=0)


LOCAL = Tariff(source="local")
FREE = Tariff(source="local", tiers=(Tier(),))
"""The tariff of a checkpoint in this process: a known price of 0."""
UNKNOWN = Tariff(source="unknown")


def given_tariff(value: str) -> tuple[str, Tariff]:
    """Reads `MODEL=IN,OUT` as (model, tariff). BadInput for anything else."""
    model, separator, rates = value.rpartition("=")
    try:
        dollars, more = (float(rate) for rate in rates.split(","))
    except ValueError:
        separator, dollars, more = "", math.nan, math.nan
    if not model or not separator or not all(math.isfinite(rate) and rate >= 0 for rate in (dollars, more)):
        raise BadInput(f"--price {value}: not MODEL=IN,OUT", hint="in dollars a million tokens, e.g. my-model=0.5,1.5")
    return model, Tariff(source="given", tiers=(Tier(input=dollars, cached=dollars, output=more),))


def package_version() -> str:
    """The name and version of the price data."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return f"genai-prices {version('genai-prices')}"
    except PackageNotFoundError:
        return "none"


def package_tariff(spec: ModelSpec, *, now: datetime | None = None) -> Tariff:
    """The model's tariff in genai-prices' bundled data, else UNKNOWN.

    Prices that vary with the time of day count at their dearest; changes at a later date are not considered.
    """
    try:
        from genai_prices.data_snapshot import get_snapshot
    except ImportError:
        return UNKNOWN
    found = _lookup(get_snapshot(), spec)
    if found is None:
        return UNKNOWN
    provider, model = found
    now = now or datetime.now(UTC)
    # every half hour of the day: the finest resolution of providers' hours
    moments = [now + timedelta(minutes=30 * step) for step in range(48)] if isinstance(model.prices, list) else [now]
    today = [moment.replace(year=now.year, month=now.month, day=now.day) for moment in moments]
    lists = [prices for prices in map(model.get_prices, today) if _complete(prices)]
    if not lists:
        return UNKNOWN
    # except for Claude, uncached input may be billed as a cache write
    writes = "claude" not in model.id and provider.id != "anthropic"
    return Tariff(source=f"genai-prices {provider.id}/{model.id}", tiers=_tiers(lists, writes))


def _lookup(data: Any, spec: ModelSpec) -> tuple[Any, Any] | None:
    """Finds (provider, model) in the data: by base URL, else by provider; None if missing."""
    places: list[dict[Literal["provider_id", "provider_api_url"], str | None]] = []
    if spec.base_url and not spec.loopback:
        places.append({"provider_id": None, "provider_api_url": spec.base_url})
    if spec.provider in _PROVIDERS:
        places.append({"provider_id": _PROVIDERS[spec.provider], "provider_api_url": None})
    for place in places:
        try:
            found: tuple[Any, Any] = data.find_provider_model(spec.model, None, **place)
            return found
        except LookupError:
            continue
    return None


def _complete(prices: Any) -> bool:
    return prices.input_mtok is not None and prices.output_mtok is not None


def _tiers(lists: list[Any], writes: bool) -> tuple[Tier, ...]:
    """The dearest of several price lists, as tiers for whole calls."""
    starts = {-1} | {tier.start for prices in lists for rate in vars(prices).values() for tier in _steps(rate)}
    return tuple(_tier(lists, above, writes) for above in sorted(starts))


def _tier(lists: list[Any], above: int, writes: bool) -> Tier:
    def dearest(*keys: str) -> float:
        return float(max(_rate(getattr(prices, key), above) for prices in lists for key in keys))

    fresh = dearest("input_mtok", "cache_write_mtok") if writes else dearest("input_mtok")
    # without its own price, cached input is billed as input
    cached = float(
        max(
            _rate(prices.input_mtok if prices.cache_read_mtok is None else prices.cache_read_mtok, above)
            for prices in lists
        )
    )
    output = dearest("output_mtok", "output_reasoning_mtok", "output_text_mtok")
    return Tier(above=above, input=fresh, cached=cached, output=output, request=dearest("requests_kcount") / 1000)


def _steps(rate: Any) -> list[Any]:
    return list(getattr(rate, "tiers", ()))


def _rate(rate: Any, above: int) -> Decimal:
    """The price in a rate of genai-prices in the tier above so many input tokens."""
    if rate is None:
        return Decimal(0)
    reached: list[Decimal] = [step.price for step in _steps(rate) if step.start <= above]
    return reached[-1] if reached else Decimal(getattr(rate, "base", rate))


def _dearest(tier: Tier) -> Tier:
    return Tier(input=max(tier.input, tier.cached), output=tier.output, request=tier.request)


def _exact(rate: float) -> Fraction:
    return Fraction(repr(rate))
