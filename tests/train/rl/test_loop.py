"""The loop of reinforcement learning, and its gradient."""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from statistics import fmean
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from msgspec.structs import replace

from hipwright.errors import BadInput, InfrastructureError
from hipwright.train.rl import loop, training
from hipwright.train.rl.arms import CollectPreferences, train_rft
from hipwright.train.rl.gradient import PolicyGradient
from hipwright.train.rl.loop import train_rl
from hipwright.train.rl.policy import HFPolicy, SampledAnswer
from hipwright.train.rl.reference_policy import kl_estimate
from hipwright.train.rl.rollout import Conversation, RolloutAnswer, RolloutBatch
from hipwright.train.rl.settings import OptimSettings, RLSettings
from hipwright.train.rl.training import TrainingRun
from tests.train.rl.tools import END, WANTED, MemoryLog, ToyEnvironment, ToyForm, ToyJudge, tiny_model, toy_problems

FAST = OptimSettings(learning_rate=3e-3, warmup=2)
SETTINGS = RLSettings(steps=30, prompts=4, samples=8, max_new_tokens=8, optim=FAST)
SHORT = replace(SETTINGS, steps=3, prompts=2, samples=4)


def policy() -> HFPolicy:
    return HFPolicy(tiny_model(), end=[END], device="cpu")


def run(train: Any, folder: Path, settings: RLSettings = SETTINGS, judge: ToyJudge | None = None, **more: Any):
    notes = MemoryLog()
    result = train(policy(), toy_problems(), ToyEnvironment(judge), ToyForm(), settings, folder, notes, **more)
    return result, notes


@pytest.mark.slow
@pytest.mark.parametrize("train", [train_rl, train_rft])
@pytest.mark.parametrize("overlap", [True, False])
def test_the_reward_rises(train: Any, overlap: bool, tmp_path: Path) -> None:
    result, notes = run(train, tmp_path, replace(SETTINGS, overlap=overlap))
    rewards = notes.column("reward")
    assert result.finished and result.step == len(rewards) == 30
    assert fmean(rewards[:5]) < 0.25 and fmean(rewards[-5:]) > 0.75


@pytest.mark.slow
def test_random_rewards_teach_nothing(tmp_path: Path) -> None:
    """A control: the same loop with rewards that do not depend on the answer."""
    judge = ToyJudge()
    judge.judge = lambda text: ToyJudge.judge(judge, f"{WANTED}" if hash_of(text) % 2 else "")  # type: ignore[method-assign]
    _, notes = run(train_rl, tmp_path, judge=judge)
    assert abs(fmean(notes.column("reward")[-5:]) - 0.5) < 0.25


def hash_of(text: str) -> int:
    return sum(ord(sign) * (place + 1) for place, sign in enumerate(text))


def test_figures_of_a_step(tmp_path: Path) -> None:
    judge = ToyJudge(fault=lambda text: text.startswith("1"))
    result, notes = run(train_rl, tmp_path, replace(SHORT, steps=6, samples=48), judge)
    assert result.metrics == notes.lines[-1][2]
    told = notes.lines[0][2]
    assert told["answers"] == 96 and told["infra"] == pytest.approx(1 - told["scored"] / 96) and told["infra"] > 0
    assert told["clipped"] == 0 and abs(told["drift"]) < 1e-5  # the first batch was sampled by these weights
    assert 0 < told["entropy"] <= math.log(64) and told["grad_norm"] > 0
    assert {"seconds_generate", "seconds_wait", "seconds_train", "seconds_step", "rewards_an_hour"} <= told.keys()
    drifts = [values["drift"] for _, _, values in notes.lines[1:]]
    assert all(drift >= 0 for drift in drifts) and max(drifts) > 1e-4  # later batches are one step old


def test_on_policy_without_overlap(tmp_path: Path) -> None:
    _, notes = run(train_rl, tmp_path, replace(SHORT, overlap=False))
    assert max(abs(value) for value in notes.column("drift")) < 1e-5


