"""RolloutRunner: repairs, contexts, and the state in checkpoints."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from msgspec.structs import replace

from hipwright.errors import DeviceError
from hipwright.train.records import AnswerOutcome, TrainingProblem, Turn
from hipwright.train.rl.exemplars import RolloutContext
from hipwright.train.rl.policy import SampledAnswer
from hipwright.train.rl.rollout import PhaseSeconds, RolloutRunner
from hipwright.train.rl.settings import RLSettings
from tests.train.rl.tools import END, ToyEnvironment, ToyForm, ToyJudge, toy_problems

SETTINGS = RLSettings(prompts=2, samples=3, turns=3, max_new_tokens=4)


class ScriptedPolicy:
    """A policy with given answers for each turn."""

    device = "cpu"

    def __init__(self, *turns: list[str]) -> None:
        self.turns, self.asked, self.seeds = list(turns), [], []

    def generate(self, prompts: Sequence[list[int]], *, samples: int, seed: int, **_: Any) -> list[list[SampledAnswer]]:
        said = iter(self.turns.pop(0))
        self.asked.append([list(prompt) for prompt in prompts])
        self.seeds.append(seed)
        return [[self._sample(next(said)) for _ in range(samples)] for _ in prompts]

    def _sample(self, text: str) -> SampledAnswer:
        tokens = [*(int(word) for word in text.split()), END]
        return SampledAnswer(tokens, [-1.0] * len(tokens), True)


def runner(
    policy: ScriptedPolicy, judge: ToyJudge | None = None, settings: RLSettings = SETTINGS, **more: Any
) -> RolloutRunner:
    environment = more.pop("environment", None) or ToyEnvironment(judge)
    context = more.pop("context", None) or RolloutContext(0, 0)
    return RolloutRunner(policy, toy_problems(), environment, ToyForm(), settings, context, PhaseSeconds())


def test_a_refused_answer_is_repaired_with_its_evidence() -> None:
    judge = ToyJudge(fault=lambda text: text == "9")
    policy = ScriptedPolicy(["8", "7", "9", "7", "7", "10"], ["11", "7"], ["12"])
    rollouts = runner(policy, judge)
    batch = rollouts.start(1, [2, 5])
    rollouts.finish(batch)
    assert judge.prefetched == ["p2", "p5"]
    assert policy.asked[0] == [[22, 3], [25, 3]]
    assert policy.asked[1] == [[22, 3, 8, 4], [25, 3, 10, 4]]  # repairs of neither correct nor unscorable answers
    assert policy.asked[2] == [[22, 3, 8, 4, 11, 4]]
    assert len(set(policy.seeds)) == 3
    assert [[one.scored.reward for one in conversation.answers] for conversation in batch.conversations] == [
        [0, 0, 0],
        [1],
        [None],
        [1],
        [1],
        [0, 1],
    ]
    shape = [(slot, turn, len(answers)) for slot, turn, answers in batch.groups()]
    assert shape == [(0, 0, 3), (0, 1, 1), (0, 2, 1), (1, 0, 3), (1, 1, 1)]


def test_a_correct_answer_may_be_followed_by_others() -> None:
    policy = ScriptedPolicy(["7"] * 6, ["7"] * 6, ["7"] * 6)
    rollouts = runner(policy, settings=replace(SETTINGS, stop_when_right=False))
    rollouts.finish(batch := rollouts.start(1, [0, 1]))
    assert [len(conversation.answers) for conversation in batch.conversations] == [3] * 6


def test_a_repair_with_a_too_long_prompt_is_left_out() -> None:
    policy = ScriptedPolicy(["8"] * 6, ["8"] * 6)
    rollouts = runner(policy, settings=replace(SETTINGS, max_prompt_tokens=5))
    rollouts.finish(batch := rollouts.start(1, [0, 1]))
    assert [len(conversation.answers) for conversation in batch.conversations] == [2] * 6


def test_the_environment_gets_the_earlier_turns() -> None:
    seen: list[tuple[str, tuple[str, ...]]] = []

    class Watching(ToyEnvironment):
        def submit(self, problem: TrainingProblem, completion: str, history: Sequence[Turn] = ()) -> Any:
            seen.append((completion, tuple(turn.completion for turn in history)))
            return super().submit(problem, completion, history)

    rollouts = runner(ScriptedPolicy(["8", "7", "7"], ["9"], ["10"]), environment=Watching())
    rollouts.finish(rollouts.start(1, [0]))
    assert seen == [("8", ()), ("7", ()), ("7", ()), ("9", ("8",)), ("10", ("8", "9"))]


def test_an_error_of_the_judge_is_an_unscorable_outcome() -> None:
    class Broken(ToyJudge):
        def judge(self, text: str) -> AnswerOutcome:
            raise DeviceError("gone")

    rollouts = runner(ScriptedPolicy(["8", "7", "7"]), Broken())
    rollouts.finish(batch := rollouts.start(1, [0]))
    assert [one.scored.reward for conversation in batch.conversations for one in conversation.answers] == [None] * 3
    assert batch.conversations[0].answers[0].outcome.fault == "device"


def test_a_batch_is_restored_from_a_checkpoint() -> None:
    policy = ScriptedPolicy(["8", "7", "7", "7", "7", "7"], ["7"])
    rollouts = runner(policy)
    kept = rollouts.start(4, [0, 1]).state()
    again = rollouts.restore(kept)
    assert again.state() == kept and again.step == 4
    rollouts.finish(again)
    assert policy.asked[1] == [[20, 3, 8, 4]]
    assert [len(conversation.answers) for conversation in again.conversations] == [2, 1, 1, 1, 1, 1]


def test_a_context_that_does_not_fit_is_left_out() -> None:
    class Wordy(RolloutContext):
        def text(self, problem: TrainingProblem, rng: random.Random) -> str:
            return "one two three"

    policy = ScriptedPolicy(["7"] * 3, ["7"] * 3)
    runner(policy, context=Wordy(0, 0)).start(1, [0])
    runner(policy, context=Wordy(0, 0), settings=replace(SETTINGS, max_prompt_tokens=4)).start(1, [0])
    assert policy.asked == [[[20, 3, 5, 5, 5]], [[20, 3]]]


def test_seconds_by_phase_are_taken_once() -> None:
    rollouts = runner(ScriptedPolicy(["7"] * 3))
    rollouts.finish(rollouts.start(1, [0]))
    assert rollouts.times.take().keys() == {"wait_gpu", "generate", "submit", "wait"} and not rollouts.times.take()


def test_sampling_pauses_the_judges_timing() -> None:
    class Sharing(ToyJudge):
        inside = 0

        @contextmanager
        def timing_paused(self, stage: str) -> Iterator[None]:
            assert stage == "generate"
            self.inside += 1
            yield
            self.inside -= 1

    judge = Sharing()

    class Checked(ScriptedPolicy):
        def generate(self, prompts: Sequence[list[int]], **options: Any) -> list[list[SampledAnswer]]:
            assert judge.inside == 1
            return super().generate(prompts, **options)

    class Outside(ToyEnvironment):
        def submit(self, problem: TrainingProblem, completion: str, history: Sequence[Turn] = ()) -> Any:
            assert judge.inside == 0  # submitting within the pause could deadlock
            return super().submit(problem, completion, history)

    rollouts = runner(Checked(["8", "7", "7"], ["7"]), environment=Outside(judge))
    rollouts.finish(rollouts.start(1, [0]))
