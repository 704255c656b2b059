"""`optimize --llm` end to end: two protocols, a repaired answer, replay, limits, an outage, and no leaked secret."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cli_tools import FILES, environment, left_behind, one_object

from hipwright.archive import Archive, export, read_log
from tests import warm
from tests.llm.server import Fault, LocalProvider, garbage, no_credit, server_error

pytestmark = pytest.mark.slow
TASK = FILES / "scale.py"
RIGHT = """Here is the kernel:

```python
HIP = r'''
#include <hip/hip_runtime.h>
extern "C" __global__ void __launch_bounds__(BLOCK)
scale_relu(const float* x, const float* a, const float* b, float* y, long n, int c) {
    for (long i = blockIdx.x * (long)BLOCK + threadIdx.x; i < n; i += (long)gridDim.x * BLOCK)
        y[i] = fmaxf(x[i] * a[i % c] + b[i % c], 0.f);
}
'''
BLOCK = knob(128, choices=[64, 128, 256])

def forward(self, x):
    x = x.contiguous()
    out = torch.empty_like(x)
    scale_relu[cdiv(x.numel(), BLOCK), BLOCK](x, self.a, self.b, out, x.numel(), x.shape[-1])
    return out
```
"""
WRONG = RIGHT.replace(" + b[i % c]", "")
SECRETS = {f"SOME_SERVICE_{n}_API_KEY": f"planted-secret-number-{n}-{'x' * n}" for n in range(20)}


def reply(messages: list[dict[str, str]], call: int) -> str:
    """Wrong from the reference alone; correct once the prompt has the verifier's evidence."""
    text = "\n".join(m["content"] for m in messages)
    return RIGHT if "wrong_value" in text else WRONG


def optimize(home: Path, *args: object) -> subprocess.CompletedProcess[str]:
    return warm.hipwright(home.parent, "optimize", TASK, *args, "--json", env=surroundings(home))


def process(home: Path, *args: object, timeout: float = 240) -> subprocess.CompletedProcess[str]:
    env = environment(home) | surroundings(home)
    command = [sys.executable, "-m", "hipwright", "optimize", str(TASK), *map(str, args), "--json"]
    return subprocess.run(command, env=env, cwd=home.parent, capture_output=True, text=True, timeout=timeout)


def surroundings(home: Path) -> dict[str, str]:
    """The archive, the provider's keys, and unrelated secrets."""
    keys = LocalProvider.environment() | SECRETS
    return {"HIPWRIGHT_HOME": str(home), "HIPWRIGHT_OUTAGE_SECONDS": "3", **keys}


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def canonical(home: Path) -> str:
    with Archive(home, create=False) as archive:
        return export(archive, "latest", canonical=True)


def files_with_secrets(folder: Path) -> list[str]:
    planted = [secret.encode() for secret in [*SECRETS.values(), *LocalProvider.environment().values()]]
    files = [path for path in folder.rglob("*") if path.is_file()]
    return [str(path) for path in files if any(secret in path.read_bytes() for secret in planted)]


@pytest.mark.parametrize("wire", ["openai", "anthropic"])
def test_a_wrong_answer_is_repaired_and_the_run_replays_bit_for_bit(tmp_path: Path, wire: str) -> None:
    home, out = tmp_path / "home", tmp_path / "out"
    run = process if wire == "openai" else optimize
    with LocalProvider(reply) as provider:
        spec = provider.spec(wire)
        done = run(
            home, "--llm", spec, "--llm-share", 1, "--budget", 6, "--target", "gfx942", "--target", "cpu", "--out", out
        )
        assert done.returncode == 0, done.stderr
        calls = len(provider.requests)
        assert any("wrong_value" in message["content"] for seen in provider.requests for message in seen.messages)
    result = one_object(done.stdout)
    assert result["status"] == "pass" and result["models"]["calls"] == calls and result["models"]["tokens"] > 0
    with Archive(home, create=False) as archive:
        log = read_log(archive.events(archive.run("latest").id))
    outcome = {
        n: (p.expansion.operator, n in log.evaluated and log.evaluated[n].evaluation.status)
        for n, p in log.proposed.items()
    }
    assert outcome[0] == ("default", "pass")
    assert ("translate", "wrong_value") in outcome.values() and ("repair", "pass") in outcome.values()
    first = canonical(home)
    assert RIGHT.split("```")[1].splitlines()[4] in first and '"kind":"called"' in first

    recording, elsewhere = "latest", home
    if wire == "anthropic":  # from a file, in an empty archive
        elsewhere, recording = tmp_path / "elsewhere", str(tmp_path / "run.jsonl")
        with Archive(home, create=False) as archive:
            Path(recording).write_text(export(archive, "latest"))
    again = optimize(elsewhere, "--replay", recording, "--out", tmp_path / "again")  # the provider is not reachable
    assert again.returncode == 0, again.stderr
    assert canonical(elsewhere) == first
    assert files_with_secrets(tmp_path) == [] and not left_behind(home)
    assert not any(secret in done.stdout + done.stderr + again.stdout + again.stderr for secret in SECRETS.values())


