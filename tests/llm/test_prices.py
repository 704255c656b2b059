"""Prices: equal to the package's arithmetic, bounds never below it, no network access."""

from __future__ import annotations

import functools
import json
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hipwright.errors import BadInput
from hipwright.llm.cost import prices as price_list
from hipwright.llm.cost.budget import NANO, SpendingLimits, to_nano
from hipwright.llm.cost.prices import MESSAGE_TOKENS, REQUEST_TOKENS, Prices, input_bound, parse_prices, require_prices
from hipwright.llm.cost.tariffs import UNKNOWN, Tariff, Tier
from hipwright.llm.records import Message, Usage
from hipwright.llm.specs import parse_spec

WIRES = {
    "openai": "openai:{}",
    "anthropic": "anthropic:{}",
    "google": "google:{}",
    "aws": "bedrock:{}",
    "deepseek": "compatible:{}@https://api.deepseek.com/v1",
    "openrouter": "compatible:{}@https://openrouter.ai/api/v1",
    "perplexity": "compatible:{}@https://api.perplexity.ai",
    "groq": "compatible:{}@https://api.groq.com/openai/v1",
    "x-ai": "compatible:{}@https://api.x.ai/v1",
}


@functools.cache
def models() -> list[tuple[str, Any, Any]]:
    """(spec, provider, model) of every model that a spec can name and that has a price for input and output."""
    from genai_prices.data_snapshot import get_snapshot

    data, found = get_snapshot(), []
    for provider in data.providers:
        for model in provider.models if provider.id in WIRES else ():
            spec = WIRES[provider.id].format(model.id)
            try:
                seen = data.find_provider_model(parse_spec(spec).model, provider, None, None)
            except (BadInput, LookupError):
                continue
            if seen[1] is model and Prices().tariff(spec).priced:
                found.append((spec, provider, model))
    return found


@functools.cache
def listed() -> Prices:
    return Prices()


def tiered() -> list[tuple[str, Any, Any]]:
    return [one for one in models() if len(listed().tariff(one[0]).tiers) > 1]


def cost(provider: Any, model: Any, usage: dict[str, int], when: datetime | None = None) -> Fraction:
    """The price of a call by genai-prices itself, in dollars."""
    from genai_prices import Usage as Used

    found = model.calc_price(Used(**usage), provider, genai_request_timestamp=when or datetime.now(UTC))
    assert isinstance(found.total_price, Decimal)
    return Fraction(found.total_price)


def steady(model: Any) -> bool:
    """Whether the price is constant over the day."""
    return not any(
        type(one.constraint).__name__ == "TimeOfDateConstraint"
        for one in (model.prices if isinstance(model.prices, list) else ())
    )


TEXTS = st.text(max_size=300) | st.sampled_from(["x" * 7, "\ufdfa" * 40, "é" * 9000, "a" * 280_000])
MESSAGES = st.lists(
    st.builds(Message, role=st.sampled_from(["system", "user", "assistant"]), text=TEXTS), min_size=1, max_size=4
)


@settings(max_examples=200)
@given(st.data(), MESSAGES, st.integers(1, 200_000), st.booleans())
def test_a_bound_is_never_below_the_price(data: st.DataObject, messages: list[Message], most: int, steps: bool) -> None:
    spec, provider, model = data.draw(st.sampled_from(tiered() if steps else models()))
    usd, tokens, priced = listed().bound(spec, messages, most)
    assert priced and tokens == input_bound(messages) + most
    fresh = data.draw(st.integers(0, tokens - most) | st.just(tokens - most))
    cached = data.draw(st.integers(0, fresh) | st.sampled_from([0, fresh]))
    out = data.draw(st.integers(0, most) | st.just(most))
    paid, known = listed().price(spec, Usage(input_tokens=fresh, cached_tokens=cached, output_tokens=out))
    assert known and paid <= usd
    usage = {"input_tokens": fresh, "cache_read_tokens": cached, "output_tokens": out}
    when = datetime.now(UTC).replace(hour=data.draw(st.integers(0, 23)))
    real = cost(provider, model, usage, when)
    assert real * NANO <= to_nano(paid), "what is booked is never below what is billed"
    if "claude" not in spec:  # where the cache is written without being asked, a write may be what is billed
        written = {**usage, "cache_write_tokens": data.draw(st.integers(0, fresh - cached))}
        assert cost(provider, model, written, when) * NANO <= to_nano(paid)


