"""`hipwright bench --llm` against a local provider over both wires: figures, faults, resume, replay, limits."""

from __future__ import annotations

import csv
import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cli_tools import EXAMPLES, environment, hipwright, one_object

from tests.llm.server import LocalProvider, Reply, rate_limit, refused, server_error, stall

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


@pytest.fixture
def one_task(tmp_path: Path) -> Path:
    suite = tmp_path / "suite"
    suite.mkdir()
    shutil.copy(SUITE / "1_bias_relu.py", suite)
    return suite


@pytest.mark.slow
def test_a_model_is_measured_resumed_and_replayed(home: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with LocalProvider(scripted(answers=ANSWERS)) as provider:
        limits = ("--price", "small=1,10", "--max-usd", 5)
        asked = ("bench", SUITE, *BASE, "--llm", provider.spec("openai"), "--samples", 2, *limits)
        done = hipwright(home, *asked, "--out", out)
        assert done.returncode == 0, done.stderr
        assert len(provider.requests) == 5 and len(provider.answered) == 4, "one of the calls met a rate limit"
        resumed = hipwright(home, *asked, "--out", out, "--resume")
        assert len(provider.requests) == 5
    replayed = hipwright(home, *asked, "--replay", out / "calls.jsonl", "--out", tmp_path / "again")
    assert replayed.returncode == 0, replayed.stderr
    found = one_object(done.stdout)
    check_figures(found)
    check_files(out, found)
    assert one_object(resumed.stdout)["rows"] == found["rows"]
    assert same(one_object(replayed.stdout), found)
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and holds_a_key(path)]


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
def test_the_pipeline_writes_samples_of_its_own_and_repeats_no_answered_call(
    home: Path, one_task: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    with LocalProvider(lambda messages, call: Reply(RIGHT, input_tokens=1000, output_tokens=200)) as provider:
        how = ("--samples", 2, "--agent", "pipeline", "--budget", 3)
        arguments = ("bench", one_task, *BASE, "--llm", provider.spec(), *how)
        done = hipwright(home, *arguments, "--out", out)
        assert done.returncode == 0, done.stderr
        calls = len(provider.requests)
        (out / "rows.jsonl").unlink()
        again = hipwright(home, *arguments, "--out", out)
        assert calls == len(provider.requests) >= 2, again.stderr
    found, later = one_object(done.stdout), one_object(again.stdout)
    assert [row["status"] for row in found["rows"]] == ["pass", "pass"] and verdicts(later) == verdicts(found)
    assert [row["asked"]["agent"] for row in found["rows"]] == ["pipeline"] * 2
    assert found["model"]["cost"]["calls"] == calls and all(row["asked"]["calls"] for row in found["rows"])
    assert found["budget"] == 3 and found["model"]["answers"] == {"program": 2}


@pytest.mark.slow
def test_a_provider_that_stays_away_ends_a_search_without_a_verdict(
    home: Path, one_task: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HIPWRIGHT_OUTAGE_SECONDS", "0.2")
    with LocalProvider(lambda messages, call: server_error(500)) as provider:
        how = ("--agent", "pipeline", "--budget", 2)
        done = hipwright(home, "bench", one_task, *BASE, "--llm", provider.spec(), *how)
    found = one_object(done.stdout)
    assert done.returncode == 3 and found["not_judged"] == {"provider": 1}, done.stderr
    assert "paused" in found["rows"][0]["message"] and found["rows"][0]["attempts"] == 1, "asked again by --resume only"
    assert found["model"]["pass_at"]["1"] == {"value": None, "interval": None, "tasks": 0, "left_out": 1}


@pytest.mark.slow
def test_interrupted_while_it_asks_it_ends_at_once_and_goes_on(home: Path, one_task: Path, tmp_path: Path) -> None:
    with LocalProvider(lambda messages, call: stall() if call == 0 else SORRY) as provider:
        arguments = ["bench", one_task, *BASE, "--llm", provider.spec(), "--out", tmp_path / "out"]
        command = [sys.executable, "-m", "hipwright", *map(str, arguments)]
        process = subprocess.Popen(command, env=environment(home), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        deadline = time.monotonic() + 120
        while not provider.requests and time.monotonic() < deadline:
            time.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=40)
        assert process.returncode == 143 and b"--resume" in errors, errors
        resumed = hipwright(home, *arguments, "--resume")
    found = one_object(resumed.stdout)
    assert resumed.returncode == 0 and found["rows"][0]["status"] == "malformed"
    assert found["model"]["cost"]["lost_calls"] == 1, "the call that was cut off may have been billed"


@pytest.mark.slow
def test_what_a_provider_fails_is_no_wrong_kernel_and_is_tried_again(home: Path, tmp_path: Path) -> None:
    """Row means fail at first: those samples are in no denominator, and --resume asks for them."""
    broken = [True]

    def reply(messages: list[dict[str, str]], call: int) -> Any:
        if call == 0:
            return rate_limit(0.05)
        if "keepdim" in messages[-1]["content"] and broken[0]:
            return refused(400)
        return RIGHT if "self.bias" in messages[-1]["content"] else SORRY

    with LocalProvider(reply) as provider:
        asked = ("bench", SUITE, *BASE, "--llm", provider.spec("anthropic"), "--samples", 2, "--out", tmp_path / "out")
        first = hipwright(home, *asked)
        broken[0] = False
        second = hipwright(home, *asked, "--resume")
        assert len(provider.answered) == 4
    found = one_object(first.stdout)
    assert first.returncode == 3 and found["not_judged"] == {"provider": 2}
    assert found["correct"]["total"] == 2 and found["model"]["pass_at"]["1"] == {
        "value": 1.0,
        "interval": found["model"]["pass_at"]["1"]["interval"],
        "tasks": 1,
        "left_out": 1,
    }
    assert found["model"]["cost"]["usd"] is None and found["model"]["cost"]["unpriced"], "nobody knows its price"
    later = one_object(second.stdout)
    assert second.returncode == 0 and later["model"]["pass_at"]["1"]["value"] == pytest.approx(0.5)


@pytest.mark.slow
def test_a_limit_in_tokens_ends_the_asking_and_modelnew_files_are_judged_in_their_lane(
    home: Path, one_task: Path
) -> None:
    """Each call may take some 11,000 tokens and takes 9,000, so that two of four are made."""
    with LocalProvider(lambda messages, call: Reply(MODELNEW, input_tokens=1000, output_tokens=8000)) as provider:
        limits = ("--samples", 4, "--max-tokens", 25_000)
        done = hipwright(home, "bench", one_task, *BASE, "--llm", provider.spec(), "--form", "modelnew", *limits)
    found = one_object(done.stdout)
    assert done.returncode == 1, done.stderr
    assert found["model"]["answers"] == {"modelnew": 2, "not asked": 2} and len(provider.requests) == 2
    assert found["model"]["cost"]["input_tokens"] + found["model"]["cost"]["output_tokens"] == 18_000
    assert "ModelNew" in provider.requests[0].messages[0]["content"]
    judged = {(row["lane"], row["status"], row["coverage"]) for row in found["rows"] if row["status"] != "unscorable"}
    assert judged == {("modelnew", "pass", 0.0)}, "torch did the work: right, and nothing of its own"
    assert found["model"]["pass_at"]["3"]["value"] is None and found["model"]["pass_at"]["2"]["value"] == 1.0


@pytest.mark.parametrize(
    ("arguments", "say"),
    [
        (("--samples", "2"), "--llm"),
        (("--llm", "nobody:x"), "no provider"),
        (("--llm", "ollama:x", "--candidates", "."), "either candidates"),
        (("--llm", "ollama:x", "--replay", "none.jsonl"), "no such recording"),
        (("--llm", "ollama:x", "--form", "modelnew", "--agent", "pipeline"), "pipeline writes programs"),
        (("--llm", "compatible:x@http://192.0.2.1/v1", "--max-usd", "1"), "no price is known"),
    ],
)
def test_bad_options_are_one_line_and_exit_2(tmp_path: Path, arguments: tuple[str, ...], say: str) -> None:
    done = hipwright(tmp_path / "home", "bench", SUITE, "--target", "cpu", *arguments)
    assert done.returncode == 2 and say in done.stderr and done.stdout == ""
