"""The algorithm without TRL: it is that of train/rl, and equal in all processes."""

from __future__ import annotations

import json
from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hipwright.errors import BadInput
from hipwright.train import tiny
from hipwright.train.forms import ChatForm, repair_message
from hipwright.train.records import AnswerOutcome, ScoredOutcome, TrainingProblem, Turn
from hipwright.train.rl.gradient import PolicyGradient
from hipwright.train.rl.policy import SampledAnswer
from hipwright.train.rl.rollout import Conversation, RolloutAnswer, RolloutBatch
from hipwright.train.rl.settings import RLSettings
from hipwright.train.scaled.algorithm import JudgedConversation, SharedAlgorithm, group_weights
from hipwright.train.scaled.rollout import findings_tokens
from hipwright.train.scaled.settings import GrpoSettings

PROBLEMS = [TrainingProblem(name=f"p{number}", source=f"reference {number}") for number in range(6)]


def scored(reward: float | None, coverage: float = 1.0) -> ScoredOutcome:
    """A scored outcome: None unscorable, 0 wrong, above 0 correct."""
    if reward is None:
        return ScoredOutcome(outcome=AnswerOutcome(status="unscorable", fault="device"), reward=None)
    right = reward > 0
    status = "pass" if right else "wrong_value"
    outcome = AnswerOutcome(status=status, compiled=True, correct=right, coverage=coverage if right else 0.0)
    return ScoredOutcome(outcome=outcome, reward=reward)


REWARDS = st.none() | st.sampled_from([0.0, 0.5, 1.0, 3.0])
TURNS = st.lists(st.tuples(REWARDS, st.sampled_from([0.1, 1.0])), min_size=1, max_size=3)


@given(st.lists(st.lists(TURNS, min_size=3, max_size=3), min_size=1, max_size=3), st.sampled_from([0.0, 0.5]))
def test_the_advantages_are_those_of_the_own_loop(groups: list[list[list[tuple]]], least: float) -> None:
    """Groups of three conversations of up to three turns each, some unscorable, some with little work of their own."""
    own = RLSettings(min_own=least, clip_rewards=False)
    batch = RolloutBatch(0, list(range(len(groups))), [])
    judged: list[JudgedConversation] = []
    for slot, group in enumerate(groups):
        for turns in group:
            known = [scored(*one) for one in turns]
            answers = [RolloutAnswer([1], SampledAnswer([2], [0.0], True), "", one.outcome, one) for one in known]
            batch.conversations.append(Conversation(slot, PROBLEMS[slot], "", answers))
            judged.append(JudgedConversation(slot, [("", one) for one in known]))
    gradient = PolicyGradient(None, own)  # type: ignore[arg-type]
    pairs, figures = gradient.weighted_answers(batch)
    by_answer = {id(answer): weight for answer, weight in pairs}
    expected = [[by_answer.get(id(one), 0.0) for one in talk.answers] for talk in batch.conversations]
    rewards = [[one.reward for _, one in talk.turns] for talk in judged]
    weights, found = group_weights(judged, rewards, GrpoSettings(samples=3, min_own=least))
    assert weights == [pytest.approx(one) for one in expected]
    assert found["zero_variance"] == pytest.approx(figures["zero_variance"])


