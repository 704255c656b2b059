"""The context of prompts: earlier answers and lessons."""

from __future__ import annotations

import json
import random

from hipwright.train.records import AnswerOutcome, ScoredOutcome, TrainingProblem
from hipwright.train.rl.exemplars import MAX_PROBLEMS, Exemplars, FailureCounts, RolloutContext, describe_outcome

SOFTMAX = TrainingProblem(name="softmax", source="def forward(self, x): return torch.softmax(x * self.scale, dim=-1)")
LOGITS = TrainingProblem(name="logits", source="def forward(self, y): return torch.log_softmax(y * self.scale, dim=-1)")
CONV = TrainingProblem(name="conv", source="def forward(self, x): return torch.nn.functional.conv2d(x, self.weight)")


def timed(reward: float, speedup: float) -> ScoredOutcome:
    outcome = AnswerOutcome(
        status="pass",
        compiled=True,
        correct=True,
        clock="device",
        baseline="eager",
        speedup=speedup,
        low=speedup - 0.05,
        high=speedup + 0.05,
    )
    return ScoredOutcome(outcome=outcome, reward=reward)


def failed(message: str, reward: float | None = 0.0, status: str = "wrong_value") -> ScoredOutcome:
    fault = None if reward is not None else "device"
    return ScoredOutcome(outcome=AnswerOutcome(status=status, fault=fault, message=message), reward=reward)  # type: ignore[arg-type]


def filled() -> Exemplars:
    found = Exemplars()
    found.add(SOFTMAX, "SLOW", timed(0.35, 1.1))
    found.add(SOFTMAX, "FAST", timed(0.8, 2.5))
    found.add(SOFTMAX, "MIDDLE", timed(0.5, 1.5))
    found.add(CONV, "ONLY", timed(0.5, 1.5))
    return found


def test_the_best_and_the_worst_are_shown_with_their_figures() -> None:
    text = filled().contrast(SOFTMAX)
    assert "MIDDLE" not in text and text.index("SLOW") < text.index("FAST")
    assert "correct, 1.10x against eager measured, 1.05 to 1.15" in text
    assert "correct, 2.50x against eager measured, 2.45 to 2.55" in text and "this reference" in text


def test_answers_of_a_similar_problem_are_shown() -> None:
    text = filled().contrast(LOGITS)
    assert "SLOW" in text and "a similar reference" in text
    assert "SLOW" in filled().contrast(CONV)  # CONV has one answer alone


def test_answers_without_a_reward_are_not_kept() -> None:
    found = Exemplars()
    found.add(SOFTMAX, "prose", failed("no program", status="parse_error"))
    found.add(SOFTMAX, "lost", failed("the device is gone", None))
    found.add(SOFTMAX, "good", timed(0.8, 2.5))
    assert found.contrast(SOFTMAX) == ""
    found.add(SOFTMAX, "bad", failed("3 of 9 elements wrong"))
    assert "wrong_value: 3 of 9 elements wrong" in found.contrast(SOFTMAX)


def test_the_oldest_problems_are_dropped() -> None:
    found = filled()
    for number in range(MAX_PROBLEMS):
        found.add(TrainingProblem(name=str(number), source="x"), "one", timed(0.5, 1.5))
    assert found.contrast(SOFTMAX) == ""


def test_figures() -> None:
    estimate = AnswerOutcome(status="pass", correct=True, clock="estimate", speedup=2.0)
    assert describe_outcome(estimate) == "correct, 2.00x against the baseline by static estimate"
    assert describe_outcome(AnswerOutcome(status="pass", correct=True)) == "correct, not timed"


def test_lessons_count_failures_by_kind() -> None:
    found = FailureCounts()
    for message, status in (("element 9", "out_of_bounds"), ("element 3", "out_of_bounds"), ("no", "compile_error")):
        found.add(failed(message, status=status).outcome)
    found.add(timed(1.0, 2.0).outcome)
    found.add(failed("gone", None).outcome)
    lines = found.text(1).splitlines()
    assert len(lines) == 2 and "seen in 2 of 4 programs" in lines[1] and "element 3" in lines[1]
    assert len(found.text(5).splitlines()) == 3 and FailureCounts().text(3) == ""


def test_a_context_by_share_and_its_state() -> None:
    context = RolloutContext(0.5, 1)
    context.add(SOFTMAX, "FAST", timed(0.8, 2.5))
    context.add(SOFTMAX, "WRONG", failed("no"))
    texts = [context.text(SOFTMAX, random.Random(seed)) for seed in range(200)]
    assert 70 < sum("FAST" in text for text in texts) < 130 and all("went wrong" in text for text in texts)
    fresh = RolloutContext(0.5, 1)
    fresh.load(json.loads(json.dumps(context.state())))
    assert [fresh.text(SOFTMAX, random.Random(seed)) for seed in range(200)] == texts


def test_answers_that_no_prompt_shows_are_not_kept() -> None:
    context = RolloutContext(0.0, 0)
    context.add(SOFTMAX, "FAST", timed(0.8, 2.5))
    assert context.state() == RolloutContext(0.0, 0).state() and context.text(SOFTMAX, random.Random(1)) == ""