def test_a_limit_is_never_passed_and_the_engine_goes_on(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with LocalProvider(reply) as provider:
        spec = provider.spec("compatible")
        refused = optimize(home, "--llm", spec.replace("127.0.0.1", "models.example"), "--max-usd", 1)
        assert refused.returncode == 2 and "--price" in refused.stdout
        done = optimize(
            home,
            "--llm",
            spec,
            "--llm-share",
            1,
            "--budget",
            4,
            "--target",
            "gfx942",
            "--target",
            "cpu",
            "--max-usd",
            "0.02",
            "--price",
            "small=1,1",
        )
    assert done.returncode == 0, done.stderr
    result = one_object(done.stdout)
    assert result["status"] == "pass" and result["evaluations"] == 4
    assert result["models"]["usd"] + result["models"]["lost_usd"] <= 0.02
    with Archive(home, create=False) as archive:
        log = read_log(archive.events(archive.run("latest").id))
    assert any("instead_of" in p.notes for p in log.proposed.values()), "nothing says that the engine took over"


def test_an_outage_pauses_the_run_and_no_answered_call_is_repeated(tmp_path: Path) -> None:
    home, away = tmp_path / "home", [False]

    def script(messages: list[dict[str, str]], call: int) -> str | Fault:
        if call >= 3 and away[0]:
            return server_error(503)
        return reply(messages, call)

    with LocalProvider(script) as provider:
        options = ("--llm", provider.spec(), "--llm-share", 1, "--budget", 8, "--target", "gfx942", "--target", "cpu")
        options = (*options, "--models-away", "pause")
        away[0] = True
        paused = optimize(home, *options, "--out", tmp_path / "out")
        assert paused.returncode == 3, paused.stderr
        assert "hipwright resume" in paused.stderr and "nothing is lost" in paused.stderr
        assert one_object(paused.stdout)["status"] == "pass", "the engine's program is there already"
        away[0] = False
        resumed = optimize(home, "--resume", "latest", "--out", tmp_path / "out")
        assert resumed.returncode == 0, resumed.stderr
        asked = [json.dumps(seen.body["messages"]) for seen in provider.answered]
        with Archive(home, create=False) as archive:
            log = read_log(archive.events(archive.run("latest").id))
        assert len(asked) == len(log.called)


def test_a_refused_key_pauses_where_asked_to_and_says_what_to_do(tmp_path: Path) -> None:
    with LocalProvider(reply, key="another") as provider:
        options = ("--llm", provider.spec("openai"), "--llm-share", 1, "--budget", 2, "--models-away", "pause")
        done = optimize(tmp_path / "home", *options)
    assert done.returncode == 3
    error: dict[str, Any] = one_object(done.stdout)
    assert error["fault"] == "provider" and "OPENAI_API_KEY" in json.dumps(error)


FAILING: dict[str, tuple[Callable[[], LocalProvider], str]] = {
    "dead": (lambda: LocalProvider(reply), "no connection"),
    "down": (lambda: LocalProvider(lambda messages, call: server_error(503)), "no call answered"),
    "junk": (lambda: LocalProvider(lambda messages, call: garbage()), "no call answered|given up"),
    "a wrong key": (lambda: LocalProvider(reply, key="another"), "OPENAI_API_KEY"),
    "no credit": (lambda: LocalProvider(lambda messages, call: no_credit()), "top it up"),
}


@pytest.mark.parametrize("kind", FAILING)
def test_the_engine_goes_on_without_a_models_answer(kind: str, tmp_path: Path) -> None:
    home, (open_provider, says) = tmp_path / "home", FAILING[kind]
    with open_provider() as provider:
        spec = provider.spec("openai")
        if kind == "dead":
            spec = f"openai:small@http://127.0.0.1:{free_port()}/v1"
        done = optimize(home, "--llm", spec, "--llm-share", 1, "--budget", 4, "--target", "cpu")
    assert done.returncode == 0, done.stderr
    result = one_object(done.stdout)
    assert result["status"] == "pass" and result["evaluations"] == 4 and not result["interrupted"]
    (silent,) = result["models"]["silent"]
    assert re.search(says, silent["why"] + silent["hint"]) and result["models"]["calls"] == 0
    first = canonical(home)
    again = optimize(home, "--replay", "latest")
    assert again.returncode == 0 and canonical(home) == first, again.stderr


def test_a_missing_key_is_said_before_any_work(tmp_path: Path) -> None:
    env = {k: v for k, v in environment(tmp_path / "home").items() if k != "OPENAI_API_KEY"}
    command = [sys.executable, "-m", "hipwright", "optimize", str(TASK), "--llm", "openai:gpt-5"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and "OPENAI_API_KEY" in done.stderr and "capturing" not in done.stderr
