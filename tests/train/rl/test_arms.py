"""DPO on preference pairs, and rejection fine-tuning."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from msgspec.structs import replace

from hipwright.records import Fault
from hipwright.train.records import AnswerOutcome, ScoredOutcome, TrainingProblem
from hipwright.train.rl.arms import Preference, RejectionFineTuning, dpo_gradient, gather_preferences, train_dpo
from hipwright.train.rl.policy import HFPolicy, SampledAnswer
from hipwright.train.rl.rollout import Conversation, RolloutAnswer, RolloutBatch
from hipwright.train.rl.settings import ImitationSettings, OptimSettings, RLSettings
from hipwright.train.rl.training import TrainingRun
from tests.train.rl.run_loop import rows
from tests.train.rl.tools import END, MemoryLog, ToyEnvironment, ToyForm, tiny_model, toy_problems

SETTINGS = ImitationSettings(
    steps=30, batch_tokens=200, micro_tokens=100, log_every=1, optim=OptimSettings(learning_rate=1e-3, warmup=2)
)


def policy() -> HFPolicy:
    return HFPolicy(tiny_model(), end=[END], device="cpu")


def pairs() -> list[Preference]:
    return [Preference(prompt=prompt, chosen=answer, rejected=[*answer[::-1], 9]) for prompt, answer in rows()]


@pytest.mark.parametrize("micro_tokens", [1, 60, 4096])
def test_the_gradient_is_that_of_the_formula(micro_tokens: int) -> None:
    made, some, reference = policy(), pairs()[:4], [0.5, -1.0, 0.0, 2.0]
    told = dpo_gradient(made, some, reference, replace(SETTINGS, micro_tokens=micro_tokens))
    found = [one.grad.clone() for one in made.trainable_parameters()]
    made.model.zero_grad()

    def logp(prompt: list[int], answer: list[int]) -> torch.Tensor:
        sequence = torch.tensor([prompt + answer])
        table = made.model(sequence).logits[0].log_softmax(-1)[len(prompt) - 1 : -1]
        return table.gather(1, torch.tensor(answer)[:, None]).sum()

    margins = torch.stack([logp(one.prompt, one.chosen) - logp(one.prompt, one.rejected) for one in some])
    margins = margins - torch.tensor(reference)
    loss = -(0.1 * margins).sigmoid().log().mean()
    loss.backward()
    assert told["loss"].item() == pytest.approx(loss.item(), rel=1e-5)
    assert told["margin"].item() == pytest.approx(margins.mean().item(), rel=1e-4)
    for one, grad in zip(made.trainable_parameters(), found, strict=True):
        torch.testing.assert_close(grad, one.grad, atol=1e-6, rtol=1e-4)


@pytest.mark.slow
def test_dpo_raises_the_margin(tmp_path: Path) -> None:
    notes = MemoryLog()
    result = train_dpo(policy(), pairs(), SETTINGS, tmp_path, notes)
    margins, accuracy = notes.column("margin", "dpo"), notes.column("accuracy", "dpo")
    assert result.finished and margins[0] == pytest.approx(0, abs=1e-4)  # the reference is the initial policy
    assert margins[-1] > 5 and accuracy[-1] == pytest.approx(1)
    assert notes.column("loss", "dpo")[-1] < 0.6 * notes.column("loss", "dpo")[0]


def test_pairs_are_gathered_from_judged_answers(tmp_path: Path) -> None:
    settings = RLSettings(steps=3, prompts=3, samples=24, max_new_tokens=6)
    found, result = gather_preferences(
        policy(), toy_problems(), ToyEnvironment(), ToyForm(), settings, tmp_path, MemoryLog()
    )
    assert result.finished and found
    assert all(7 in one.chosen and 7 not in one.rejected for one in found)
    again, _ = gather_preferences(
        policy(), toy_problems(), ToyEnvironment(), ToyForm(), settings, tmp_path, MemoryLog()
    )
    assert again == found


# ---------------------------------------------------------------- rejection fine-tuning


def answered(name: str, first: int, reward: float | None, correct: bool = True, hack: bool = False) -> Conversation:
    fault: Fault | None = None if reward is not None else "device"
    outcome = AnswerOutcome(status="pass", fault=fault, correct=correct, hack=hack)
    one = RolloutAnswer(
        [20, 3],
        SampledAnswer([first, END], [-1.0, -1.0], True),
        "",
        outcome,
        ScoredOutcome(outcome=outcome, reward=reward),
    )
    return Conversation(0, TrainingProblem(name=name, source=""), "", [one])


def test_the_best_verified_answer_of_each_problem_is_kept(tmp_path: Path) -> None:
    made = policy()
    settings = RLSettings(prompts=2, samples=2)
    update, training = RejectionFineTuning(made, settings), TrainingRun(made, settings, 5, tmp_path, {}, {})
    conversations = [answered("a", 10, 0.2), answered("a", 11, 0.6), answered("b", 12, 0.9, correct=False)]
    told = update(
        RolloutBatch(1, [0], [*conversations, answered("b", 13, None), answered("c", 14, 0.9, hack=True)]), training
    )
    assert update.best == {"a": [0.6, [20, 3], [11, END]]} and told["imitated"] == told["new_best"] == 1
    told = update(RolloutBatch(2, [0], [answered("a", 15, 0.5), answered("d", 16, 0.1)]), training)
    assert set(update.best) == {"a", "d"} and (told["imitated"], told["new_best"]) == (2, 1)
    told = update(RolloutBatch(3, [0], [answered(name, 17, 0.3) for name in "efg"]), training)
    assert told["kept"] == 5 and told["imitated"] == 2  # half a batch
    fresh = RejectionFineTuning(made, settings)
    fresh.load(update.state())
    assert fresh.best == update.best


def test_without_correct_answers_nothing_is_imitated(tmp_path: Path) -> None:
    made = policy()
    before, settings = made.state(), RLSettings()
    training = TrainingRun(made, settings, 5, tmp_path, {}, {})
    RejectionFineTuning(made, settings)(RolloutBatch(1, [0], [answered("a", 10, 0.0, correct=False)]), training)
    assert training.step == 1 and all(torch.equal(one, before[name]) for name, one in made.state().items())
