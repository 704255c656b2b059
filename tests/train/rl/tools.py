"""A two-layer model, a byte-level tokenizer, a toy environment and fakes for the tests of the loops."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import torch

from hipwright.train.records import AnswerOutcome, ScoredOutcome, TrainingProblem, Turn


def tiny_model(seed: int = 0, vocabulary: int = 64, hidden: int = 64, layers: int = 2) -> Any:
    """A Qwen2 with random weights, float32."""
    from transformers import Qwen2Config, Qwen2ForCausalLM

    torch.manual_seed(seed)
    config = Qwen2Config(
        vocab_size=vocabulary,
        hidden_size=hidden,
        intermediate_size=2 * hidden,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=512,
        tie_word_embeddings=True,
        initializer_range=0.2,
    )
    return Qwen2ForCausalLM(config)


WANTED = 7
"""The token that makes an answer right."""
END = 1


class ToyForm:
    """A form with token ids as text, without an answer's end token."""

    def encode(self, problem: TrainingProblem, history: Sequence[Turn] = (), context: str = "") -> list[int]:
        tokens = [20 + int(problem.facts["number"]), 3]
        for turn in history:
            tokens += [int(word) for word in turn.completion.split()] + [4]
        return tokens + [5] * len(context.split())

    def decode(self, tokens: Sequence[int]) -> str:
        return " ".join(str(token) for token in tokens if token != END)

    def target(self, problem: TrainingProblem, program_text: str) -> list[int]:
        return [*(int(word) for word in program_text.split()), END]


class ToyJudge:
    """Passes answers that hold WANTED. A function of the text, computed in threads."""

    def __init__(self, device: str = "", fault: Callable[[str], bool] = lambda text: False, slow: float = 0.0) -> None:
        self.device, self.fault, self.slow = device, fault, slow
        self.pool = ThreadPoolExecutor(4)
        self.asked = 0
        self.known: dict[str, int] = {}
        self.prefetched: list[str] = []

    def prefetch(self, problems: Sequence[TrainingProblem]) -> None:
        self.prefetched += [one.name for one in problems]

    def judge(self, text: str) -> AnswerOutcome:
        if self.slow:
            time.sleep(self.slow * random.Random(text).random())
        self.known[text] = self.known.get(text, 0) + 1
        if self.fault(text):
            return AnswerOutcome(status="unscorable", fault="device", message="the device fell asleep")
        right = str(WANTED) in text.split()
        return AnswerOutcome(
            status="pass" if right else "wrong_value", compiled=True, correct=right, message="" if right else "no 7"
        )

    def state(self) -> dict[str, Any]:
        return {"known": dict(sorted(self.known.items()))}

    def load(self, state: dict[str, Any]) -> None:
        self.known = dict(state["known"])


class ToyReward:
    """1 for a right answer, 0 for a wrong one, None for what is not scorable."""

    def __call__(self, outcomes: Sequence[AnswerOutcome]) -> list[ScoredOutcome]:
        return [ScoredOutcome(outcome=one, reward=float(one.correct) if one.scorable else None) for one in outcomes]

    def __repr__(self) -> str:
        return "toy"


class ToyEnvironment:
    def __init__(self, judge: ToyJudge | None = None) -> None:
        self.judge, self.reward = judge or ToyJudge(), ToyReward()

    def submit(self, problem: TrainingProblem, completion: str, history: Sequence[Turn] = ()) -> Future[AnswerOutcome]:
        self.judge.asked += 1
        return self.judge.pool.submit(self.judge.judge, completion)


class MemoryLog:
    """A log in memory."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, int, dict[str, float]]] = []
        self.samples: list[dict[str, Any]] = []

    def metrics(self, stage: str, step: int, values: Mapping[str, float]) -> None:
        self.lines.append((stage, step, dict(values)))

    def sample(self, stage: str, step: int, record: Mapping[str, Any]) -> None:
        self.samples.append({"stage": stage, "step": step, **record})

    def column(self, name: str, stage: str = "rl") -> list[float]:
        return [values[name] for where, _, values in self.lines if where == stage and name in values]


def toy_problems(count: int = 6) -> list[TrainingProblem]:
    return [TrainingProblem(name=f"p{i}", source=f"reference {i}", facts={"number": i}) for i in range(count)]