@pytest.mark.slow
@pytest.mark.parametrize("train", [train_rl, train_rft])
def test_several_updates_on_a_batch_raise_the_reward_faster(train: Any, tmp_path: Path) -> None:
    """A step is still one batch; the ratios of the second update differ from 1."""
    few = replace(SETTINGS, steps=8, overlap=False, optim=replace(FAST, learning_rate=1e-3))
    _, once = run(train, tmp_path / "once", few)
    result, often = run(train, tmp_path / "often", replace(few, updates=4))
    assert result.step == len(often.lines) == 8
    assert fmean(often.column("reward")[-3:]) > fmean(once.column("reward")[-3:])
    if train is train_rl:
        assert max(often.column("drift")) > 1e-4 > max(once.column("drift"))
    with pytest.raises(ValueError, match="updates"):
        RLSettings(updates=0)


def test_examples_are_logged(tmp_path: Path) -> None:
    _, notes = run(train_rl, tmp_path, replace(SHORT, sample_every=1))
    assert len(notes.samples) == 3
    assert {"problem", "source", "completion", "outcome", "reward", "turn"} <= notes.samples[0].keys()


def test_batches_without_rewards_end_the_run(tmp_path: Path) -> None:
    with pytest.raises(InfrastructureError, match="fell asleep"):
        run(train_rl, tmp_path, replace(SHORT, steps=9), ToyJudge(fault=lambda text: True))


def test_a_prompt_that_is_too_long_is_bad_input(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="has 2 tokens"):
        run(train_rl, tmp_path, replace(SHORT, max_prompt_tokens=1))


def test_no_batch_is_started_after_the_last_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = itertools.count()
    clock = SimpleNamespace(monotonic=lambda: float(next(ticks)))  # every reading takes a second
    for module in (loop, training):
        monkeypatch.setattr(module, "time", clock)
    judge = ToyJudge()
    result, notes = run(train_rl, tmp_path, replace(SHORT, steps=1000, max_minutes=1.0), judge)
    assert result.finished and 3 <= result.step < 60
    assert judge.asked == sum(notes.column("answers"))


def test_minutes_end_a_piece_and_a_run(tmp_path: Path) -> None:
    piece, _ = run(train_rl, tmp_path, SHORT, piece_minutes=1e-9)
    assert not piece.finished and piece.step == 0
    stopped, notes = run(train_rl, tmp_path, replace(SHORT, max_minutes=1e-9))
    assert stopped.finished and not notes.lines


# ---------------------------------------------------------------- the gradient


def judged(rewards: list[list[float | None]]) -> RolloutBatch:
    """A batch of one problem's conversations with these rewards and arbitrary answers."""
    from hipwright.train.records import AnswerOutcome, ScoredOutcome

    (problem,) = toy_problems(1)
    conversations = []
    for number, row in enumerate(rewards):
        conversation = Conversation(0, problem, "")
        for turn, reward in enumerate(row):
            tokens = [10 + number, 30 + turn, 40 + number, END]
            outcome = AnswerOutcome(
                status="pass" if reward is not None else "unscorable", fault=None if reward is not None else "device"
            )
            one = RolloutAnswer([20, 3], SampledAnswer(tokens, [-4.0, -4.1, -4.2, -4.3], True), "", outcome)
            one.scored = ScoredOutcome(outcome=outcome, reward=reward)
            conversation.answers.append(one)
        conversations.append(conversation)
    return RolloutBatch(1, [0], conversations)


def gradients(batch: RolloutBatch, settings: RLSettings) -> tuple[list[torch.Tensor], HFPolicy]:
    made = policy()
    update = PolicyGradient(made, settings)
    weighted, _ = update.weighted_answers(batch)
    tokens = sum(len(answer.sample.tokens) for answer, _ in weighted)
    update._gradient([item for item in weighted if item[1]], tokens)
    return [one.grad.clone() for one in made.trainable_parameters()], made


