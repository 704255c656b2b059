"""Resuming after kill -9: the batches and losses are those of an uninterrupted run."""

from __future__ import annotations

import json
import random
import shutil
import signal
import time
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest
import torch
from msgspec.structs import replace

from hipwright.errors import BadInput
from hipwright.train.rl import checkpoint
from hipwright.train.rl.loop import train_rl
from hipwright.train.rl.policy import HFPolicy
from hipwright.train.rl.settings import OptimSettings, RLSettings
from hipwright.train.rl.training import TrainingRun
from tests.train.rl import run_loop
from tests.train.rl.tools import END, MemoryLog, ToyEnvironment, ToyForm, ToyJudge, tiny_model, toy_problems

FORKSERVER = get_context("forkserver")
FORKSERVER.set_forkserver_preload(["transformers.models.qwen2.modeling_qwen2", "tests.train.rl.run_loop"])
SETTINGS = RLSettings(
    steps=6, prompts=2, samples=6, max_new_tokens=4, checkpoint_every=2, optim=OptimSettings(learning_rate=1e-3)
)


def start(kind: str, folder: Path) -> BaseProcess:
    """A process that runs a loop of run_loop.py in the folder."""
    folder.mkdir(exist_ok=True)
    process = FORKSERVER.Process(target=run_loop.main, args=(kind, folder))
    process.start()
    return process


def end(process: BaseProcess) -> int | None:
    process.join(300)
    return process.exitcode


def lines(folder: Path) -> list[dict[str, Any]]:
    path = folder / "lines.jsonl"
    text = path.read_text() if path.exists() else ""
    return [json.loads(line) for line in text.splitlines() if line.endswith("}")]


def wait_for(folder: Path, process: BaseProcess, count: int) -> None:
    """Waits until the log has `count` more lines or the process has ended."""
    began, limit = len(lines(folder)), time.monotonic() + 200
    while process.is_alive() and len(lines(folder)) < began + count and time.monotonic() < limit:
        time.sleep(0.002)


def repeated(folder: Path) -> bool:
    """Whether a step was logged twice: a kill right after a checkpoint repeats none."""
    steps = [line["step"] for line in lines(folder)]
    return len(steps) > len(set(steps))


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", ["rl", "rft", "sft", "dpo"])
def test_kill_9(kind: str, tmp_path: Path) -> None:
    whole, killed, rng = tmp_path / "whole", tmp_path / "killed", random.Random(kind)
    assert end(start(kind, whole)) == 0
    expected = {line["step"]: line for line in lines(whole)}
    kills = 0
    while not (killed / "done.json").exists():
        process = start(kind, killed)
        if kills < 3 or (kills < 12 and not repeated(killed)):
            wait_for(killed, process, rng.randrange(3, 8))
            time.sleep(rng.random() * 0.05)
            process.kill()
            kills += 1
        assert end(process) in (0, -signal.SIGKILL)
    found = lines(killed)
    assert kills >= 3 and {line["step"] for line in found} == set(expected)
    assert len(found) > len(expected)  # some steps were repeated
    for line in found:
        known = dict(expected[line["step"]])
        batch = known.pop("batch")
        assert line.pop("batch") == batch and line == pytest.approx(known, rel=1e-6, abs=1e-9, nan_ok=True)
    assert not list((killed / "checkpoints").glob(".writing-*"))
    assert len(checkpoint.steps(killed)) == checkpoint.KEEP


def run(
    folder: Path, settings: RLSettings = SETTINGS, judge: ToyJudge | None = None, **more: Any
) -> tuple[Any, MemoryLog]:
    policy, notes = HFPolicy(tiny_model(), end=[END], device="cpu"), MemoryLog()
    problems = more.pop("problems", toy_problems())
    return train_rl(policy, problems, ToyEnvironment(judge), ToyForm(), settings, folder, notes, **more), notes


