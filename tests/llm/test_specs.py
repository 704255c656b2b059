"""The grammar of --llm, and the choice of a model for a role."""

from __future__ import annotations

import math
import random
from collections import Counter

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from hipwright.errors import BadInput
from hipwright.llm.specs import KEYS, PROVIDERS, ModelSpec, parse_spec, parse_specs

# what a model's name may hold, the signs of the grammar included
name = st.text(st.sampled_from("ab3Z.:/=@*-_é+%"), min_size=1, max_size=12)
url = st.builds(
    "{}://{}{}{}".format,
    st.sampled_from(["http", "https"]),
    st.sampled_from(["localhost", "127.0.0.1", "[::1]", "models.example.org"]),
    st.sampled_from(["", ":8000", ":1"]),
    st.sampled_from(["", "/v1", "/a@b/v1", "/x*2", "/http://y", "/*", "/%7Ea*0.5"]),
)
specs = st.builds(
    ModelSpec,
    provider=st.sampled_from([one for one in PROVIDERS if one not in ("compatible", "local")]),
    model=name,
    base_url=st.just("") | url,
    role=st.sampled_from(["", "translator", "second_judge"]),
    weight=st.just(1.0) | st.floats(1e-12, 1e12),
)


@given(specs)
def test_a_spec_reads_back_as_it_was_written(spec: ModelSpec) -> None:
    assert parse_spec(str(spec)) == spec


@given(specs)
def test_a_name_reads_back_without_role_and_weight(spec: ModelSpec) -> None:
    plain = parse_spec(spec.name)
    assert (plain.provider, plain.model, plain.base_url) == (spec.provider, spec.model, spec.base_url)
    assert (plain.role, plain.weight, plain.name) == ("", 1.0, spec.name)


@given(st.text(max_size=60) | st.builds("vllm:{}".format, st.text(st.sampled_from("ab:@*/=. 0htp\n"), max_size=30)))
def test_any_text_is_a_spec_or_bad_input(text: str) -> None:
    try:
        spec = parse_spec(text)
    except BadInput as error:
        assert error.hint
        return
    assert parse_spec(str(spec)) == spec
    assert 0 < spec.weight < math.inf


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("openai:gpt-5", ModelSpec(provider="openai", model="gpt-5")),
        ("ollama:qwen3:8b", ModelSpec(provider="ollama", model="qwen3:8b")),
        ("planner=google:gemini*0.5", ModelSpec(provider="google", model="gemini", role="planner", weight=0.5)),
        ("anthropic:claude@20250805", ModelSpec(provider="anthropic", model="claude@20250805")),
        ("vllm:org/m@http://h:1/v1/", ModelSpec(provider="vllm", model="org/m", base_url="http://h:1/v1")),
        ("vllm:m@http://h/v1*3", ModelSpec(provider="vllm", model="m", base_url="http://h/v1", weight=3.0)),
        ("vllm:m@http://h/*", ModelSpec(provider="vllm", model="m", base_url="http://h/*")),
        ("vllm:odd*2*1", ModelSpec(provider="vllm", model="odd*2")),
        ("local:out/sft/model", ModelSpec(provider="local", model="out/sft/model")),
        ("vllm:odd*x", ModelSpec(provider="vllm", model="odd*x")),
        ("vllm:a=b", ModelSpec(provider="vllm", model="a=b")),
        ("vllm:m@http://h/a@http://b", ModelSpec(provider="vllm", model="m", base_url="http://h/a@http://b")),
    ],
)
def test_examples(text: str, expected: ModelSpec) -> None:
    assert parse_spec(text) == expected


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("gpt-5", "the form is"),
        ("", "the form is"),
        ("openai:", "the form is"),
        ("openai:*2", "empty"),
        ("openai:a b", "blanks"),
        ("nobody:m", "no provider 'nobody'"),
        ("vllm:m*0", "above 0"),
        ("vllm:m*" + "9" * 400, "above 0"),
        ("compatible:m", "base URL"),
        ("vllm:m@http://", "not a URL"),
        ("vllm:m@http://h:99999/v1", "not a URL"),
        ("vllm:m@http://h/v1?a=b", "query"),
        ("local:/checkpoints/7@http://h/v1", "no base URL"),
    ],
)
def test_bad_specs_say_why(text: str, says: str) -> None:
    with pytest.raises(BadInput, match=says.replace("?", r"\?")) as caught:
        parse_spec(text)
    assert caught.value.hint
    assert caught.value.exit_code == 2


def test_a_password_in_a_url_is_refused_and_not_repeated() -> None:
    for text in ("openai:m@https://user:hunter2hunter2@h/v1", "vllm:m@http://hunter2hunter2@h/v1"):
        with pytest.raises(BadInput) as caught:
            parse_spec(text)
        assert "hunter2" not in f"{caught.value} {caught.value.hint} {caught.value.evidence}"


def test_a_role_has_its_own_models_before_those_for_all() -> None:
    lineup = parse_specs(["vllm:all", "judge=vllm:one", "judge=vllm:two"])
    rng = random.Random(0)
    assert {lineup.choose("planner", rng) for _ in range(20)} == {"vllm:all"}
    assert {lineup.choose("judge", rng) for _ in range(50)} == {"vllm:one", "vllm:two"}
    assert lineup.specs() == ["vllm:all", "judge=vllm:one", "judge=vllm:two"]


def test_weights_are_frequencies_and_the_seed_decides() -> None:
    lineup = parse_specs(["vllm:a*3", "vllm:b"])
    drawn = Counter(lineup.choose("any", random.Random(seed)) for seed in range(2000))
    assert 0.70 < drawn["vllm:a"] / 2000 < 0.80
    assert lineup.choose("any", random.Random(5)) == lineup.choose("any", random.Random(5))


def test_a_role_without_a_model_says_so() -> None:
    lineup = parse_specs(["judge=vllm:m"])
    with pytest.raises(BadInput, match="planner") as caught:
        lineup.choose("planner", random.Random(0))
    assert "--llm" in caught.value.hint


def test_a_misspelt_role_is_bad_input() -> None:
    with pytest.raises(BadInput, match="jugde") as caught:
        parse_specs(["jugde=vllm:m"], roles=("judge", "planner"))
    assert "judge" in caught.value.hint
    assert parse_specs(["judge=vllm:m"], roles=("judge",)).members[0].role == "judge"


@given(specs)
def test_own_servers_have_an_address_and_every_provider_a_key(spec: ModelSpec) -> None:
    assume(not spec.base_url)
    assert KEYS[spec.provider]
    assert spec.loopback == (spec.provider in ("vllm", "sglang", "ollama"))


@pytest.mark.parametrize(
    ("address", "here"),
    [("http://127.0.0.2:8/v1", True), ("http://[::1]:8/v1", True), ("http://10.0.0.1/v1", False)],
)
def test_what_counts_as_this_machine(address: str, here: bool) -> None:
    assert parse_spec(f"compatible:m@{address}").loopback is here