def test_the_gradient_is_that_of_the_formula() -> None:
    batch = judged([[1.0], [0.0], [0.25]])
    settings = replace(SETTINGS, temperature=0.7)
    found, made = gradients(batch, settings)
    answers = [conversation.answers[0] for conversation in batch.conversations]
    loss = torch.zeros(())
    for answer, weight in zip(answers, (0.875, -0.625, -0.25), strict=True):  # each less the mean of the others
        sequence = torch.tensor([answer.prompt + answer.sample.tokens])
        logprobs = (made.model(sequence).logits[0] / 0.7).log_softmax(-1)[1:-1]
        chosen = logprobs.gather(1, sequence[0, 2:, None])[:, 0]
        ratio = (chosen - torch.tensor(answer.sample.logprobs)).exp()
        loss -= torch.minimum(ratio * weight, ratio.clamp(0.8, 1.28) * weight).sum() / 12
    for one in made.trainable_parameters():
        one.grad = None
    loss.backward()
    for one, ours in zip(made.trainable_parameters(), found, strict=True):
        torch.testing.assert_close(ours, one.grad, atol=1e-6, rtol=1e-4)


def test_a_far_token_of_a_bad_answer_has_no_gradient() -> None:
    batch = judged([[1.0], [0.0]])
    alone, _ = gradients(batch, SETTINGS)
    bad = batch.conversations[1].answers[0].sample
    bad.logprobs[-1] -= 9.0  # it is 8000 times as probable as when it was sampled
    found, _ = gradients(batch, SETTINGS)
    bound = sum(one.norm() for one in alone)
    assert 0 < sum(one.norm() for one in found) < 2 * bound
    without, _ = gradients(batch, replace(SETTINGS, clip_worst=1e9))
    assert sum(one.norm() for one in without) > 50 * bound


@pytest.mark.parametrize("micro_tokens", [1, 12, 4096])
def test_micro_batches_change_nothing(micro_tokens: int) -> None:
    batch = judged([[1.0], [0.0], [0.25], [0.3]])
    whole, _ = gradients(batch, SETTINGS)
    parts, _ = gradients(batch, replace(SETTINGS, micro_tokens=micro_tokens))
    for one, other in zip(whole, parts, strict=True):
        torch.testing.assert_close(one, other, atol=1e-6, rtol=1e-4)


def test_an_unscorable_answer_changes_no_gradient() -> None:
    with_it, _ = gradients(judged([[1.0], [0.0], [None], [0.25]]), SETTINGS)
    batch = judged([[1.0], [0.0], [None], [0.25]])
    del batch.conversations[2]
    without, _ = gradients(batch, SETTINGS)
    assert all(torch.equal(one, other) for one, other in zip(with_it, without, strict=True))


# ---------------------------------------------------------------- the KL to the start


def moved(kl: float, tmp_path: Path, *, by: float = 0.05) -> tuple[PolicyGradient, TrainingRun, list[torch.Tensor]]:
    """(an update whose policy has moved from its start, its run, the start's weights)."""
    made = policy()
    settings = replace(SETTINGS, kl=kl)
    update = PolicyGradient(made, settings)
    start = [one.detach().clone() for one in made.trainable_parameters()]
    torch.manual_seed(3)
    for one in made.trainable_parameters():
        one.data += by * torch.randn_like(one)
    return update, TrainingRun(made, settings, 50, tmp_path, {}, {}), start


def test_the_kl_term_is_that_of_the_formula(tmp_path: Path) -> None:
    batch = judged([[0.3], [0.3]])  # no advantage: the KL alone
    update, _, start = moved(0.5, tmp_path)
    made = update.policy
    places = [one.data_ptr() for one in made.trainable_parameters()]
    weighted, _ = update.weighted_answers(batch)
    told = update._gradient(weighted, 8, update._reference_logprobs(weighted))
    found = [one.grad.clone() for one in made.trainable_parameters()]
    assert places == [one.data_ptr() for one in made.trainable_parameters()]  # captured graphs stay valid

    def logprobs(answer: RolloutAnswer) -> torch.Tensor:
        sequence = torch.tensor([answer.prompt + answer.sample.tokens])
        table = (made.model(sequence).logits[0] / SETTINGS.temperature).log_softmax(-1)[1:-1]  # type: ignore[attr-defined]
        return table.gather(1, sequence[0, 2:, None])[:, 0]

    answers = [conversation.answers[0] for conversation in batch.conversations]
    here = [one.detach().clone() for one in made.trainable_parameters()]
    for one, kept in zip(made.trainable_parameters(), start, strict=True):
        one.data.copy_(kept)
    with torch.no_grad():
        before = [logprobs(answer) for answer in answers]
    for one, kept in zip(made.trainable_parameters(), here, strict=True):
        one.data.copy_(kept)
        one.grad = None
    ahead = [was - logprobs(answer) for was, answer in zip(before, answers, strict=True)]
    distance = sum(one.square().sum() / 2 for one in ahead)
    (0.5 * distance / 8).backward()  # type: ignore[operator]
    assert told["kl"] == pytest.approx(float(distance.detach()) / 8, rel=1e-4)
    for one, ours in zip(made.trainable_parameters(), found, strict=True):
        torch.testing.assert_close(ours, one.grad, atol=1e-6, rtol=1e-3)


