"""The records of calls: JSON round trips, and keys that identify one call."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hipwright.llm.records import Message, ModelAnswer, Request, Reserved, Usage

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
messages = st.lists(
    st.builds(Message, role=st.sampled_from(["system", "user", "assistant"]), text=text), max_size=4
).map(tuple)
requests = st.builds(
    Request,
    role=text,
    number=st.integers(-1, 10**6),
    index=st.integers(0, 99),
    model=text,
    messages=messages,
    max_tokens=st.integers(1, 10**6),
    temperature=st.none() | st.floats(0, 2),
)


@given(requests)
def test_a_request_reads_back_with_its_key(request: Request) -> None:
    again = Request.from_json(request.to_json())
    assert again == request
    assert again.key == request.key
    reserved = Reserved(request=request, cost_usd=0.25, tokens=7)
    assert Reserved.from_dict(reserved.to_dict()) == reserved


@given(requests, requests)
def test_equal_keys_mean_equal_requests(one: Request, other: Request) -> None:
    assert (one.key == other.key) == (one.to_json() == other.to_json())


@pytest.mark.parametrize(
    "change",
    [
        {"role": "planner"},
        {"number": 4},
        {"index": 1},
        {"model": "vllm:other"},
        {"messages": (Message(role="user", text="hello "),)},
        {"messages": (Message(role="system", text="hello"),)},
        {"max_tokens": 8193},
        {"temperature": 0.0},
    ],
    ids=lambda change: f"{next(iter(change))}",
)
def test_every_field_of_a_request_is_in_its_key(change: dict[str, Any]) -> None:
    plain: dict[str, Any] = {
        "role": "translator",
        "number": 3,
        "model": "vllm:m",
        "messages": (Message(role="user", text="hello"),),
    }
    assert Request(**plain).key != Request(**{**plain, **change}).key


def test_an_answer_reads_back() -> None:
    answer = ModelAnswer(
        request="ab" * 10,
        text="ünïcode\n```python\n```",
        finish="length",
        usage=Usage(input_tokens=3, output_tokens=9, cached_tokens=1),
        cost_usd=0.000123,
        priced=True,
        model="m-2026",
        seconds=1.5,
        attempts=3,
    )
    assert ModelAnswer.from_json(answer.to_json()) == answer
