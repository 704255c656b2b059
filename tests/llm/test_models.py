"""Opening models: SDK retries off, no network, no heavy imports before use."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from hipwright.errors import BadInput
from hipwright.llm.models import CONNECT_SECONDS, key_of, open_model
from hipwright.llm.specs import KEYS, parse_spec

HEAVY = ("pydantic_ai", "openai", "anthropic", "genai_prices", "httpx2", "torch")


@pytest.fixture(autouse=True)
def no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for names in KEYS.values():
        for name in names:
            monkeypatch.delenv(name, raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)


@pytest.mark.parametrize(
    ("spec", "address"),
    [
        ("vllm:m", "http://localhost:8000/v1/"),
        ("sglang:m", "http://localhost:30000/v1/"),
        ("ollama:qwen3:8b", "http://localhost:11434/v1/"),
        ("compatible:m@http://127.0.0.1:9/v1", "http://127.0.0.1:9/v1/"),
        ("openai:gpt-5", "https://api.openai.com/v1/"),
        ("openai:gpt-5@https://proxy.example.org/v1", "https://proxy.example.org/v1/"),
        ("anthropic:claude", "https://api.anthropic.com"),
        ("anthropic:claude@https://proxy.example.org/v1", "https://proxy.example.org"),
    ],
)
def test_a_model_has_its_address_and_no_retries(spec: str, address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "not-a-real-key-1")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "not-a-real-key-2")
    model: Any = open_model(spec)
    assert str(model.client.base_url) == address
    assert model.client.max_retries == 0
    assert model.client.timeout.connect == CONNECT_SECONDS
    assert model.model_name == parse_spec(spec).model


@pytest.mark.parametrize(("spec", "variable"), [("openai:m", "OPENAI_API_KEY"), ("anthropic:m", "ANTHROPIC_API_KEY")])
def test_a_missing_key_names_its_variable(spec: str, variable: str) -> None:
    with pytest.raises(BadInput, match="no key") as caught:
        open_model(spec)
    assert variable in caught.value.hint


def test_a_server_of_ones_own_needs_no_key_and_takes_one(monkeypatch: pytest.MonkeyPatch) -> None:
    assert key_of(parse_spec("vllm:m")) == ""
    assert key_of(parse_spec("openai:m@http://127.0.0.1:9/v1")) == ""
    assert open_model("openai:m@http://127.0.0.1:9/v1") is not None
    monkeypatch.setenv("VLLM_API_KEY", " abc ")
    assert key_of(parse_spec("vllm:m")) == "abc"
    monkeypatch.setenv("OPENAI_API_KEY", "not-a-real-key-1")
    model: Any = open_model("compatible:m@http://127.0.0.1:9/v1")
    assert model.client.api_key != "not-a-real-key-1"  # OpenAI's key goes to nobody else


@pytest.mark.parametrize(("spec", "package"), [("google:m", "google.genai.types"), ("bedrock:m", "boto3")])
def test_a_missing_package_says_what_to_install(spec: str, package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(BadInput, match="not installed") as caught:
        open_model(spec)
    assert caught.value.hint == f"pip install 'hipwright[{spec.split(':')[0]}]'"


def test_without_pydantic_ai_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "openai", None)
    with pytest.raises(BadInput, match="openai") as caught:
        open_model("vllm:m")
    assert caught.value.hint == "pip install 'hipwright[llm]'"


def test_importing_the_client_imports_nothing_heavy() -> None:
    code = f"import sys, hipwright.llm.client; print([name for name in {HEAVY} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