def batches(count: int, rewards: Sequence[float | None]) -> list[JudgedConversation]:
    return [
        JudgedConversation(place // 2 % len(PROBLEMS), [(f"answer {place}", scored(rewards[place % len(rewards)]))])
        for place in range(count)
    ]


def test_processes_keep_one_state_and_take_their_own_share() -> None:
    """Two processes of four conversations against one of eight: equal states, draws and contexts."""
    settings = GrpoSettings(samples=2, exemplars=1.0, lessons=3)
    alone, first, second = (SharedAlgorithm(PROBLEMS, settings, 4) for _ in range(3))
    for step in range(20):
        whole = batches(8, [0.0, 0.5, None, 0.5, 3.0 if step > 16 else 0.0])
        share = [whole[:4], whole[4:]]
        expected, _ = alone.update([whole], 0)
        left, right = first.update(share, 0)[0], second.update(share, 1)[0]
        assert left + right == expected
    assert first.state() == second.state() == alone.state()
    assert alone.draw(3) == first.draw(3)
    assert first.contexts(PROBLEMS) == second.contexts(PROBLEMS) and first.contexts(PROBLEMS[:1])[0]
    resumed = SharedAlgorithm(PROBLEMS, settings, 4)
    resumed.load(json.loads(json.dumps(first.state())))
    assert resumed.state() == first.state() and resumed.draw(7) == first.draw(7)
    assert alone.clip.clipped > 0, "rewards beyond 1.5 deviations were clipped"


def test_the_curriculum_prefers_what_is_solved_sometimes() -> None:
    algorithm = SharedAlgorithm(PROBLEMS, GrpoSettings(samples=2), 2)
    for _ in range(30):
        always = [JudgedConversation(0, [("", scored(1.0))])] * 2
        sometimes = [JudgedConversation(1, [("", scored(one))]) for one in (1.0, 0.0)]
        algorithm.update([[*always, *sometimes]], 0)
    weights = algorithm.curriculum.weights()
    assert weights[1] > 2 * weights[0] > 0


def test_rejection_takes_one_answer_of_a_group_that_has_a_fit_one() -> None:
    judged = [
        JudgedConversation(0, [("", scored(0.0)), ("", scored(3.0, coverage=0.1))]),
        JudgedConversation(0, [("", scored(1.0))]),
        JudgedConversation(1, [("", scored(0.0))]),
        JudgedConversation(1, [("", scored(None))]),
    ]
    rewards = [[one.reward for _, one in talk.turns] for talk in judged]
    settings = GrpoSettings(samples=2, update="rejection")
    assert group_weights(judged, rewards, settings)[0] == [[0.0, 1.0], [0.0], [0.0], [0.0]]
    strict = msgspec.structs.replace(settings, min_own=0.5)
    assert group_weights(judged, rewards, strict)[0] == [[0.0, 0.0], [1.0], [0.0], [0.0]]


# ---------------------------------------------------------------- tokens


@pytest.mark.parametrize("ended", [True, False])
def test_findings_continue_the_conversation_as_the_template_writes_it(ended: bool) -> None:
    _, tokenizer = tiny.tiny_model("qwen2", ["reference"])
    form = ChatForm(tokenizer)
    outcome = AnswerOutcome(status="wrong_value", evidence="element 3 is wrong")
    prompt = form.encode(PROBLEMS[0])
    answer = [*tokenizer.encode("the answer", add_special_tokens=False), *([tokenizer.eos_token_id] if ended else [])]
    findings = findings_tokens(
        tokenizer, form.messages(PROBLEMS[0]), "the answer", repair_message(outcome), ended=ended
    )
    told = form.messages(PROBLEMS[0], [Turn(completion="the answer", outcome=outcome)])
    whole = tokenizer.apply_chat_template(told, tokenize=False, add_generation_prompt=True)
    assert tokenizer.decode([*prompt, *answer, *findings]) == whole


def test_a_template_that_rewrites_the_past_is_refused() -> None:
    _, tokenizer = tiny.tiny_model("qwen2", ["reference"])
    tokenizer.chat_template = (
        "{% for m in messages %}{% if m['role'] != 'assistant' or loop.last %}"
        "{{ m['role'] + ': ' + m['content'] + '<|im_end|>' }}{% endif %}{% endfor %}"
    )
    said = [{"role": "user", "content": "write"}]
    with pytest.raises(BadInput, match="changes earlier messages"):
        findings_tokens(tokenizer, said, "an answer", {"role": "user", "content": "wrong"}, ended=True)