def test_the_kl_of_an_improbable_token_is_bounded_by_its_distance() -> None:
    reference, now = torch.tensor([-0.5, -0.5]), torch.tensor([-0.4, -9.5], requires_grad=True)
    kl_estimate(now, reference).sum().backward()
    assert now.grad is not None and now.grad.tolist() == pytest.approx([0.1, -9.0], rel=1e-3)


@pytest.mark.parametrize("kl", [0.0, 0.1])
def test_a_group_without_variance_is_pulled_back_to_the_start(kl: float, tmp_path: Path) -> None:
    update, training, _ = moved(kl, tmp_path)
    batch = judged([[0.0], [0.0], [0.0]])
    told = [update(batch, training) for _ in range(12)]
    if kl:
        assert told[-1]["kl"] < 0.5 * told[0]["kl"]
    else:
        assert "kl" not in told[0] and told[-1]["grad_norm"] == 0


def test_resuming_from_other_weights_is_refused(tmp_path: Path) -> None:
    update, _, _ = moved(0.1, tmp_path)
    PolicyGradient(policy(), replace(SETTINGS, kl=0.1)).load(update.state())
    with pytest.raises(BadInput, match="other weights"):
        PolicyGradient(update.policy, replace(SETTINGS, kl=0.1)).load(update.state())


def test_groups_are_by_turn() -> None:
    update = PolicyGradient(policy(), replace(SETTINGS, clip_rewards=False, turn_discount=0.5))
    batch = judged([[1.0], [0.0, 1.0], [0.0, 0.0], [None]])
    weighted, metrics = update.weighted_answers(batch)
    weights = {id(answer): weight for answer, weight in weighted}
    first = [weights.get(id(conversation.answers[0])) for conversation in batch.conversations]
    assert first == pytest.approx([1 - 0.25, 0.5 - 0.5, 0 - 0.75, None])  # worth 1, 0.5 (repaired after) and 0
    assert [weights[id(batch.conversations[i].answers[1])] for i in (1, 2)] == [1, -1]
    assert metrics == {"groups": 2, "zero_variance": 0}


def test_groups_without_variance_are_counted_and_not_run() -> None:
    update = PolicyGradient(policy(), SETTINGS)
    weighted, metrics = update.weighted_answers(judged([[0.3], [0.3], [None]]))
    assert [weight for _, weight in weighted] == [0, 0] and metrics["zero_variance"] == 1
    assert update.weighted_answers(judged([[0.3], [None]]))[1]["groups"] == 0


def test_a_step_without_advantages_keeps_the_weights(tmp_path: Path) -> None:
    made = policy()
    update = PolicyGradient(made, SETTINGS)
    training = TrainingRun(made, SETTINGS, 5, tmp_path, {}, {})
    before = made.state()
    told = update(judged([[0.3], [0.3]]), training)
    assert training.step == 1 and told["grad_norm"] == 0
    assert all(torch.equal(one, before[name]) for name, one in made.state().items())


def test_gathering_changes_no_weights(tmp_path: Path) -> None:
    made = policy()
    before = made.state()
    training = TrainingRun(made, SETTINGS, 5, tmp_path, {}, {})
    gather = CollectPreferences()
    assert gather(judged([[1.0], [0.0], [0.5], [None]]), training) == {"preferences": 1}
    assert (gather.found[0].chosen[0], gather.found[0].rejected[0]) == (10, 11)
    gather(judged([[0.5], [0.45]]), training)
    assert len(gather.found) == 1
    assert all(torch.equal(one, before[name]) for name, one in made.state().items())
