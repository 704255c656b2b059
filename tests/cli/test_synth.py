"""`hipwright synth` end to end: bad input, a kill that loses nothing, models, a folder for bench."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from cli_tools import EXAMPLES, environment, hipwright, left_behind, one_object

from hipwright.cli.main import main
from hipwright.synth.records import SyntheticTask
from hipwright.synth.store import read_manifest
from tests.llm.server import LocalProvider
from tests.synth.reading import read_tasks

WRITTEN = '''```python
"""Softplus, then a running sum over rows."""
import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.nn.functional.softplus(x).cumsum(dim=0), x.amax(dim={dim})


def get_inputs():
    return [torch.randn(9, 33)]


def get_init_inputs():
    return []
```'''


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--mode", "evolution"], "no mode 'evolution'"),
        (["--mode", "composition", "--from", str(EXAMPLES)], "--from is of the mutation mode"),
        (["--mode", "composition", "--constraint", "bf16"], "--constraint is of the constraint mode"),
        (["--from", "nowhere"], "no such task file or folder: nowhere"),
        (["--constraint", "bf16, butterfly exchange"], "does not know: butterfly, exchange"),
        (["--max-usd", "1"], "a share, a limit or a price without a model"),
        (["--llm", "nobody"], "nobody"),
        (["--llm", "openai:no-such-model", "--max-usd", "1"], "price"),
        (["--count", "0"], "--count"),
        (["--against", "nowhere"], "no such folder of tasks: nowhere"),
        (["--out", "{file}"], "cannot write to"),
    ],
)
def test_bad_input_is_one_line_and_exit_2(
    arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    given = [argument.format(file=tmp_path / "file") for argument in arguments]
    out = [] if "--out" in arguments else ["--out", str(tmp_path / "out")]
    assert main(["synth", *out, *given]) == 2
    errors = [line for line in capsys.readouterr().err.splitlines() if not line.startswith("hint: ")]
    assert len(errors) == 1 and errors[0].startswith("error: ") and message in errors[0]
    assert not (tmp_path / "out").exists(), "nothing was begun"


def test_a_folder_of_other_things_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "manifest.json").write_text("mine")
    assert main(["synth", "--out", str(tmp_path)]) == 2
    assert main(["synth", "--out", str(tmp_path), "--resume"]) == 2
    assert "already holds" in capsys.readouterr().err and (tmp_path / "manifest.json").read_text() == "mine"


def lines(folder: Path) -> int:
    path = folder / "tasks.jsonl"
    return path.read_bytes().count(b"\n") if path.exists() else 0


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.slow
def test_killed_and_resumed_it_makes_the_tasks_of_an_uninterrupted_run(tmp_path: Path) -> None:
    home, killed, whole = tmp_path / "home", tmp_path / "killed", tmp_path / "whole"
    options = ["--count", "6", "--mode", "composition,mutation", "--seed", "2"]
    command = [sys.executable, "-m", "hipwright", "synth", *options, "--workers", "2", "--out", str(killed), "--resume"]
    for wanted in (1, 3):
        process = subprocess.Popen(command, env=environment(home), stderr=subprocess.DEVNULL, start_new_session=True)
        deadline = time.monotonic() + 120
        while lines(killed) < wanted and time.monotonic() < deadline:
            time.sleep(0.02)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        assert wanted <= lines(killed) < 6 and not read_manifest(killed).complete
    assert not left_behind(home), "the sandboxed processes end with their parent"
    with (killed / "tasks.jsonl").open("ab") as stream:
        stream.write(b'{"index": 5, "final": true, "draft": {"na')
    again = hipwright(home, "synth", *options, "--workers", "1", "--out", killed, "--resume")
    assert again.returncode == 0 and "tasks are there already" in again.stderr, again.stderr
    done = hipwright(home, "synth", *options, "--workers", "2", "--out", whole, "--json")
    printed = one_object(done.stdout)
    assert printed["status"] == "pass" and printed["tasks"] == 6 and printed["operators"] >= 6, done.stderr
    assert content(killed) == content(whole)
    assert hipwright(home, "synth", *options, "--out", whole).returncode == 2
    other = hipwright(home, "synth", *options, "--seed", "9", "--out", whole, "--resume")
    assert other.returncode == 2 and "was begun with seed 2, not 9" in other.stderr


@pytest.mark.slow
def test_the_folder_can_be_given_to_bench(tmp_path: Path) -> None:
    home, out = tmp_path / "home", tmp_path / "out"
    made = hipwright(home, "synth", "--count", "2", "--seed", "4", "--out", out)
    assert made.returncode == 0 and "2 tasks in" in made.stdout and "a minute" in made.stderr, made.stderr
    bench = hipwright(home, "bench", out / "tasks", "--budget", "1", "--target", "cpu", "--json")
    rows = one_object(bench.stdout)["rows"]
    assert bench.returncode == 0 and [row["task"] for row in rows] == sorted(one.draft.name for one in read_tasks(out))
    assert all(row["correct"] for row in rows), rows


@pytest.mark.slow
def test_a_model_writes_tasks_too_and_is_not_asked_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def reply(messages: list[dict[str, str]], call: int) -> str:
        return "no file at all" if call == 0 else WRITTEN.format(dim=call % 2)

    out = tmp_path / "out"
    with LocalProvider(reply) as provider:
        for name, value in provider.environment().items():
            monkeypatch.setenv(name, value)
        options = ["--constraint", "two outputs, butterfly", "--workers", "1", "--max-tokens", "100000", "--out", out]
        command = ["synth", *options, "--llm", provider.spec("compatible")]
        done = hipwright(tmp_path / "home", *command, "--count", "1")
        assert done.returncode == 0, done.stderr
        calls = len(provider.requests)
        (out / "tasks.jsonl").unlink()
        again = hipwright(tmp_path / "home", *command, "--count", "1", "--resume")
        assert again.returncode == 0 and "1 tasks in" in again.stdout, again.stderr
    (one,) = read_tasks(out)
    assert isinstance(one, SyntheticTask) and one.draft.author == "llm" and len(one.outputs) == 2
    dropped = [json.loads(line) for line in (out / "dropped.jsonl").read_text().splitlines()]
    assert dropped[0]["stage"] == "static" and dropped[0]["draft"]["mind"] == "llm"
    assert calls == len(provider.requests) == 2 and (out / "calls.jsonl").exists()
