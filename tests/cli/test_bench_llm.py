"""`hipwright bench --llm` against a local provider over both wires: figures, faults, resume, replay, limits."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cli_tools import EXAMPLES, hipwright, one_object

from tests.llm.server import LocalProvider, Reply, rate_limit, server_error

SUITE = EXAMPLES / "suite"
BASE = ("--target", "cpu", "--json", "--seed", "3")
RIGHT = """The bias is added and the sign cut in one kernel.

```python
HIP = r'''
#include <hip/hip_runtime.h>
extern "C" __global__ void bias_relu(const float* x, const float* b, float* y, long n, int c) {
    long i = blockIdx.x * (long)blockDim.x + threadIdx.x;
    if (i < n) y[i] = fmaxf(x[i] + b[i % c], 0.f);
}
'''

def forward(self, x):
    x = x.contiguous()
    y = torch.empty_like(x)
    bias_relu[cdiv(x.numel(), 256), 256](x, self.bias, y, x.numel(), x.shape[-1])
    return y
```
"""
WRONG = RIGHT.replace("+ b[i % c]", "- b[i % c]")
SORRY = "I cannot help with that."
MODELNEW = """```python
import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(width))

    def forward(self, x):
        return torch.relu(x + self.bias)
```
"""


def scripted(*, answers: dict[str, list[str]], limit_call: int = 0) -> Callable[[list[dict[str, str]], int], Any]:
    """Answers by a word of the task, in turn; the call with number `limit_call` meets a rate limit."""
    left = {word: list(texts) for word, texts in answers.items()}

    def reply(messages: list[dict[str, str]], call: int) -> Any:
        if call == limit_call:
            return rate_limit(0.05)
        word = next(word for word in left if word in messages[-1]["content"])
        return Reply(left[word].pop(0), input_tokens=1000, output_tokens=200)

    return reply


ANSWERS = {"self.bias": [RIGHT, WRONG], "keepdim": [SORRY, SORRY]}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, value in LocalProvider.environment().items():
        monkeypatch.setenv(name, value)
    return tmp_path / "home"


@pytest.mark.slow
def test_a_model_is_measured_and_no_answered_call_is_repeated(home: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with LocalProvider(scripted(answers=ANSWERS)) as provider:
        asked = measured(provider, "openai")
        done = hipwright(home, *asked, "--out", out)
        assert done.returncode == 0, done.stderr
        check_figures(found := one_object(done.stdout))
        check_files(out, found)
        assert len(provider.requests) == 5 and len(provider.answered) == 4, "one of the calls met a rate limit"
        resumed = hipwright(home, *asked, "--out", out, "--resume")
        (out / "rows.jsonl").unlink()
        judged_anew = hipwright(home, *asked, "--out", out)
        assert len(provider.requests) == 5, "whether the rows are there or not"
    assert one_object(resumed.stdout)["rows"] == found["rows"]
    assert same(one_object(judged_anew.stdout), found)
    assert not [path for path in out.rglob("*") if path.is_file() and holds_a_key(path)]


@pytest.mark.slow
def test_a_recording_answers_when_the_provider_is_gone(home: Path, tmp_path: Path) -> None:
    with LocalProvider(scripted(answers=ANSWERS)) as provider:
        asked = measured(provider, "anthropic")
        done = hipwright(home, *asked, "--out", tmp_path / "out")
    replayed = hipwright(home, *asked, "--replay", tmp_path / "out" / "calls.jsonl", "--out", tmp_path / "again")
    assert (done.returncode, replayed.returncode) == (0, 0), replayed.stderr
    check_figures(found := one_object(done.stdout))
    assert same(one_object(replayed.stdout), found)
    other = hipwright(home, *asked, "--replay", tmp_path / "out" / "calls.jsonl", "--temperature", "0.5")
    assert other.returncode == 3 and one_object(other.stdout)["not_judged"] == {"provider": 4}
    assert "temperature was None and is 0.5" in one_object(other.stdout)["rows"][0]["message"]


def measured(provider: LocalProvider, wire: str) -> tuple[Any, ...]:
    limits = ("--price", "small=1,10", "--max-usd", 5)
    return ("bench", SUITE, *BASE, "--llm", provider.spec(wire), "--samples", 2, *limits)


def same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return verdicts(one) == verdicts(other) and one["model"]["cost"] == other["model"]["cost"]


def check_figures(found: dict[str, Any]) -> None:
    model = found["model"]
    assert found["complete"] and (found["row_count"], found["judged"]) == (4, 4)
    assert sorted(row["status"] for row in found["rows"] if row["task"] == "1_bias_relu") == ["pass", "wrong_value"]
    assert {row["status"] for row in found["rows"] if row["task"] == "2_row_mean"} == {"malformed"}
    assert model["pass_at"]["1"]["value"] == pytest.approx(0.25)
    assert model["pass_at"]["2"]["value"] == pytest.approx(0.5)
    assert model["compiled_at"]["1"]["value"] == pytest.approx(0.5), "an answer without a program did not compile"
    low, high = model["pass_at"]["2"]["interval"]
    assert low == 0 and high == 1, "two tasks, of which one was solved, say very little"
    assert model["fast_at"] is None and model["solved"] == {"count": 1, "total": 2}
    assert model["answers"]["program"] == 2 and sum(model["answers"].values()) == 4
    usd = 4 * (1000 * 1e-6 + 200 * 10e-6)
    assert model["cost"]["usd"] == pytest.approx(usd) and model["cost"]["usd_per_solved"] == pytest.approx(usd)
    assert model["cost"]["calls"] == 4 and model["cost"]["tokens_per_solved"] == 4800


def check_files(out: Path, found: dict[str, Any]) -> None:
    table = list(csv.DictReader((out / "rows.csv").read_text().splitlines()))
    assert {row["answer"] for row in table} == set(found["model"]["answers"])
    assert [float(row["cost_usd"]) for row in table] == [pytest.approx(0.003)] * 4
    page = (out / "bench.html").read_text()
    assert "The model" in page and "pass@2" in page and "no_code" in page
    programs = sorted(path.relative_to(out / "programs").as_posix() for path in (out / "programs").rglob("*.py"))
    assert programs == ["1_bias_relu/sample_0.py", "1_bias_relu/sample_1.py"]
    assert json.loads((out / "result.json").read_text()) == found


def verdicts(found: dict[str, Any]) -> list[tuple[Any, ...]]:
    rows = found["rows"]
    return [(row["task"], row["sample"], row["status"], row["program"], row["asked"]["cost_usd"]) for row in rows]


def holds_a_key(path: Path) -> bool:
    return any(value.encode() in path.read_bytes() for value in LocalProvider.environment().values())


@pytest.mark.slow
def test_what_a_provider_fails_is_no_wrong_kernel_and_is_tried_again(home: Path, tmp_path: Path) -> None:
    """Row means cannot be asked for at first: those samples are in no denominator, and --resume asks for them."""
    broken = [True]

    def reply(messages: list[dict[str, str]], call: int) -> Any:
        if "keepdim" in messages[-1]["content"] and broken[0]:
            return server_error(400)
        return RIGHT if "self.bias" in messages[-1]["content"] else SORRY

    with LocalProvider(reply) as provider:
        asked = ("bench", SUITE, *BASE, "--llm", provider.spec(), "--samples", 2, "--out", tmp_path / "out")
        first = hipwright(home, *asked)
        broken[0] = False
        second = hipwright(home, *asked, "--resume")
    found = one_object(first.stdout)
    assert first.returncode == 3 and found["not_judged"] == {"provider": 2}
    assert found["correct"]["total"] == 2 and found["model"]["pass_at"]["1"] == {
        "value": 1.0, "interval": found["model"]["pass_at"]["1"]["interval"], "tasks": 1, "left_out": 1,
    }  # fmt: skip
    assert found["model"]["cost"]["usd"] is None and found["model"]["cost"]["unpriced"], "a local model has no price"
    later = one_object(second.stdout)
    assert second.returncode == 0 and later["model"]["pass_at"]["1"]["value"] == pytest.approx(0.5)


@pytest.mark.slow
def test_a_limit_in_tokens_ends_the_asking_and_not_the_judging(home: Path, tmp_path: Path) -> None:
    with LocalProvider(scripted(answers={"self.bias": [RIGHT] * 4, "keepdim": [SORRY] * 4}, limit_call=-1)) as provider:
        words = ("bench", SUITE, *BASE, "--llm", provider.spec(), "--samples", 4, "--max-tokens", 60_000)
        done = hipwright(home, *words, "--form", "modelnew")
    found = one_object(done.stdout)
    assert done.returncode == 1, done.stderr
    assert found["model"]["answers"]["not asked"] >= 1 and len(provider.requests) == found["judged"] < 8
    spent = found["model"]["cost"]
    assert spent["input_tokens"] + spent["output_tokens"] <= 60_000


@pytest.mark.slow
def test_the_modelnew_form_is_asked_for_and_judged_in_its_lane(home: Path, tmp_path: Path) -> None:
    with LocalProvider(scripted(answers={"self.bias": [MODELNEW], "keepdim": [SORRY]}, limit_call=-1)) as provider:
        done = hipwright(home, "bench", SUITE, *BASE, "--llm", provider.spec(), "--form", "modelnew")
    found = one_object(done.stdout)
    assert done.returncode == 0, done.stderr
    assert [(row["lane"], row["status"]) for row in found["rows"]] == [("modelnew", "pass"), ("", "malformed")]
    assert "ModelNew" in provider.requests[0].messages[0]["content"]
    assert found["rows"][0]["coverage"] == 0.0, "torch did the work: right, and nothing of its own"


@pytest.mark.parametrize(
    ("words", "say"),
    [
        (("--samples", "2"), "--llm"),
        (("--llm", "nobody:x"), "no provider"),
        (("--llm", "ollama:x", "--candidates", "."), "either candidates"),
        (("--llm", "ollama:x", "--replay", "none.jsonl"), "no such recording"),
        (("--llm", "ollama:x", "--form", "modelnew", "--agent", "pipeline"), "pipeline writes programs"),
        (("--llm", "compatible:x@http://192.0.2.1/v1", "--max-usd", "1"), "no price is known"),
    ],
)
def test_bad_options_are_one_line_and_exit_2(tmp_path: Path, words: tuple[str, ...], say: str) -> None:
    done = hipwright(tmp_path / "home", "bench", SUITE, "--target", "cpu", *words)
    assert done.returncode == 2 and say in done.stderr and done.stdout == ""