def test_the_data_holds_what_the_bounds_are_tested_on() -> None:
    """Samples with tiers, cached tokens, cache writes, prices per request and by the hour, of every API."""
    tariffs = [(spec, listed().tariff(spec), model) for spec, _, model in models()]
    assert len(tariffs) > 400 and len(tiered()) > 30
    assert sum(tariff.tiers[0].cached < tariff.tiers[0].input for _, tariff, _ in tariffs) > 100
    assert any(tariff.tiers[0].request > 0 for _, tariff, _ in tariffs)
    assert any(not steady(model) for _, _, model in tariffs)
    assert {parse_spec(spec).provider for spec, _, _ in tariffs} >= {
        "openai",
        "anthropic",
        "google",
        "bedrock",
        "compatible",
    }


def test_a_price_is_the_packages_own_to_a_billionth() -> None:
    """Without cache writes and hourly prices the prices are equal, rounded up once."""
    usages = [(0, 0, 0), (1, 0, 1), (1234, 1000, 77), (150_000, 20_000, 8192), (250_001, 250_000, 3), (10**6, 1, 10**5)]
    exact = 0
    for spec, provider, model in models():
        prices = model.get_prices(datetime.now(UTC))
        if not steady(model) or (prices.cache_write_mtok is not None and "claude" not in spec):
            continue
        for fresh, cached, out in usages:
            usage = {"input_tokens": fresh, "cache_read_tokens": cached, "output_tokens": out}
            real = cost(provider, model, usage) * NANO
            paid, _ = listed().price(spec, Usage(input_tokens=fresh, cached_tokens=cached, output_tokens=out))
            # reasoning tokens that have a price of their own count as the dearer kind
            if prices.output_reasoning_mtok is None:
                assert to_nano(paid) == -(-real // 1), (spec, usage)
                exact += 1
    assert exact > 1500


def test_prices_by_the_hour_count_at_their_dearest() -> None:
    hourly = [(spec, provider, model) for spec, provider, model in models() if not steady(model)]
    assert hourly
    for spec, provider, model in hourly:
        now = datetime.now(UTC)
        day = [now.replace(hour=0, minute=1) + timedelta(minutes=30 * step) for step in range(48)]
        usage = {"input_tokens": 10**6, "output_tokens": 10**6}
        dearest = max(cost(provider, model, usage, moment) for moment in day)
        assert min(cost(provider, model, usage, moment) for moment in day) < dearest
        for hour in (0, 5, 9, 13, 20):
            fixed = Prices()
            fixed.tariff(spec, now=now.replace(hour=hour))
            paid, _ = fixed.price(spec, Usage(input_tokens=10**6, output_tokens=10**6))
            assert to_nano(paid) == dearest * NANO


@given(MESSAGES)
def test_no_tokenizer_makes_more_tokens_than_the_bound(messages: list[Message]) -> None:
    """At most one token per byte, also after NFKC normalisation."""
    import unicodedata

    forms = [sum(len(unicodedata.normalize(form, m.text).encode()) for m in messages) for form in ("NFC", "NFKC")]
    plain = sum(len(m.text.encode()) for m in messages)
    assert input_bound(messages) >= max(plain, forms[1]) + REQUEST_TOKENS + MESSAGE_TOKENS * len(messages)


def test_a_lone_surrogate_breaks_nothing() -> None:
    assert input_bound([Message(role="user", text="\ud800")]) > REQUEST_TOKENS


def test_tiers_are_for_the_whole_call() -> None:
    prices = Prices(
        {"m": Tariff(source="given", tiers=(Tier(input=1.0, output=2.0), Tier(above=100, input=10.0, output=20.0)))}
    )
    spec = "compatible:m@https://example.com/v1"
    assert prices.price(spec, Usage(input_tokens=100, output_tokens=1)) == (102e-6, True)
    assert prices.price(spec, Usage(input_tokens=101, output_tokens=1)) == (1030e-6, True)


def test_more_cached_than_input_counts_as_all_cached() -> None:
    usage = Usage(input_tokens=1000, cached_tokens=5000, output_tokens=0)
    assert listed().price("openai:gpt-4o", usage) == (0.00125, True)


# ---------------------------------------------------------------- models without a price


@pytest.mark.parametrize(
    "spec",
    [
        "openai:no-such-model",
        "compatible:m@https://llm.example.com/v1",
        "vllm:m@https://gpu.example.com/v1",
        "ollama:m@http://10.0.0.7:11434/v1",
        "bedrock:nobody.no-model",
    ],
)
def test_an_unknown_model_is_not_priced_and_a_dollar_limit_needs_its_price(spec: str) -> None:
    message = [Message(role="user", text="abc")]
    assert Prices().price(spec, Usage(input_tokens=5, output_tokens=5)) == (0.0, False)
    assert Prices().bound(spec, message, 10) == (0.0, 10 + REQUEST_TOKENS + MESSAGE_TOKENS + 3, False)
    require_prices([spec], {}, SpendingLimits(tokens=5))
    with pytest.raises(BadInput, match="no price is known") as caught:
        require_prices([f"writer={spec}*2", "openai:gpt-4o", "vllm:mine"], {}, SpendingLimits(usd=1.0))
    name = parse_spec(spec).name
    assert f"--price '{name}=IN,OUT'" in caught.value.hint and "gpt-4o" not in caught.value.message
    for key in (name, parse_spec(spec).model):  # the hint's own remedy works, by spec and by name
        given_prices = parse_prices([f"{key}=0.5,1.5"])
        require_prices([spec], given_prices, SpendingLimits(usd=1.0))
        require_prices([spec], Prices(given_prices), SpendingLimits(usd=1.0))
        assert Prices(given_prices).price(spec, Usage(input_tokens=2, output_tokens=4)) == (7e-6, True)


@pytest.mark.parametrize(
    "spec",
    ["vllm:m", "sglang:m", "ollama:qwen3:8b", "compatible:m@http://127.0.0.1:1234/v1", "vllm:m@http://localhost:1/v1"],
)
def test_ones_own_machine_costs_nothing(spec: str) -> None:
    assert Prices().tariff(spec).source == "local"
    assert Prices().price(spec, Usage(input_tokens=5, output_tokens=5)) == (0.0, False)
    require_prices([spec], {}, SpendingLimits(usd=0.0))


def test_a_proxy_of_a_paid_provider_on_this_machine_is_priced_as_that_provider() -> None:
    assert Prices().price("openai:gpt-4o@http://127.0.0.1:99/v1", Usage(input_tokens=10**6)) == (2.5, True)


def test_a_given_price_wins_over_the_packages() -> None:
    prices = Prices(parse_prices(["gpt-4o=1,2", "openai:o3=0,0"]))
    assert prices.price("openai:gpt-4o", Usage(input_tokens=10**6, cached_tokens=10**6)) == (1.0, True)
    assert prices.price("openai:o3", Usage(input_tokens=10**6)) == (0.0, True)


@pytest.mark.parametrize("value", ["", "m", "m=", "m=1", "m=1,2,3", "=1,2", "m=-1,2", "m=1,nan", "m=inf,1", "m=a,b"])
def test_what_is_no_price_is_bad_input(value: str) -> None:
    with pytest.raises(BadInput, match="MODEL=IN,OUT"):
        parse_prices([value])


def test_a_model_name_may_hold_an_equals_sign() -> None:
    assert list(parse_prices(["a=b=1,2"])) == ["a=b"]


# ---------------------------------------------------------------- snapshots


def test_a_run_prices_by_its_own_snapshot() -> None:
    """A snapshot is plain JSON and independent of later --price options or package data."""
    specs = ["writer=openai:gpt-4o*3", "compatible:m@https://example.com/v1", "vllm:mine", "openai:no-such-model"]
    taken = Prices(parse_prices(["m=1,2"])).snapshot(specs)
    assert taken["package"].startswith("genai-prices 0.")
    assert set(taken["tariffs"]) == {parse_spec(spec).name for spec in specs}
    again = Prices.from_snapshot(json.loads(json.dumps(taken)))
    usage = Usage(input_tokens=123, cached_tokens=100, output_tokens=45)
    for spec in taken["tariffs"]:
        assert again.price(spec, usage) == Prices(parse_prices(["m=1,2"])).price(spec, usage)
    assert again.snapshot(taken["tariffs"])["tariffs"] == taken["tariffs"]
    dearer = json.loads(json.dumps(taken))
    dearer["tariffs"]["openai:gpt-4o"]["tiers"][0]["output"] = 99.0
    assert Prices.from_snapshot(dearer).price("openai:gpt-4o", Usage(output_tokens=10**6)) == (99.0, True)
    assert Prices.from_snapshot(taken).tariff("openai:no-such-model") == UNKNOWN


@pytest.mark.parametrize("damaged", [{}, {"tariffs": 3}, {"tariffs": {"openai:gpt-4o": {"tiers": "x"}}}])
def test_a_damaged_snapshot_is_bad_input(damaged: dict[str, Any]) -> None:
    with pytest.raises(BadInput, match="record of prices"):
        Prices.from_snapshot(damaged)


# ---------------------------------------------------------------- the network


@pytest.fixture
def blocked(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    import socket

    tried: list[str] = []

    def no(*args: object, **kwargs: object) -> None:
        tried.append(repr(args))
        raise OSError("no network in this test")

    for name in ("connect", "connect_ex", "sendto"):
        monkeypatch.setattr(socket.socket, name, no)
    for name in ("getaddrinfo", "create_connection", "gethostbyname"):
        monkeypatch.setattr(socket, name, no)
    yield tried


def test_prices_never_touch_the_network(blocked: list[str]) -> None:
    import threading

    before = threading.active_count()
    assert Prices().price("openai:gpt-4o", Usage(input_tokens=10**6))[1]
    assert not Prices().price("openai:no-such-model", Usage(input_tokens=10**6))[1]
    Prices().snapshot(["anthropic:claude-sonnet-4-5"])
    assert not blocked and threading.active_count() == before  # no updater in the background either


def test_a_fresh_process_reads_prices_without_a_socket_or_an_http_client() -> None:
    code = """
import socket, sys
def no(*a, **k): raise SystemExit("a socket was made")
socket.socket.__init__ = no
import hipwright.llm.cost.prices as p
assert not {"genai_prices", "pydantic", "pydantic_ai"} & set(sys.modules), "a heavy library at import"
from hipwright.llm.records import Usage
print(p.price("openai:gpt-4o", Usage(input_tokens=1000000)))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == ("(2.5, True)\n", 0), done.stderr


def test_without_the_package_only_given_prices_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "genai_prices.data_snapshot", None)
    assert Prices().tariff("openai:gpt-4o") == UNKNOWN
    assert Prices(parse_prices(["gpt-4o=1,2"])).price("openai:gpt-4o", Usage(input_tokens=10**6)) == (1.0, True)


def test_the_modules_own_functions_are_those_of_a_plain_list() -> None:
    message = [Message(role="user", text="x")]
    assert price_list.price("openai:gpt-4o", Usage(output_tokens=10**6)) == (10.0, True)
    assert price_list.bound("openai:gpt-4o", message, 5) == Prices().bound("openai:gpt-4o", message, 5)
    assert price_list.snapshot(["openai:gpt-4o"]) == Prices().snapshot(["openai:gpt-4o"])
