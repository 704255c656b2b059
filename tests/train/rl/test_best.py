"""Runs that end with the weights of their best steps."""

from __future__ import annotations

from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
import torch
from msgspec.structs import replace

from hipwright.train.rl.best import BestWeights
from hipwright.train.rl.loop import train_rl
from hipwright.train.rl.policy import HFPolicy
from hipwright.train.rl.settings import OptimSettings, RLSettings
from hipwright.train.rl.training import LoopResult, TrainingRun
from tests.train.rl.tools import END, MemoryLog, ToyEnvironment, ToyForm, tiny_model, toy_problems

WINDOW = 3
SETTINGS = RLSettings(  # at this learning rate the reward falls again after four steps
    steps=7,
    prompts=4,
    samples=8,
    max_new_tokens=4,
    checkpoint_every=2,
    keep=WINDOW,
    optim=OptimSettings(learning_rate=0.05),
)


class WeightLog(MemoryLog):
    """A log in memory with the weights after each step."""

    def __init__(self, policy: HFPolicy) -> None:
        super().__init__()
        self.policy = policy
        self.weights: dict[int, dict[str, torch.Tensor]] = {}

    def metrics(self, stage: str, step: int, values: Any) -> None:
        super().metrics(stage, step, values)
        self.weights[step] = self.policy.state()


def run(folder: Path, settings: RLSettings = SETTINGS) -> tuple[LoopResult, WeightLog]:
    policy = HFPolicy(tiny_model(), end=[END], device="cpu")
    notes = WeightLog(policy)
    return train_rl(policy, toy_problems(), ToyEnvironment(), ToyForm(), settings, folder, notes), notes


def same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return all(torch.equal(a[name], b[name]) for name in a)


@pytest.mark.parametrize(("overlap", "rate"), [(True, 0.05), (False, 0.2)])
def test_the_policy_ends_with_the_weights_that_sampled_its_best_batches(
    tmp_path: Path, overlap: bool, rate: float
) -> None:
    settings = replace(SETTINGS, overlap=overlap, optim=OptimSettings(learning_rate=rate))
    result, notes = run(tmp_path, settings)
    rewards = notes.column("reward")
    means = {end: fmean(rewards[end - WINDOW : end]) for end in range(WINDOW, len(rewards) + 1)}
    best = max(means, key=means.__getitem__)
    assert best < SETTINGS.steps, "the run never got worse: the test would show nothing"
    assert result.metrics["kept_step"] == best and result.metrics["kept_reward"] == pytest.approx(means[best])
    assert same(notes.policy.state(), notes.weights[best - (2 if overlap else 1)])
    assert not same(notes.policy.state(), notes.weights[SETTINGS.steps])
    again, after = run(tmp_path, settings)  # a finished run gives the same weights again
    assert again.finished and same(after.policy.state(), notes.weights[best - (2 if overlap else 1)])


def test_pieces_keep_the_same_weights_as_one_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, notes = run(tmp_path / "whole")
    with monkeypatch.context() as patch:
        patch.setattr(TrainingRun, "paused", property(lambda self: self.step == 5))
        piece, part = run(tmp_path / "parts")
    assert not piece.finished and same(part.policy.state(), part.weights[5])
    result, parts = run(tmp_path / "parts")
    assert result.metrics["kept_step"] == whole.metrics["kept_step"]
    assert all(torch.allclose(a, parts.policy.state()[name]) for name, a in notes.policy.state().items())


def test_without_keep_the_last_weights_are_the_result(tmp_path: Path) -> None:
    result, notes = run(tmp_path, replace(SETTINGS, keep=0))
    assert "kept_step" not in result.metrics and same(notes.policy.state(), notes.weights[SETTINGS.steps])


def test_a_batch_without_rewards_is_ignored() -> None:
    policy = HFPolicy(tiny_model(), end=[END], device="cpu")
    best = BestWeights(policy, 2)
    for step, reward in enumerate((0.5, float("nan"), 0.7, 0.1), start=1):
        best.sampled(step)
        best.update(step, reward)
    assert (best.step, best.reward) == (3, pytest.approx(0.6))


def test_a_negative_window_is_refused() -> None:
    with pytest.raises(ValueError, match="keep must not be negative"):
        RLSettings(keep=-1)
