"""Samples of a model: requests, reading of answers, costs, and reuse of answered calls."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hipwright.agents.sampler import (
    SampleClient,
    SampleRequest,
    SampleResult,
    draw,
    modelnew_prompt,
    program_prompt,
    read_modelnew,
    sample_model,
)
from hipwright.archive import Archive
from hipwright.errors import HipwrightError, OutOfBudget, ProviderError
from hipwright.llm.call_log import MemoryCallLog
from hipwright.llm.client import Client
from hipwright.llm.cost.budget import Budget, SpendingLimits
from hipwright.llm.records import Message, Request, Reserved
from hipwright.llm.replay import Replay
from hipwright.llm.specs import parse_specs
from hipwright.records import Task, Workload
from tests.llm.server import LocalProvider, Reply, cut, refused

SOURCE = (Path(__file__).parents[2] / "examples" / "suite" / "1_bias_relu.py").read_text()
TASK = Task(name="1_bias_relu", source=SOURCE, workloads=(Workload(name="given"),))
OTHER = Task(name="other", source=SOURCE.replace("relu(", "tanh("), workloads=(Workload(name="given"),))
PROGRAM = (Path(__file__).parents[2] / "src/hipwright/audit/corpus/program/honest/relu_signed.py").read_text()


def plain(task: Task) -> list[Message]:
    return [Message(role="user", text=task.source)]


def samples(model: str, count: int, task: Task = TASK) -> list[SampleRequest]:
    return [SampleRequest(task, number, model) for number in range(count)]


def drawn(provider: LocalProvider, count: int, log: Any = None, **options: Any) -> list[SampleResult]:
    log = log if log is not None else MemoryCallLog()
    with Client(log, Budget(options.pop("limits", SpendingLimits()))) as client:
        return draw(client, log, samples(provider.spec(), count), plain, **options)


def test_each_sample_is_its_own_call_and_is_found_again() -> None:
    log = MemoryCallLog()
    with LocalProvider(lambda messages, call: f"```python\n{PROGRAM}```") as provider:
        first = drawn(provider, 3, log)
        again = drawn(provider, 4, log)
        assert len(provider.requests) == 4, "three were answered before: samples of one task never share a call"
        warmer = drawn(provider, 1, log, temperature=0.5)
        assert len(provider.requests) == 5 and provider.requests[-1].body["temperature"] == 0.5
    assert [one.program.text.strip() for one in first if one.program] == [PROGRAM.strip()] * 3
    assert [one.asked for one in again[:3]] == [one.asked for one in first] and warmer[0].error is None
    assert first[0].asked.answer == "program" and first[0].asked.calls == 1 and not first[0].asked.priced


def test_what_came_of_an_answer_is_told_in_its_place() -> None:
    answers = {0: "no", 1: Reply("```python\nHIP = r'''\n__global__ void", finish="length"), 2: refused(400)}
    with LocalProvider(lambda messages, call: answers[call]) as provider:
        log = MemoryCallLog()
        with Client(log, Budget(SpendingLimits()), concurrency=1) as client:
            none, truncated, failed = draw(client, log, samples(provider.spec(), 3), plain)
    assert none.program is None and none.asked.answer == "no_code" and none.message
    assert truncated.asked.answer == "truncated" and truncated.error is None
    assert isinstance(failed.error, ProviderError) and failed.asked.answer == "" and failed.program is None


def test_a_lost_attempt_counts_at_what_it_had_reserved() -> None:
    with LocalProvider(lambda messages, call: cut() if call == 0 else f"```python\n{PROGRAM}```") as provider:
        log = MemoryCallLog()
        (one,) = drawn(provider, 1, log)
    (lost,) = log.lost()
    assert (one.asked.calls, one.asked.lost) == (2, 1) and one.program is not None
    assert one.asked.output_tokens == log.answers()[0].usage.output_tokens + lost.tokens


def test_a_spent_budget_is_an_error_of_its_own_sample() -> None:
    with LocalProvider(lambda messages, call: "no") as provider:
        found = drawn(provider, 3, limits=SpendingLimits(tokens=100))
        assert provider.requests == [] and all(isinstance(one.error, OutOfBudget) for one in found)


def test_a_replay_names_what_differs() -> None:
    recording = MemoryCallLog()
    with LocalProvider(lambda messages, call: f"```python\n{PROGRAM}```") as provider:
        first = drawn(provider, 2, recording)
        spec = provider.spec()
    log = Replay(recording)
    with Client(log, Budget(SpendingLimits())) as client:
        assert draw(client, log, samples(spec, 2), plain) == first, "the provider is gone"
        (other,) = draw(client, log, samples(spec, 1), plain, temperature=0.5)
    assert isinstance(other.error, HipwrightError) and "temperature was None and is 0.5" in other.error.message


@pytest.mark.parametrize(
    ("text", "finish", "kind"),
    [
        ("```python\nclass ModelNew:\n    pass\n```", "stop", "modelnew"),
        ("class ModelNew:\n    pass\n", "stop", "modelnew"),
        ("```python\nclass Model:\n    pass\n```", "stop", "no_modelnew"),
        ("```python\nimport torch\n", "length", "truncated"),
        ("", "stop", "no_modelnew"),
    ],
)
def test_a_modelnew_answer(text: str, finish: str, kind: str) -> None:
    program, found, why = read_modelnew(text, finish)
    assert found == kind and (program is None) == bool(why)
    assert program is None or program.form == "modelnew"


def test_prompts_show_the_reference_and_nothing_of_this_machine(tmp_path: Path) -> None:
    with Archive(tmp_path / "archive") as archive:
        asked = program_prompt(("gfx942",), archive)(TASK)
    for messages in (asked, modelnew_prompt(("gfx942", "gfx950"))(TASK)):
        text = "\n".join(message.text for message in messages)
        assert [message.role for message in messages] == ["system", "user"]
        assert "torch.relu(x + self.bias)" in text and "gfx942" in text
        assert str(tmp_path) not in text and str(Path.home()) not in text
    assert "HIP = r" in asked[0].text and "class ModelNew" not in asked[0].text


def test_models_are_drawn_by_weight_and_the_same_when_asked_again() -> None:
    lineup = parse_specs(["ollama:a*3", "ollama:b"])
    drawn = [sample_model(lineup, 1, "task", number) for number in range(200)]
    assert drawn == [sample_model(lineup, 1, "task", number) for number in range(200)]
    assert 110 < drawn.count("ollama:a") < 190 and drawn != [sample_model(lineup, 2, "task", n) for n in range(200)]


def test_two_samples_of_the_pipeline_share_no_call_and_count_their_own() -> None:
    with LocalProvider(lambda messages, call: Reply("x", input_tokens=10, output_tokens=2)) as provider:
        log = MemoryCallLog()
        request = Request(role="optimizer", number=3, model=provider.spec(), messages=tuple(plain(TASK)))
        with Client(log, Budget(SpendingLimits())) as client:
            first, second = (SampleClient(client, log, "m", sample, 0.7) for sample in (0, 1))
            first.ask(request)
            first.ask_all([request, Request(role="judge", number=3, model=request.model, messages=request.messages)])
            second.ask(request)
        log.reserve(Reserved(request=request, cost_usd=0.0, tokens=99))
        assert len(provider.requests) == 3 and {r.body["temperature"] for r in provider.requests} == {0.7}
    assert (first.asked(True).calls, second.asked(False).calls) == (2, 1), "another's lost call is not theirs"
    assert first.asked(True).answer == "program" and second.asked(False).answer == "nothing verified"
    assert first.asked(True).input_tokens == 20 and first.asked(True).agent == "pipeline"


def test_a_pipeline_sample_says_that_its_budget_was_spent() -> None:
    with LocalProvider() as provider, Client(log := MemoryCallLog(), Budget(SpendingLimits(tokens=1))) as client:
        one = SampleClient(client, log, "m", 0, None)
        request = Request(role="optimizer", number=0, model=provider.spec(), messages=tuple(plain(OTHER)))
        with pytest.raises(OutOfBudget):
            one.ask(request)
        assert one.asked(True).answer == "program, budget spent" and one.asked(True).calls == 0
