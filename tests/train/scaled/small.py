"""TRL's trainer with a two-layer model, short prompts, and answers whose verdicts are given."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from hipwright.train import grpo, tiny
from hipwright.train.environment import Environment
from hipwright.train.forms import ChatForm
from hipwright.train.records import AnswerOutcome, TrainingProblem, Turn
from hipwright.train.rewards import reward
from hipwright.train.scaled.settings import GrpoSettings
from hipwright.train.scaled.trainer import algorithm_trainer
from tests.train import fakes
from tests.train.rl.tools import MemoryLog

PROBLEMS = [
    TrainingProblem(name=f"sum {number}", source=f"{fakes.SOURCE}# {number}\n", facts={"number": number})
    for number in range(4)
]
SMALL = GrpoSettings(
    steps=2,
    batch=6,
    accumulate=1,
    samples=3,
    turns=3,
    max_new_tokens=5,
    learning_rate=1e-3,
    warmup=0.0,
    save_every=1,
    checkpoint_activations=False,
)


class ScriptedEnvironment(Environment):
    """Judges a word in place of each answer: script[turn], by the order of the conversations, again and again."""

    def __init__(self, script: Sequence[Sequence[str]], name: str = "milestones") -> None:
        super().__init__(fakes.WordVerdictJudge(), reward(name))
        self.script, self.given = script, [0] * len(script)
        self.histories: list[list[str]] = []

    def submit(self, problem: TrainingProblem, completion: str, history: Sequence[Turn] = ()) -> Future[AnswerOutcome]:
        turn = len(history)
        words = self.script[turn]
        word = words[self.given[turn] % len(words)]
        self.given[turn] += 1
        self.histories.append([one.outcome.status for one in history])
        return super().submit(problem, fakes.answer(word), history)


def trainer(environment: Any, settings: GrpoSettings, folder: Path, log: MemoryLog | None = None) -> Any:
    """A trainer of a fresh two-layer model."""
    model, tokenizer = tiny.tiny_model("qwen2", [one.source for one in PROBLEMS])
    form = ChatForm(tokenizer)
    form.system = "Write HIP."
    arguments = grpo.trl_arguments(settings, folder)
    return algorithm_trainer(model, tokenizer, PROBLEMS, environment, settings, arguments, log, form)
