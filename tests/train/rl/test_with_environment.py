"""The loop on the real environment and reward with a fake judge."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

import pytest

from hipwright.train.records import TrainingProblem, Turn
from hipwright.train.rl.loop import train_rl
from hipwright.train.rl.policy import HFPolicy
from hipwright.train.rl.settings import OptimSettings, RLSettings
from tests.train.fakes import SOURCE, answer, environment
from tests.train.rl.tools import END, MemoryLog, tiny_model

WORDS = ("wrong", "slow", "fast", "broken", "prose")


class WordForm:
    """A form in which a token is an answer: the word of its number; "prose" has no program."""

    def encode(self, problem: TrainingProblem, history: Sequence[Turn] = (), context: str = "") -> list[int]:
        assert all(turn.outcome.evidence for turn in history)  # every repair turn has evidence
        return [20 + int(problem.facts["number"]), *(30 + len(turn.outcome.status) for turn in history)]

    def decode(self, tokens: Sequence[int]) -> str:
        word = WORDS[tokens[0] % len(WORDS)]
        return "I cannot." if word == "prose" else answer(word)

    def target(self, problem: TrainingProblem, program_text: str) -> list[int]:
        raise NotImplementedError  # not used by the loop


@pytest.mark.slow
def test_fast_answers_prevail(tmp_path: Path) -> None:
    problems = [TrainingProblem(name=f"sum {i}", source=SOURCE, facts={"number": i}) for i in range(4)]
    settings = RLSettings(
        steps=30,
        prompts=4,
        samples=12,
        turns=2,
        max_new_tokens=1,
        exemplars=0.5,
        lessons=2,
        optim=OptimSettings(learning_rate=3e-3, warmup=2),
    )
    notes = MemoryLog()
    policy = HFPolicy(tiny_model(), end=[END], device="cpu")
    train_rl(policy, problems, environment(), WordForm(), settings, tmp_path, notes)
    rewards, infra, speedups = notes.column("reward"), notes.column("infra"), notes.column("speedup")
    assert fmean(rewards[:4]) < 0.4 and fmean(rewards[-4:]) > 0.7
    assert fmean(infra[:4]) > 0.1  # a fifth of the answers is unscorable
    assert fmean(speedups[-4:]) > 1.8
    assert max(notes.column("compiled")) <= 1 and min(notes.column("answers")) >= 48