@pytest.mark.parametrize("overlap", [True, False])
def test_pieces_give_the_steps_of_one_call(overlap: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = replace(SETTINGS, overlap=overlap)
    _, whole = run(tmp_path / "whole", settings)
    with monkeypatch.context() as patch:
        patch.setattr(TrainingRun, "paused", property(lambda self: self.step == 3))
        piece, first = run(tmp_path / "parts", settings)
    assert not piece.finished and piece.step == 3
    result, second = run(tmp_path / "parts", settings)
    assert result.finished and [step for _, step, _ in first.lines + second.lines] == [1, 2, 3, 4, 5, 6]
    for name in ("reward", "loss", "drift", "grad_norm", "tokens"):
        assert first.column(name) + second.column(name) == pytest.approx(whole.column(name), rel=1e-6, abs=1e-9)
    assert checkpoint.steps(tmp_path / "parts") == [4, 6]


def test_the_judges_verdicts_are_restored(tmp_path: Path) -> None:
    judge = ToyJudge()
    run(tmp_path, judge=judge)
    again = ToyJudge()
    run(tmp_path, judge=again)
    assert again.known == judge.known != {}


def test_the_judge_is_restored_before_it_is_asked(tmp_path: Path) -> None:
    events: list[str] = []

    class LoggingJudge(ToyJudge):
        def load(self, state: dict[str, Any]) -> None:
            events.append("load")
            super().load(state)

        def judge(self, text: str) -> Any:
            events.append("judge")
            return super().judge(text)

    settings = replace(SETTINGS, steps=4)
    run(tmp_path, settings)
    shutil.rmtree(tmp_path / "checkpoints" / "step-000004")  # back to step 2, with a prefetched batch
    run(tmp_path, settings, LoggingJudge())
    assert events[0] == "load" and events.count("judge") >= 12


def test_another_device_is_refused_unless_allowed(tmp_path: Path) -> None:
    run(tmp_path, replace(SETTINGS, steps=2), ToyJudge("NVIDIA H200"))
    with pytest.raises(BadInput, match="trained with judge 'NVIDIA H200'; this is 'NVIDIA H100'") as caught:
        run(tmp_path, judge=ToyJudge("NVIDIA H100"))
    assert "--allow-device-change" in caught.value.hint
    judge = ToyJudge("NVIDIA H100")
    judge.load = lambda state: pytest.fail("the other device's verdicts")  # type: ignore[method-assign]
    result, _ = run(tmp_path, judge=judge, allow_device_change=True)
    assert result.step == 6


def test_another_run_is_refused(tmp_path: Path) -> None:
    run(tmp_path, replace(SETTINGS, steps=2))
    with pytest.raises(BadInput, match="other settings"):
        run(tmp_path, replace(SETTINGS, seed=1))
    with pytest.raises(BadInput, match="other data"):
        run(tmp_path, problems=toy_problems(5))
    with pytest.raises(BadInput, match="other model"):
        policy = HFPolicy(tiny_model(hidden=32), end=[END], device="cpu")
        train_rl(policy, toy_problems(), ToyEnvironment(), ToyForm(), SETTINGS, tmp_path, MemoryLog())
    run(tmp_path, replace(SETTINGS, max_minutes=5.0, checkpoint_every=3, steps=3))  # limits and intervals may change


def test_a_corrupt_checkpoint_is_an_error_with_a_hint(tmp_path: Path) -> None:
    run(tmp_path)
    (tmp_path / "checkpoints" / "step-000006" / "state.pt").write_bytes(b"torn")
    with pytest.raises(BadInput, match="cannot read the checkpoint") as caught:
        run(tmp_path)
    assert "step-000006" in caught.value.hint


def test_an_interrupted_write_is_no_checkpoint(tmp_path: Path) -> None:
    run(tmp_path, replace(SETTINGS, steps=2))
    torn = tmp_path / "checkpoints" / ".writing-step-000004"
    torn.mkdir()
    (torn / "state.pt").write_bytes(b"torn")
    assert checkpoint.latest_step(tmp_path) == 2
    run(tmp_path, replace(SETTINGS, steps=4))
    assert checkpoint.steps(tmp_path) == [2, 4] and not torn.exists()


def test_random_states() -> None:
    import numpy as np

    def drawn() -> tuple[float, float, float]:
        return random.random(), float(np.random.rand()), float(torch.rand(1))

    np.random.standard_normal()  # leaves a cached second value in the generator's state
    states = checkpoint.random_states()
    first = drawn()
    assert drawn() != first
    checkpoint.restore_random(states)
    assert drawn() == first
