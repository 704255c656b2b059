"""Supervised learning on rows of tokens."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from msgspec.structs import replace

from hipwright.errors import BadInput
from hipwright.train.rl.imitation import Passes, imitate, sft_loop, take_batch
from hipwright.train.rl.policy import HFPolicy
from hipwright.train.rl.settings import ImitationSettings, OptimSettings
from tests.train.rl.run_loop import rows
from tests.train.rl.tools import END, MemoryLog, tiny_model

SETTINGS = ImitationSettings(
    batch_tokens=64, micro_tokens=64, row_tokens=32, log_every=1, optim=OptimSettings(learning_rate=3e-3, warmup=2)
)


def policy() -> HFPolicy:
    return HFPolicy(tiny_model(), end=[END], device="cpu")


def test_the_loss_is_that_of_the_completions_alone() -> None:
    made, data = policy(), rows()[:9]
    ours = imitate(made, data, SETTINGS)
    found = [one.grad.clone() for one in made.trainable_parameters()]
    made.model.zero_grad()
    losses, count = torch.zeros(()), 0
    for prompt, completion in data:
        sequence = torch.tensor([prompt + completion])
        labels = torch.tensor([[-100] * len(prompt) + completion])
        losses = losses + made.model(sequence, labels=labels).loss * len(completion)
        count += len(completion)
    (losses / count).backward()
    assert ours.item() == pytest.approx((losses / count).item(), rel=1e-5)
    for one, grad in zip(made.trainable_parameters(), found, strict=True):
        torch.testing.assert_close(grad, one.grad, atol=1e-6, rtol=1e-4)


def test_a_pass_holds_every_row_once_in_an_order_of_its_own(tmp_path: Path) -> None:
    sizes = [len(prompt) + len(completion) for prompt, completion in rows()]
    passes = Passes(policy(), sizes, SETTINGS, tmp_path, MemoryLog(), {})
    orders = []
    for number in range(2):
        seen: list[int] = []
        while passes.number == number:
            batch = passes.next_batch()
            assert sum(sizes[index] for index in batch) <= 64
            seen += batch
        orders.append(seen)
    assert sorted(orders[0]) == sorted(orders[1]) == list(range(37)) and orders[0] != orders[1]


def test_take_batch() -> None:
    assert take_batch([3, 1, 0], [5, 5, 5, 5], 10) == [3, 1]
    assert take_batch([3, 1], [5, 5, 5, 50], 10) == [3]
    assert take_batch([], [], 10) == []


@pytest.mark.slow
def test_the_loss_falls(tmp_path: Path) -> None:
    made, notes = policy(), MemoryLog()
    calls: list[int] = []

    def evaluate() -> dict[str, float]:
        calls.append(1)
        return {"right": float(len(calls))}

    settings = replace(SETTINGS, epochs=12.0, evaluate_every=30)
    result = sft_loop(made, rows(), settings, tmp_path, notes, evaluate=evaluate)
    losses = notes.column("loss", "sft")
    assert losses[0] > 3.5 and losses[-1] < 0.5 * losses[0] and len(losses) == result.step
    assert [step for stage, step, _ in notes.lines if stage == "eval"][:2] == [30, 60]
    assert notes.lines[-1][0] == "eval" and notes.lines[-1][1] == result.step
    assert notes.column("tokens_per_second", "sft")[0] > 0
    again = sft_loop(made, rows(), settings, tmp_path, MemoryLog(), evaluate=evaluate)
    assert again.finished and again.step == result.step


def test_without_rows_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="nothing to learn from"):
        sft_loop(policy(), [], SETTINGS, tmp_path, MemoryLog())
